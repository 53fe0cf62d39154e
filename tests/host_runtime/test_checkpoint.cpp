#include <catch2/catch.hpp>
#include <cstring>
#include <functional>

#include "base/error.h"
#include "host_runtime/checkpoint/checkpoint.h"
#include "host_runtime/checkpoint/config_json.h"
#include "host_runtime/checkpoint/safetensors.h"
#include "host_runtime/checkpoint/safetensors_writer.h"
#include "host_runtime/core/decoder/generation.h"
#include "host_runtime/cpu/cpu_backend.h"
#include "tests/host_runtime/opt_6m.h"
#include "tests/host_runtime/tiny_checkpoint.h"

namespace test_checkpoint {

using namespace csdsim;
using namespace csdsim::host;
using namespace csdsim::test;
using Catch::Matchers::Contains;
using nlohmann::json;

namespace {

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
      {"unknown key", safetensors_bytes(one(R"("dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1)"), eight),
       "tensor 'w': 'x' is no key of a tensor"},
      {"metadata that is no text", safetensors_bytes(R"({"__metadata__":{"format":1}})", ""),
       "__metadata__: expected a map of texts"},
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
  refused({{"metadata", {{"total_size", 1}}}}, "'weight_map' is missing");
  broken = index;
  broken["metadata"]["totl_size"] = 1;
  refused(broken, "metadata: totl_size: csdsim does not read this key");
  broken = index;
  broken["weights_map"] = json::object();
  refused(broken, "weights_map: csdsim does not read this key (did you mean weight_map?)");
  write_file(split / "part-2.safetensors", encode_safetensors(parts[1], "F32").substr(0, 3000));
  write_file(path, index.dump());
  CHECK_THAT(user_error([&] { ShardedSafetensors{path}; }), Contains("part-2.safetensors") && Contains("truncated"));
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

TEST_CASE("a projection that differs from tied embeddings, and tensors without a place, are refused") {
  const TemporaryDirectory directory;
  const auto error_with = [&](const std::function<void(Tensors&)>& change) {
    Tensors weights = tiny_weights(2);
    change(weights);
    write_checkpoint(directory.path(), tiny_config(), weights, "F16");
    return user_error([&] { logits_of(directory.path()); });
  };
  const std::string table = "model.decoder.embed_tokens.weight";
  CHECK(error_with([&](Tensors& t) { t["lm_head.weight"] = t[table]; }) == "no UserError");
  CHECK_THAT(error_with([&](Tensors& t) {
               t["lm_head.weight"] = t[table];
               t["lm_head.weight"].values.back() += 1;
             }),
             Contains("model.safetensors: tensor 'lm_head.weight' differs from '" + table + "'") &&
                 Contains("tie_word_embeddings"));
  const auto add = [](Tensors& t, const std::string& name) { t[name] = {{2}, {1, 2}}; };
  CHECK_THAT(error_with([&](Tensors& t) {
               add(t, "model.decoder.layers.1.self_attn.q_norm.weight");
               add(t, "model.decoder.layers.2.fc1.weight");
             }),
             Contains("tensor 'model.decoder.layers.1.self_attn.q_norm.weight' (the first of 2) has no place"));
  CHECK(error_with([&](Tensors& t) { add(t, "model.layers.0.self_attn.rotary_emb.inv_freq"); }) == "no UserError");
  // A family that would leave out what another one needs.
  for (const auto& [name, family] : {std::pair{"qwen3", "llama"}, {"qwen2", "llama"}, {"biased", "mistral"}}) {
    CpuBackend backend;
    Checkpoint checkpoint = open_checkpoint(std::filesystem::path(CSDSIM_SOURCE_DIR) / "tests/data/golden" / name);
    checkpoint.config.architecture = family == std::string("llama") ? Architecture::llama : Architecture::mistral;
    checkpoint.config.attention_biases = checkpoint.config.ffn_biases = false;
    CHECK_THAT(user_error([&] { make_decoder(checkpoint.config, *checkpoint.weights, backend); }),
               Contains("has no place in the model that config.json describes"));
  }
}

TEST_CASE("a context beyond the sliding window is refused, and end tokens are those of the checkpoint") {
  const std::filesystem::path mistral = std::filesystem::path(CSDSIM_SOURCE_DIR) / "tests/data/golden/mistral";
  CpuBackend backend;
  Checkpoint checkpoint = open_checkpoint(mistral);
  checkpoint.config.sliding_window = 8;
  const auto decoder = make_decoder(checkpoint.config, *checkpoint.weights, backend);
  const auto generate = [&](std::uint32_t tokens) {
    return generate_on_host(*decoder, std::make_unique<DenseAttention>(), {{TokenId{1}, TokenId{2}}},
                            {.max_new_tokens = tokens, .sampling = {}, .stop = {}});
  };
  CHECK(generate(7).front().size() == 7);
  CHECK_THAT(user_error([&] { generate(8); }), Contains("8 positions"));
  const std::vector<TokenId> nine(9, TokenId{3});
  std::vector<TokenIndex> positions;
  for (std::uint32_t i = 0; i < 9; ++i) positions.push_back(TokenIndex{i});
  CHECK_THAT(user_error([&] { decoder->embed(nine, positions); }), Contains("sliding window"));

  const TemporaryDirectory directory;
  const auto ends = [&](const std::string& config, const std::string& generation) {
    write_file(directory / "config.json", config);
    if (!generation.empty()) write_file(directory / "generation_config.json", generation);
    return end_tokens(directory.path());
  };
  CHECK(ends("{}", "").empty());
  CHECK(ends(R"({"eos_token_id": 2})", "") == std::vector<TokenId>{TokenId{2}});
  CHECK(ends(R"({"eos_token_id": 2})", R"({"eos_token_id": [5, 6]})") == std::vector<TokenId>{TokenId{5}, TokenId{6}});
  CHECK_THAT(user_error([&] { ends("{}", R"({"eos_token_id": "x"})"); }),
             Contains("generation_config.json: eos_token_id: expected a token id or a list of them, found \"x\""));
  CHECK(ends("{}", R"({"temperature": 0.6, "do_sample": true, "top_p": 0.9})").empty());
  CHECK_THAT(user_error([&] { ends("{}", R"({"eos_token": 2})"); }),
             Contains("generation_config.json: eos_token: csdsim does not read this key (did you mean eos_token_id?)"));
}

TEST_CASE("tensors that are written are read back, and released pages are read again") {
  const TemporaryDirectory directory;
  std::vector<float> first(3000), second{1, -2};
  for (std::size_t i = 0; i < first.size(); ++i) first[i] = static_cast<float>(i);
  write_safetensors(directory / "x.safetensors", {{"b", {30, 100}, first}, {"a", {2}, second}});
  const SafetensorsFile file(directory / "x.safetensors");
  CHECK(file.names() == std::vector<std::string>{"a", "b"});
  for (int round = 0; round < 2; ++round) {
    const StoredTensor b = file.tensor("b"), a = file.tensor("a");
    CHECK(b.shape == std::vector<std::uint64_t>{30, 100});
    CHECK(std::memcmp(b.bytes.data(), first.data(), b.bytes.size()) == 0);
    CHECK(std::memcmp(a.bytes.data(), second.data(), a.bytes.size()) == 0);
    file.release("b");
  }
  CHECK_THAT(user_error([&] { write_safetensors(directory / "none/x", {}); }), Contains("cannot be written"));
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

TEST_CASE("tokenizer: missing, broken, id out of range") {
  const TemporaryDirectory directory;
  const auto path = directory / "tokenizer.model";
  CHECK_THAT(user_error([&] { open_tokenizer(directory.path()); }),
             Contains(directory.path().string()) && Contains("there is no tokenizer"));
  write_file(path, "aGVsbG8= 0\r\nd29ybGQ= 1\r\n");
  CHECK_THAT(user_error([&] { open_tokenizer(directory.path()); }),
             Contains(path.string() + ": is a tokenizer of tiktoken, which csdsim does not read"));
  std::filesystem::remove(path);
  for (const char* const name : {"qwen.tiktoken", "tekken.json", "spiece.model", "tokenizer.model.v3"}) {
    write_file(directory / name, "x");
    CHECK_THAT(user_error([&] { open_tokenizer(directory.path()); }),
               Contains((directory / name).string() + ": is a tokenizer in another form, which csdsim does not read"));
    std::filesystem::remove(directory / name);
  }
  const std::string neither = path.string() + ": neither a sentencepiece model nor a vocabulary of tiktoken";
  for (const auto& [bytes, remark] : {std::pair("", ": the file is empty"),
                                      {"<!DOCTYPE html><html>", ": it is a page of a web site"},
                                      {"this is not a tokenizer", ""}}) {
    write_file(path, bytes);
    CHECK(user_error([&] { open_tokenizer(directory.path()); }) == neither + remark);
  }
  std::ifstream good(kOpt6m / "tokenizer.model", std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(good), {});
  write_file(path, bytes.substr(0, bytes.size() / 2));
  CHECK_THAT(user_error([&] { open_tokenizer(directory.path()); }), Contains(neither));
  write_file(path, bytes);
  CHECK(open_tokenizer(directory.path()).vocabulary() == 4096);
  const TokenId outside{4096};
  CHECK_THAT(user_error([&] {
               open_tokenizer(directory.path()).decode({&outside, 1});
             }),
             Contains("token id 4096 is outside the tokenizer's vocabulary of 4096"));
}

TEST_CASE("a path that is no checkpoint says what it is") {
  const TemporaryDirectory directory;
  const auto says = [&](const std::filesystem::path& path, const std::string& what) {
    CHECK_THAT(user_error([&] { open_checkpoint(path); }), Contains(path.string() + ": " + what));
  };
  says(directory.path(), "is an empty folder");
  write_file(directory / "m-Q8_0.gguf", "GGUF");
  says(directory.path(), "has no config.json; m-Q8_0.gguf is a GGUF file, which csdsim does not read: take the model");
  says(directory / "m-Q8_0.gguf", "is a GGUF file");
  write_file(directory / "blob", "GGUF\x03");
  says(directory / "blob", "is a GGUF file");
  write_file(directory / "text", "GGU");
  says(directory / "text", "is a file, not a folder");
  write_file(directory / "adapter_config.json", "{}");
  says(directory.path(), "holds a LoRA adapter (adapter_config.json)");
  write_file(directory / "config.json", tiny_config().dump());
  says(directory.path(), "holds a LoRA adapter (adapter_config.json)");
  says(directory / "adapter_config.json", "is a file; give its folder, " + directory.path().string());
  std::filesystem::remove(directory / "adapter_config.json");
  says(directory.path(),
       "no weights: neither model.safetensors nor model.safetensors.index.json is there; m-Q8_0.gguf");
  for (const auto& [name, what] : {std::pair{"pytorch_model-00001-of-00002.bin", "a pickled checkpoint"},
                                   {"consolidated.00.pth", "a pickled checkpoint"},
                                   {"weights.npz", "weights of MLX"},
                                   {"model-00001-of-00002.safetensors", "safetensors under another name"}}) {
    const TemporaryDirectory other;
    write_file(other / name, "");
    says(other.path(), "has no config.json; " + std::string(name) + " is " + what);
    write_file(other / "config.json", tiny_config().dump());
    CHECK_THAT(user_error([&] { open_checkpoint(other.path()); }), Contains(std::string(name) + " is " + what));
  }
  for (const char* const adapter : {"adapter_model.safetensors", "adapter_model.bin"}) {
    const TemporaryDirectory other;
    write_file(other / adapter, "");
    says(other.path(), "holds a LoRA adapter (" + std::string(adapter) + ")");
  }
  for (const char* const weights : {"model.safetensors", "model.safetensors.index.json"}) {
    const TemporaryDirectory other;
    write_file(other / weights, "");
    says(other.path(), "has weights, but no config.json");
  }
  const TemporaryDirectory nothing;
  write_file(nothing / "README.md", "");
  says(nothing.path(), "has no config.json; csdsim reads a folder with config.json and safetensors");
  const TemporaryDirectory cache;
  std::filesystem::create_directories(cache / "snapshots/0a1b");
  write_file(cache / "snapshots/0a1b/config.json", "{}");
  says(cache.path(), "has no config.json; the checkpoint lies in " + (cache / "snapshots/0a1b").string());
  const TemporaryDirectory root;
  const auto snapshot = root / "hub/models--maker--model/snapshots/0a1b";
  std::filesystem::create_directories(snapshot);
  write_file(snapshot / "config.json", "{}");
  for (const char* const inside : {"", "hub", "hub/models--maker--model"})
    says(root.path() / inside, "has no config.json; the checkpoint lies in ");
  says(directory / "absent", "there is no such model directory");
  for (const std::string name :
       {"some-maker/some-model-7b", "some-maker/some-model-7b/", "https://huggingface.co/some-maker/some-model-7b",
        "hf.co/some-maker/some-model-7b", "hf://some-maker/some-model-7b",
        "https://huggingface.co/some-maker/some-model-7b/tree/main"})
    says(name,
         "there is no such folder; if it is the name of a model on a hub, download it first: hf download "
         "some-maker/some-model-7b ");
  says("gpt2", "there is no such folder; if it is the name of a model on a hub, download it first: hf download gpt2 ");
  write_file(directory / "X.GGUF", "");
  says(directory / "X.GGUF", "is a GGUF file");
  for (const char* const name : {"absent", "X.GGUF"})
    CHECK_THAT(user_error([&] { open_tokenizer(directory / name); }), Contains((directory / name).string() + ": "));
}

}  // namespace test_checkpoint
