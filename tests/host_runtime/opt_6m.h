// The trained checkpoint of the repository, loaded once per test program.
#pragma once

#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "host_runtime/checkpoint/checkpoint.h"
#include "host_runtime/core/decoder/decoder.h"
#include "host_runtime/cpu/cpu_backend.h"

namespace csdsim::test {

inline const std::filesystem::path kOpt6m = std::filesystem::path(CSDSIM_SOURCE_DIR) / "models" / "opt-6m";

struct Opt6m {
  host::CpuBackend backend;
  host::Checkpoint checkpoint = host::open_checkpoint(kOpt6m);
  std::unique_ptr<host::Decoder> decoder = host::make_decoder(checkpoint.config, *checkpoint.weights, backend);
  host::Tokenizer tokenizer = host::open_tokenizer(kOpt6m);
  nlohmann::json golden = nlohmann::json::parse(std::ifstream(kOpt6m / "golden.json"));
  std::vector<host::TokenId> text;  // sample.txt

  Opt6m() {
    std::ifstream file(kOpt6m / "sample.txt", std::ios::binary);
    text = tokenizer.encode(std::string(std::istreambuf_iterator<char>(file), {}));
  }

  std::vector<host::TokenId> tokens(std::size_t first, std::size_t count) const {
    const auto part = std::span(text).subspan(first, count);
    return {part.begin(), part.end()};
  }
};

inline const Opt6m& opt_6m() {
  static const Opt6m model;
  return model;
}

inline std::vector<host::TokenId> token_ids(const nlohmann::json& array) {
  std::vector<host::TokenId> ids;
  for (const auto& id : array) ids.push_back(host::TokenId{id.get<std::uint32_t>()});
  return ids;
}

}  // namespace csdsim::test
