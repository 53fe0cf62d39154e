#include "host_runtime/checkpoint/config_json.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "base/error.h"
#include "host_runtime/checkpoint/json_file.h"

namespace csdsim::host {
namespace {

using nlohmann::json;

// Larger than any model: keeps products of two of them far from overflow.
constexpr std::uint32_t kMaxCount = 1u << 24;

// Takes fields out of a config and collects what is wrong with them.
class FieldReader {
 public:
  FieldReader(const json& config, std::string path) : config_(config), path_(std::move(path)) {}

  // A count in [1, kMaxCount].
  std::uint32_t count(const char* field) {
    const auto it = config_.find(field);
    if (it == config_.end()) {
      problem(field, "is missing (a positive integer is needed)");
    } else if (!it->is_number_unsigned() || it->get<std::uint64_t>() < 1 || it->get<std::uint64_t>() > kMaxCount) {
      problem(field, fmt::format("expected an integer from 1 to {}, found {}", kMaxCount, it->dump()));
    } else {
      return it->get<std::uint32_t>();
    }
    return 1;
  }

  bool boolean(const char* field, bool otherwise) {
    const auto it = config_.find(field);
    if (it == config_.end()) return otherwise;
    if (it->is_boolean()) return it->get<bool>();
    problem(field, fmt::format("expected true or false, found {}", it->dump()));
    return otherwise;
  }

  // The field, where present, must have the one value that the decoder implements.
  void only(const char* field, const json& implemented, std::string_view why) {
    const auto it = config_.find(field);
    if (it != config_.end() && *it != implemented) {
      problem(field, fmt::format("expected {}, found {}: {}", implemented.dump(), it->dump(), why));
    }
  }

  void problem(const char* field, const std::string& what) {
    problems_.push_back(fmt::format("{}: {}: {}", path_, field, what));
  }

  void finish() const {
    if (!problems_.empty()) throw UserError(fmt::format("{}", fmt::join(problems_, "\n")));
  }

 private:
  const json& config_;
  std::string path_;
  std::vector<std::string> problems_;
};

ModelConfig read_opt(FieldReader& fields) {
  ModelConfig config;
  config.architecture = "opt";
  config.layers = fields.count("num_hidden_layers");
  config.width = fields.count("hidden_size");
  config.heads = config.kv_heads = fields.count("num_attention_heads");
  config.ffn = fields.count("ffn_dim");
  config.vocab = fields.count("vocab_size");
  config.max_positions = fields.count("max_position_embeddings");
  config.tied_embeddings = fields.boolean("tie_word_embeddings", true);
  fields.only("word_embed_proj_dim", config.width, "projected embeddings are not implemented");
  fields.only("do_layer_norm_before", true, "post-norm OPT (350m) is not implemented");
  fields.only("_remove_final_layer_norm", false, "OPT without its final norm is not implemented");
  fields.only("enable_bias", true, "OPT without biases is not implemented");
  fields.only("layer_norm_elementwise_affine", true, "norms without parameters are not implemented");
  fields.only("activation_function", "relu", "OPT uses ReLU");
  if (config.width % config.heads != 0) {
    fields.problem("hidden_size",
                   fmt::format("{} is not a multiple of num_attention_heads {}", config.width, config.heads));
  }
  config.head_dim = config.width / config.heads;
  return config;
}

}  // namespace

ModelConfig read_config(const std::filesystem::path& path) {
  const json description = read_json_object(path);
  FieldReader fields(description, path.string());
  const auto type = description.find("model_type");
  if (type == description.end() || !type->is_string()) {
    fields.problem("model_type", "is missing or not a string; known architectures: opt");
    fields.finish();
  }
  if (*type != "opt") {
    fields.problem("model_type", fmt::format("unknown architecture {}; known architectures: opt", type->dump()));
    fields.finish();
  }
  const ModelConfig config = read_opt(fields);
  fields.finish();
  return config;
}

}  // namespace csdsim::host
