// The committed golden vectors of Hugging Face transformers (tests/data/golden), read without any library.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/fp16.h"
#include "host_runtime/core/model/model_config.h"
#include "host_runtime/core/model/weight_source.h"
#include "tests/gpu/json.h"

namespace gpu_test {

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw csdsim::UserError(path.string() + ": cannot be read");
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Safetensors files as one set of tensors.
class StoredTensors final : public csdsim::host::WeightSource {
 public:
  explicit StoredTensors(const std::vector<std::filesystem::path>& paths) {
    files_.reserve(paths.size());
    for (const auto& path : paths) {
      const std::string& file = files_.emplace_back(read_file(path));
      std::uint64_t header = 0;
      std::memcpy(&header, file.data(), sizeof header);
      const Json document = parse_json(std::string_view(file).substr(sizeof header, header));
      for (const auto& [name, entry] : document.fields) {
        if (name == "__metadata__") continue;
        csdsim::host::StoredTensor tensor;
        const std::string& type = entry.at("dtype").text;
        tensor.type = type == "F16"    ? csdsim::host::ElementType::f16
                      : type == "BF16" ? csdsim::host::ElementType::bf16
                                       : csdsim::host::ElementType::f32;
        for (const Json& size : entry.at("shape").items)
          tensor.shape.push_back(static_cast<std::uint64_t>(size.number));
        const auto begin = static_cast<std::size_t>(entry.at("data_offsets").items.at(0).number),
                   end = static_cast<std::size_t>(entry.at("data_offsets").items.at(1).number);
        tensor.bytes = std::as_bytes(std::span<const char>(file)).subspan(sizeof header + header + begin, end - begin);
        tensors_.emplace(name, tensor);
      }
    }
  }

  bool contains(std::string_view name) const override { return tensors_.contains(std::string(name)); }
  csdsim::host::StoredTensor tensor(std::string_view name) const override {
    const auto it = tensors_.find(std::string(name));
    if (it == tensors_.end()) throw csdsim::UserError("no tensor " + std::string(name));
    return it->second;
  }
  std::string description() const override { return "golden checkpoint"; }

  std::vector<float> floats(std::string_view name) const {
    const csdsim::host::StoredTensor stored = tensor(name);
    std::vector<float> values(stored.bytes.size() / csdsim::host::element_size(stored.type));
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (stored.type == csdsim::host::ElementType::f32) {
        std::memcpy(&values[i], stored.bytes.data() + 4 * i, 4);
      } else {
        csdsim::Half half;
        std::memcpy(&half, stored.bytes.data() + 2 * i, 2);
        values[i] = csdsim::half_to_float(half);
      }
    }
    return values;
  }

 private:
  std::vector<std::string> files_;
  std::map<std::string, csdsim::host::StoredTensor> tensors_;
};

/// config.json of the golden checkpoints; csdsim's own reader checks what is taken for granted here.
inline csdsim::host::ModelConfig read_golden_config(const std::filesystem::path& path) {
  using csdsim::host::Architecture;
  const Json c = parse_json(read_file(path));
  const auto count = [&](const char* name, double otherwise) {
    return static_cast<std::uint32_t>(c.number_or(name, otherwise));
  };
  csdsim::host::ModelConfig config;
  const std::string& type = c.at("model_type").text;
  const auto family = std::find(csdsim::host::kArchitectureNames.begin(), csdsim::host::kArchitectureNames.end(), type);
  if (family == csdsim::host::kArchitectureNames.end()) throw csdsim::UserError("golden: a family " + type);
  config.architecture = static_cast<Architecture>(family - csdsim::host::kArchitectureNames.begin());
  config.layers = count("num_hidden_layers", 0);
  config.width = count("hidden_size", 0);
  config.heads = count("num_attention_heads", 0);
  config.kv_heads = count("num_key_value_heads", config.heads);
  config.head_dim = count("head_dim", config.width / config.heads);
  config.ffn = count(type == "opt" ? "ffn_dim" : "intermediate_size", 0);
  config.vocab = count("vocab_size", 0);
  config.max_positions = count("max_position_embeddings", 0);
  config.norm_epsilon = static_cast<float>(c.number_or("rms_norm_eps", 1e-5));
  config.tied_embeddings = c.number_or("tie_word_embeddings", type == "opt") != 0;
  config.attention_biases = type != "opt" && c.number_or("attention_bias", 0) != 0;
  config.ffn_biases = c.number_or("mlp_bias", 0) != 0;
  config.rotary.theta = static_cast<float>(c.number_or("rope_theta", 10000));
  if (!c.has("rope_parameters")) return config;
  const Json& rope = c.at("rope_parameters");
  config.rotary.theta = static_cast<float>(rope.number_or("rope_theta", 10000));
  if (rope.at("rope_type").text == "llama3") {
    config.rotary.scaling = csdsim::host::Llama3RopeScaling{
        static_cast<float>(rope.at("factor").number), static_cast<float>(rope.at("low_freq_factor").number),
        static_cast<float>(rope.at("high_freq_factor").number),
        static_cast<std::uint32_t>(rope.at("original_max_position_embeddings").number)};
  } else if (rope.at("rope_type").text == "linear") {
    config.rotary.scaling = csdsim::host::LinearRopeScaling{static_cast<float>(rope.at("factor").number)};
  } else if (rope.at("rope_type").text == "yarn") {
    const auto factor = static_cast<float>(rope.at("factor").number);
    config.rotary.scaling = csdsim::host::YarnRopeScaling{
        .factor = factor,
        .magnitude = 0.1f * std::log(factor) + 1.0f,
        .original_positions = static_cast<std::uint32_t>(rope.at("original_max_position_embeddings").number)};
  }
  return config;
}

struct Golden {
  explicit Golden(const std::string& name)
      : answers_path(std::filesystem::path(CSDSIM_SOURCE_DIR) / "tests/data/golden" / name),
        directory(is_directory(std::filesystem::path(CSDSIM_SOURCE_DIR) / "models" / name)
                      ? std::filesystem::path(CSDSIM_SOURCE_DIR) / "models" / name
                      : answers_path),
        config(read_golden_config(directory / "config.json")),
        weights(weight_files(directory)),
        answers({answers_path / "logits.safetensors"}) {
    const Json document = parse_json(read_file(answers_path / "golden.json"));
    for (const Json& id : document.at("tokens").items) tokens.emplace_back(static_cast<std::uint32_t>(id.number));
    for (const Json& p : document.at("positions").items) positions.push_back(static_cast<std::uint32_t>(p.number));
    for (const Json& m : document.at("margins").items) margins.push_back(static_cast<float>(m.number));
    prompt = static_cast<std::uint32_t>(document.at("prompt_tokens").number);
    scale = static_cast<float>(document.at("max_abs_logit").number);
  }

  static std::vector<std::filesystem::path> weight_files(const std::filesystem::path& directory) {
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(directory)) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with("model") && name.ends_with(".safetensors")) files.push_back(entry.path());
    }
    return files;
  }

  std::filesystem::path answers_path, directory;
  csdsim::host::ModelConfig config;
  StoredTensors weights, answers;
  std::vector<csdsim::host::TokenId> tokens;  ///< the prompt, then the greedy tokens of transformers
  std::uint32_t prompt = 0;
  std::vector<std::uint32_t> positions;  ///< positions whose logits are known
  std::vector<float> margins;            ///< margins of the greedy tokens, top 1 over top 2
  float scale = 0;                       ///< largest |logit|
};

}  // namespace gpu_test
