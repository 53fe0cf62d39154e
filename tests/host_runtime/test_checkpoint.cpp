#include <catch2/catch.hpp>
#include <functional>

#include "base/error.h"
#include "host_runtime/checkpoint/checkpoint.h"
#include "host_runtime/checkpoint/config_json.h"
#include "host_runtime/checkpoint/safetensors.h"
#include "host_runtime/core/generation.h"
#include "host_runtime/cpu/cpu_backend.h"
#include "tests/host_runtime/opt_6m.h"
#include "tests/host_runtime/tiny_checkpoint.h"

using namespace csdsim;
using namespace csdsim::host;
using namespace csdsim::test;
using Catch::Matchers::Contains;
using nlohmann::json;

namespace {

std::string user_error(const std::function<void()>& action) {
  try {
    action();
  } catch (const UserError& error) {
    return error.what();
  }
  return "no UserError";
}

std::vector<float> logits_of(const std::filesystem::path& directory) {
  CpuBackend backend;
  const Checkpoint checkpoint = open_checkpoint(directory);
  const auto decoder = make_decoder(checkpoint.config, *checkpoint.weights, backend);
  HostAttention attention(checkpoint.config, std::make_unique<DenseAttention>());
  attention.create_sequence(SequenceId{0});
  std::vector<TokenId> tokens;
  for (std::uint32_t i = 0; i < 20; ++i) tokens.push_back(TokenId{i * 7 % 50});
  const SequenceSlice slice{SequenceId{0}, 20};
  return decoder->logits(prefill(*decoder, attention, {&slice, 1}, tokens));
}

}  // namespace

TEST_CASE("safetensors: names, shapes, types and bytes come back") {
  const TemporaryDirectory directory;
  const Tensors tensors{{"a", {{2, 3}, {1, 2, 3, 4, 5, 6}}}, {"b", {{2}, {-1, 0.5}}}, {"empty", {{0, 4}, {}}}};
  for (const std::string dtype : {"F32", "F16", "BF16"}) {
    write_file(directory / "x.safetensors", encode_safetensors(tensors, dtype));
    const SafetensorsFile file(directory / "x.safetensors");
    CHECK(file.contains("a"));
    CHECK_FALSE(file.contains("__metadata__"));
    const StoredTensor a = file.tensor("a");
    CHECK(a.shape == std::vector<std::uint64_t>{2, 3});
    CHECK(a.bytes.size() == 6 * element_size(a.type));
    CHECK(file.tensor("empty").bytes.empty());
    CpuBackend backend;
    const Weight weight = backend.load(a);
    Tensor row = backend.allocate(1, 3);
    const std::uint32_t id = 1;
    backend.embedding(weight, {&id, 1}, row);
    std::vector<float> values(3);
    backend.download(row, values);
    CHECK(values == std::vector<float>{4, 5, 6});
  }
}

TEST_CASE("broken safetensors are refused with file, tensor and reason") {
  const TemporaryDirectory directory;
  const auto path = directory / "model.safetensors";
  const std::string six(6, '\0'), eight(8, '\0');
  const auto one = [](const std::string& body) { return R"({"w":{)" + body + "}}"; };
  struct Case {
    const char* name;
    std::string bytes;
    std::string reason;
  };
  const std::vector<Case> cases{
      {"empty file", "", "0 bytes is too short"},
      {"shorter than the length", "abc", "3 bytes is too short"},
      {"header longer than the file", safetensors_bytes("{}", "", 1000), "truncated: the header claims 1000 bytes"},
      {"oversized header", safetensors_bytes("{}", "", std::uint64_t{1} << 62), "at most 100000000 are allowed"},
      {"header length wraps", safetensors_bytes("{}", "", ~std::uint64_t{0} - 1), "at most 100000000 are allowed"},
      {"not JSON", safetensors_bytes("{\"w\": ", ""), "not valid JSON"},
      {"not an object", safetensors_bytes("[1]", ""), "expected a JSON object, found array"},
      {"tensor not an object", safetensors_bytes(R"({"w":3})", ""), "tensor 'w': expected an object"},
      {"no dtype", safetensors_bytes(one(R"("shape":[2],"data_offsets":[0,8])"), eight), "'dtype' is missing"},
      {"unknown dtype", safetensors_bytes(one(R"("dtype":"F99","shape":[2],"data_offsets":[0,8])"), eight),
       "unknown dtype 'F99'"},
      {"no shape", safetensors_bytes(one(R"("dtype":"F32","data_offsets":[0,8])"), eight), "'shape' must be an array"},
      {"negative extent", safetensors_bytes(one(R"("dtype":"F32","shape":[-2],"data_offsets":[0,8])"), eight),
       "'shape' must be an array"},
      {"fractional extent", safetensors_bytes(one(R"("dtype":"F32","shape":[2.5],"data_offsets":[0,8])"), eight),
       "'shape' must be an array"},
      {"shape against range", safetensors_bytes(one(R"("dtype":"F32","shape":[3],"data_offsets":[0,8])"), eight),
       "shape [3] of F32 needs 12 bytes, data_offsets [0, 8] hold 8"},
      {"shape overflows",
       safetensors_bytes(one(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8])"), eight),
       "needs too many bytes"},
      {"offsets backwards", safetensors_bytes(one(R"("dtype":"F32","shape":[2],"data_offsets":[8,0])"), eight),
       "data_offsets [8, 0] run backwards"},
      {"one offset", safetensors_bytes(one(R"("dtype":"F32","shape":[2],"data_offsets":[8])"), eight),
       "'data_offsets' must be [begin, end]"},
      {"truncated data", safetensors_bytes(one(R"("dtype":"F32","shape":[2],"data_offsets":[0,8])"), six),
       "reach past the 6 bytes of data: truncated file?"},
      {"overlap",
       safetensors_bytes(R"({"v":{"dtype":"F16","shape":[3],"data_offsets":[0,6]},)"
                         R"("w":{"dtype":"F16","shape":[2],"data_offsets":[4,8]}})",
                         eight),
       "tensor 'w': data_offsets [4, 8] overlap the tensor that ends at byte 6"},
      {"hole",
       safetensors_bytes(R"({"v":{"dtype":"F16","shape":[1],"data_offsets":[0,2]},)"
                         R"("w":{"dtype":"F16","shape":[2],"data_offsets":[4,8]}})",
                         eight),
       "tensor 'w': data_offsets [4, 8] leave a hole at byte 2"},
      {"data after the last tensor", safetensors_bytes(one(R"("dtype":"F16","shape":[2],"data_offsets":[0,4])"), eight),
       "4 bytes of data follow the last tensor"},
      {"tensor twice",
       safetensors_bytes(R"({"w":{"dtype":"F16","shape":[4],"data_offsets":[0,8]},)"
                         R"("w":{"dtype":"F16","shape":[4],"data_offsets":[0,8]}})",
                         eight),
       "key 'w' appears twice"},
  };
  for (const Case& broken : cases) {
    INFO(broken.name);
    write_file(path, broken.bytes);
    const std::string message = user_error([&] { SafetensorsFile{path}; });
    CHECK_THAT(message, Contains(path.string()) && Contains(broken.reason));
  }
  CHECK_THAT(user_error([&] { SafetensorsFile{directory / "none"}; }), Contains("none: cannot be read: No such file"));
  CHECK_THAT(user_error([&] { SafetensorsFile{directory.path()}; }), Contains("cannot be read: Is a directory"));

  write_file(path, safetensors_bytes(one(R"("dtype":"I64","shape":[1],"data_offsets":[0,8])"), eight));
  const SafetensorsFile integers(path);
  CHECK_THAT(user_error([&] { integers.tensor("w"); }), Contains("'w' has dtype I64; weights may be F16, BF16 or F32"));
  CHECK_THAT(user_error([&] { integers.tensor("x"); }), Contains(path.string()) && Contains("'x' is missing"));
}

TEST_CASE("shards: read through the index, and refused where they are incomplete") {
  const TemporaryDirectory whole, split;
  const Tensors weights = tiny_weights(1);
  write_checkpoint(whole.path(), tiny_config(), weights, "F32");
  write_file(split / "config.json", tiny_config().dump());
  Tensors parts[2];
  json index = {{"metadata", {{"total_size", 1}}}, {"weight_map", json::object()}};
  std::size_t i = 0;
  for (const auto& [name, tensor] : weights) {
    index["weight_map"][name] = i % 2 == 0 ? "part-1.safetensors" : "part-2.safetensors";
    parts[i++ % 2][name] = tensor;
  }
  write_file(split / "part-1.safetensors", encode_safetensors(parts[0], "F32"));
  write_file(split / "part-2.safetensors", encode_safetensors(parts[1], "F32"));
  const auto path = split / "model.safetensors.index.json";
  write_file(path, index.dump());
  CHECK(logits_of(split.path()) == logits_of(whole.path()));

  const auto refused = [&](const json& broken, const std::string& reason) {
    write_file(path, broken.dump());
    CHECK_THAT(user_error([&] { ShardedSafetensors{path}; }), Contains(path.string()) && Contains(reason));
  };
  json broken = index;
  broken["weight_map"]["model.decoder.final_layer_norm.bias"] = "part-3.safetensors";
  refused(broken, "shard 'part-3.safetensors' of tensor 'model.decoder.final_layer_norm.bias' does not exist");
  broken["weight_map"]["model.decoder.final_layer_norm.bias"] = "../part-1.safetensors";
  refused(broken, "'../part-1.safetensors' is not a plain file name");
  broken = index;
  broken["weight_map"]["ghost"] = "part-1.safetensors";
  refused(broken, "tensor 'ghost' is not in its shard 'part-1.safetensors'");
  broken["weight_map"]["ghost"] = 7;
  refused(broken, "'ghost': expected a file name, found number");
  refused({{"metadata", 1}}, "'weight_map' is missing");
  write_file(split / "part-2.safetensors", encode_safetensors(parts[1], "F32").substr(0, 3000));
  write_file(path, index.dump());
  CHECK_THAT(user_error([&] { ShardedSafetensors{path}; }), Contains("part-2.safetensors") && Contains("truncated"));
}

TEST_CASE("config.json: the shape of opt-6m") {
  const ModelConfig config = read_config(kOpt6m / "config.json");
  CHECK(config.architecture == Architecture::opt);
  CHECK(config.layers == 6);
  CHECK(config.width == 256);
  CHECK(config.heads == 4);
  CHECK(config.kv_heads == 4);
  CHECK(config.head_dim == 64);
  CHECK(config.ffn == 1024);
  CHECK(config.vocab == 4096);
  CHECK(config.max_positions == 2048);
  CHECK(config.tied_embeddings);
  CHECK(config.kv_bytes_per_token() == Bytes{6 * 2 * 256 * 2});
}

TEST_CASE("broken config.json is refused with file, field, expected and found") {
  const TemporaryDirectory directory;
  const auto path = directory / "config.json";
  const auto refused = [&](const std::string& field, const json& value, const std::string& reason) {
    json config = tiny_config();
    if (value.is_discarded()) {
      config.erase(field);
    } else {
      config[field] = value;
    }
    write_file(path, config.dump());
    CHECK_THAT(user_error([&] { read_config(path); }), Contains(path.string() + ": " + field) && Contains(reason));
  };
  const json absent(json::value_t::discarded);
  for (const char* field : {"hidden_size", "num_hidden_layers", "num_attention_heads", "ffn_dim", "vocab_size",
                            "max_position_embeddings"}) {
    refused(field, absent, "is missing");
    refused(field, 0, "expected an integer from 1 to 16777216, found 0");
    refused(field, -4, "found -4");
    refused(field, "24", "found \"24\"");
    refused(field, 1e30, "found 1e+30");
  }
  refused("model_type", absent, "known architectures: opt, llama, qwen2");
  refused("model_type", "mamba", "unknown architecture \"mamba\"; known architectures: opt, llama, qwen2");
  refused("word_embed_proj_dim", 0, "expected an integer from 1 to 16777216, found 0");
  refused("do_layer_norm_before", 0, "expected true or false, found 0");
  refused("enable_bias", false, "not implemented");
  refused("layer_norm_elementwise_affine", false, "not implemented");
  refused("activation_function", "gelu", "expected \"relu\", found \"gelu\"");
  refused("tie_word_embeddings", 1, "expected true or false, found 1");
  refused("hidden_size", 25, "25 is not a multiple of num_attention_heads 3");

  json two = tiny_config();
  two.erase("ffn_dim");
  two["vocab_size"] = true;
  write_file(path, two.dump());
  CHECK_THAT(user_error([&] { read_config(path); }),
             Contains("ffn_dim: is missing") && Contains("vocab_size: expected"));
  write_file(path, "{\"model_type\": \"opt\",\n \"hidden_size\": }");
  CHECK_THAT(user_error([&] { read_config(path); }),
             Contains(path.string() + ": not valid JSON: parse error at line 2"));
  write_file(path, R"({"model_type": "opt", "model_type": "opt"})");
  CHECK_THAT(user_error([&] { read_config(path); }), Contains("key 'model_type' appears twice"));
  write_file(path, std::string(100000, '['));
  CHECK_THAT(user_error([&] { read_config(path); }), Contains("not valid JSON"));
  CHECK_THAT(user_error([&] { open_checkpoint(directory / "none"); }), Contains("there is no such model directory"));
  write_file(path, tiny_config().dump());
  CHECK_THAT(user_error([&] { open_checkpoint(directory.path()); }), Contains("neither model.safetensors nor"));
}

TEST_CASE("config.json of Llama and Qwen2: what is read, in the old form and in the new one") {
  const TemporaryDirectory directory;
  const auto path = directory / "config.json";
  const auto read = [&](const json& patch) {
    json config = tiny_llama_config();
    config.merge_patch(patch);
    write_file(path, config.dump());
    return read_config(path);
  };
  const ModelConfig plain = read(json::object());
  CHECK(plain.architecture == Architecture::llama);
  CHECK(plain.kv_heads == 2);
  CHECK(plain.group_size() == 2);
  CHECK(plain.head_dim == 6);
  CHECK(plain.ffn == 40);
  CHECK(plain.norm_epsilon == 1e-5f);
  CHECK_FALSE(plain.tied_embeddings);
  CHECK(plain.rotary.theta == 10000.0f);
  CHECK_FALSE(plain.rotary.scaling);
  // What Llama 1 leaves out.
  const ModelConfig first = read({{"num_key_value_heads", nullptr}, {"rms_norm_eps", nullptr}});
  CHECK(first.kv_heads == 4);
  CHECK(first.norm_epsilon == 1e-6f);
  CHECK(read({{"head_dim", 16}}).q_width() == 64);
  CHECK(read({{"model_type", "qwen2"}, {"tie_word_embeddings", true}, {"use_sliding_window", false}}).tied_embeddings);

  const json scaling{
      {"factor", 8.0}, {"low_freq_factor", 1.0}, {"high_freq_factor", 4.0}, {"original_max_position_embeddings", 16}};
  json old_form = {{"rope_theta", 500000.0}, {"rope_scaling", scaling}}, new_form = {{"rope_parameters", scaling}};
  old_form["rope_scaling"]["rope_type"] = "llama3";
  new_form["rope_parameters"]["rope_type"] = "llama3";
  new_form["rope_parameters"]["rope_theta"] = 500000.0;
  for (const json& form : {old_form, new_form}) {
    const ModelConfig config = read(form);
    CHECK(config.rotary.theta == 500000.0f);
    REQUIRE(config.rotary.scaling);
    CHECK(config.rotary.scaling->factor == 8.0f);
    CHECK(config.rotary.scaling->low_frequency_factor == 1.0f);
    CHECK(config.rotary.scaling->high_frequency_factor == 4.0f);
    CHECK(config.rotary.scaling->original_positions == 16);
  }

  const auto refused = [&](const json& patch, const std::string& reason) {
    INFO(patch.dump());
    CHECK_THAT(user_error([&] { read(patch); }), Contains(path.string() + ": " + reason));
  };
  for (const char* field : {"hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
                            "vocab_size", "max_position_embeddings"}) {
    refused({{field, nullptr}}, std::string(field) + ": is missing");
  }
  refused({{"num_key_value_heads", 3}}, "num_key_value_heads: 3 do not divide num_attention_heads 4");
  refused({{"num_key_value_heads", 8}}, "num_key_value_heads: 8 do not divide num_attention_heads 4");
  refused({{"head_dim", 7}}, "head_dim: a head of 7 elements cannot be rotated: it must be even");
  refused({{"hidden_size", 20}}, "hidden_size: a head of 5 elements cannot be rotated");
  refused({{"hidden_size", 25}}, "hidden_size: 25 is not a multiple of num_attention_heads 4");
  refused({{"head_dim", 1 << 23}}, "num_attention_heads: 4 heads of 8388608 are more than 16777216 elements");
  refused({{"rms_norm_eps", 0}}, "rms_norm_eps: expected a number above 0 and at most 1, found 0");
  refused({{"rms_norm_eps", "1e-5"}}, "rms_norm_eps: expected a number");
  refused({{"rope_theta", -1.0}}, "rope_theta: expected a number above 0");
  refused({{"rope_theta", 1e300}}, "rope_theta: expected a number above 0");
  refused({{"hidden_act", "gelu"}}, "hidden_act: expected \"silu\", found \"gelu\"");
  refused({{"attention_bias", true}}, "attention_bias: expected false, found true: Llama with biases");
  refused({{"mlp_bias", true}}, "mlp_bias: expected false");
  refused({{"model_type", "qwen2"}, {"use_sliding_window", true}}, "use_sliding_window: expected false");
  refused({{"layer_types", {"full_attention", "sliding_attention"}}}, "layer_types: every layer must be");
  refused({{"quantization_config", json::object()}}, "quantization_config: is given: quantised weights");
  refused({{"partial_rotary_factor", 0.5}}, "partial_rotary_factor: expected 1.0, found 0.5");
  refused({{"architectures", {"Qwen2ForCausalLM"}}},
          "architectures: expected [\"LlamaForCausalLM\"] for model_type \"llama\", found [\"Qwen2ForCausalLM\"]");
  refused({{"rope_scaling", 3}}, "rope_scaling: expected an object, found 3");
  refused({{"rope_scaling", {{"type", "linear"}, {"factor", 2.0}}}},
          "rope_scaling: rope_type: 'linear' is not implemented; there is: default, llama3");
  refused({{"rope_scaling", {{"type", "linear"}, {"rope_type", "default"}}}},
          "rope_scaling: type: 'linear' contradicts rope_type 'default'");
  old_form["rope_scaling"]["low_freq_factor"] = 4;
  refused(old_form, "rope_scaling: low_freq_factor: 4 is not below high_freq_factor 4");
  old_form["rope_scaling"]["original_max_position_embeddings"] = 64;
  refused(old_form, "rope_scaling: original_max_position_embeddings: 64 is above max_position_embeddings 32");
  old_form["rope_scaling"].erase("factor");
  refused(old_form, "rope_scaling: factor: is missing");
  new_form["rope_theta"] = 10000.0;
  refused(new_form, "rope_theta: 10000 contradicts 500000 in rope_parameters");
  new_form["rope_scaling"] = scaling;
  refused(new_form, "rope_scaling: is given: rope_parameters says the same; keep one");
}

TEST_CASE("weights of Llama and Qwen2 that do not fit the config are refused") {
  const auto refused = [&](const std::string& name, const std::function<void(ModelConfig&)>& change,
                           const std::string& reason) {
    CpuBackend backend;
    Checkpoint checkpoint = open_checkpoint(std::filesystem::path(CSDSIM_SOURCE_DIR) / "tests/data/golden" / name);
    change(checkpoint.config);
    CHECK_THAT(user_error([&] { make_decoder(checkpoint.config, *checkpoint.weights, backend); }), Contains(reason));
  };
  refused(
      "llama", [](ModelConfig& c) { c.kv_heads = 4; },
      "'model.layers.0.self_attn.k_proj.weight' has shape [32, 32], config.json implies [64, 32]");
  refused(
      "llama", [](ModelConfig& c) { c.layers = 3; }, "'model.layers.2.input_layernorm.weight' is missing");
  refused(
      "llama", [](ModelConfig& c) { c.architecture = Architecture::qwen2; },
      "'model.layers.0.self_attn.q_proj.bias' is missing");
  refused(
      "llama3", [](ModelConfig& c) { c.tied_embeddings = false; }, "'lm_head.weight' is missing");
  refused(
      "llama3", [](ModelConfig& c) { c.architecture = Architecture::opt; }, "'decoder.embed_tokens.weight' is missing");
  refused(
      "qwen2", [](ModelConfig& c) { c.vocab = 513; }, "'model.embed_tokens.weight' has shape [512, 64]");
}

TEST_CASE("weights that do not fit the config are refused, untied and unprefixed ones are found") {
  const TemporaryDirectory directory;
  const auto refused = [&](const json& config, const Tensors& weights, const std::string& reason) {
    write_checkpoint(directory.path(), config, weights, "F32");
    CHECK_THAT(user_error([&] { logits_of(directory.path()); }), Contains("model.safetensors: ") && Contains(reason));
  };
  json config = tiny_config();
  config["ffn_dim"] = 41;
  refused(config, tiny_weights(2),
          "'model.decoder.layers.0.fc1.weight' has shape [40, 24], config.json implies [41, 24]");
  Tensors weights = tiny_weights(2);
  weights.erase("model.decoder.layers.1.self_attn.k_proj.bias");
  refused(tiny_config(), weights, "'model.decoder.layers.1.self_attn.k_proj.bias' is missing");
  config = tiny_config();
  config["tie_word_embeddings"] = false;
  refused(config, tiny_weights(2), "'lm_head.weight' is missing");

  write_checkpoint(directory.path(), tiny_config(), tiny_weights(2), "F32");
  const auto tied = logits_of(directory.path());
  write_checkpoint(directory.path(), tiny_config(), tiny_weights(2, "decoder."), "F32");
  CHECK(logits_of(directory.path()) == tied);
  weights = tiny_weights(2);
  weights["lm_head.weight"] = weights["model.decoder.embed_tokens.weight"];
  for (float& value : weights["lm_head.weight"].values) value *= 2;
  write_checkpoint(directory.path(), config, weights, "F32");
  const auto untied = logits_of(directory.path());
  for (std::size_t i = 0; i < tied.size(); ++i) REQUIRE(untied[i] == 2 * tied[i]);
}

TEST_CASE("F32, F16 and BF16 weights of equal value give equal logits") {
  const TemporaryDirectory directory;
  write_checkpoint(directory.path(), tiny_config(), tiny_weights(3), "F32");
  const auto expected = logits_of(directory.path());
  for (const char* dtype : {"F16", "BF16"}) {
    write_checkpoint(directory.path(), tiny_config(), tiny_weights(3), dtype);
    const auto found = logits_of(directory.path());
    for (std::size_t i = 0; i < expected.size(); ++i) REQUIRE(found[i] == Approx(expected[i]).margin(1e-3));
  }
}

TEST_CASE("tokenizer: missing, broken, too large for the model, id out of range") {
  const TemporaryDirectory directory;
  const ModelConfig config = read_config(kOpt6m / "config.json");
  const auto path = directory / "tokenizer.model";
  CHECK_THAT(user_error([&] { open_tokenizer(directory.path(), config); }),
             Contains(directory.path().string()) && Contains("there is no tokenizer"));
  write_file(path, "");
  CHECK_THAT(user_error([&] { open_tokenizer(directory.path(), config); }),
             Contains(path.string()) && Contains("not a valid sentencepiece model"));
  write_file(path, "this is not a tokenizer");
  CHECK_THAT(user_error([&] { open_tokenizer(directory.path(), config); }),
             Contains(path.string()) && Contains("not a valid sentencepiece model"));
  std::ifstream good(kOpt6m / "tokenizer.model", std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(good), {});
  write_file(path, bytes.substr(0, bytes.size() / 2));
  CHECK_THAT(user_error([&] { open_tokenizer(directory.path(), config); }),
             Contains(path.string()) && Contains("not a valid sentencepiece model"));
  write_file(path, bytes);
  CHECK(open_tokenizer(directory.path(), config).vocabulary() == 4096);
  ModelConfig small = config;
  small.vocab = 1000;
  CHECK_THAT(user_error([&] { open_tokenizer(directory.path(), small); }),
             Contains("4096 tokens, but vocab_size of config.json is 1000"));
  const TokenId outside{4096};
  CHECK_THAT(user_error([&] {
               open_tokenizer(directory.path(), config).decode({&outside, 1});
             }),
             Contains("token id 4096 is outside the tokenizer's vocabulary of 4096"));
}
