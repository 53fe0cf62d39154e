// Text to token ids and back.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "host_runtime/core/model_config.h"

namespace csdsim::host {

/// A sentencepiece model (`tokenizer.model`). No start or end token is added.
class Tokenizer {
 public:
  /// UserError naming the file if it is missing or not a sentencepiece model.
  explicit Tokenizer(const std::filesystem::path& path);
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;

  std::uint32_t vocabulary() const;
  std::vector<TokenId> encode(std::string_view text) const;
  /// UserError for an id outside the vocabulary.
  std::string decode(std::span<const TokenId> tokens) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace csdsim::host
