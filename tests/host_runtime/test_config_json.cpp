#include <fmt/format.h>
#include <fmt/ranges.h>

#include <catch2/catch.hpp>
#include <cmath>

#include "base/error.h"
#include "host_runtime/checkpoint/checkpoint.h"
#include "host_runtime/checkpoint/config_json.h"
#include "host_runtime/core/decoder/rotary.h"
#include "tests/host_runtime/opt_6m.h"
#include "tests/host_runtime/tiny_checkpoint.h"

namespace test_config_json {

using namespace csdsim;
using namespace csdsim::host;
using namespace csdsim::test;
using Catch::Matchers::Contains;
using nlohmann::json;

namespace {

/// config.json of a small Llama, and what becomes of it with some fields replaced, or taken out where null.
class LlamaConfig {
 public:
  ModelConfig read(const json& patch) const {
    json config = tiny_llama_config();
    config.merge_patch(patch);
    write_file(path_, config.dump());
    return read_config(path_);
  }
  /// The same, where null stays in the file.
  ModelConfig read_with_nulls(const json& fields) const {
    json config = tiny_llama_config();
    config.update(fields);
    write_file(path_, config.dump());
    return read_config(path_);
  }
  /// The notes about a config, joined.
  std::string notes(const json& patch) const {
    read(patch);
    std::vector<std::string> notes;
    read_config(path_, &notes);
    return fmt::format("{}", fmt::join(notes, "\n"));
  }
  void refused(const json& patch, const std::string& reason) const {
    INFO(patch.dump());
    CHECK_THAT(user_error([&] { read(patch); }), Contains(path_.string() + ": " + reason));
  }

 private:
  TemporaryDirectory directory_;
  std::filesystem::path path_ = directory_ / "config.json";
};

/// The parameters of Llama 3.1's rotation, and the two forms in which config.json gives them.
struct RotaryForms {
  json scaling{
      {"factor", 8.0}, {"low_freq_factor", 1.0}, {"high_freq_factor", 4.0}, {"original_max_position_embeddings", 16}};
  json old_form = {{"rope_theta", 500000.0}, {"rope_scaling", scaling}};
  json new_form = {{"rope_parameters", scaling}};

  RotaryForms() {
    old_form["rope_scaling"]["rope_type"] = "llama3";
    new_form["rope_parameters"]["rope_type"] = "llama3";
    new_form["rope_parameters"]["rope_theta"] = 500000.0;
  }
};

}  // namespace

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
  refused("model_type", absent, "known architectures: opt, llama, qwen2, mistral, qwen3");
  refused("model_type", "mamba",
          "unknown architecture \"mamba\"; known architectures: opt, llama, qwen2, mistral, qwen3");
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
  const LlamaConfig llama;
  const ModelConfig plain = llama.read(json::object());
  CHECK(plain.architecture == Architecture::llama);
  CHECK(plain.kv_heads == 2);
  CHECK(plain.group_size() == 2);
  CHECK(plain.head_dim == 6);
  CHECK(plain.ffn == 40);
  CHECK(plain.norm_epsilon == 1e-5f);
  CHECK_FALSE(plain.tied_embeddings);
  CHECK(plain.rotary.theta == 10000.0f);
  CHECK(std::holds_alternative<std::monostate>(plain.rotary.scaling));
  // What Llama 1 leaves out.
  const ModelConfig first = llama.read({{"num_key_value_heads", nullptr}, {"rms_norm_eps", nullptr}});
  CHECK(first.kv_heads == 4);
  CHECK(first.norm_epsilon == 1e-6f);
  CHECK(llama.read({{"head_dim", 16}}).q_width() == 64);
  CHECK(llama.read({{"model_type", "qwen2"}, {"tie_word_embeddings", true}, {"use_sliding_window", false}})
            .tied_embeddings);

  const RotaryForms forms;
  for (const json& form : {forms.old_form, forms.new_form}) {
    const ModelConfig config = llama.read(form);
    CHECK(config.rotary.theta == 500000.0f);
    const auto* const scaling = std::get_if<Llama3RopeScaling>(&config.rotary.scaling);
    REQUIRE(scaling != nullptr);
    CHECK(scaling->factor == 8.0f);
    CHECK(scaling->low_frequency_factor == 1.0f);
    CHECK(scaling->high_frequency_factor == 4.0f);
    CHECK(scaling->original_positions == 16);
  }
}

TEST_CASE("config.json of Mistral and Qwen3, and the scalings of positions") {
  const LlamaConfig llama;
  const json mistral = {{"model_type", "mistral"}, {"max_position_embeddings", 32768}};
  const auto window = [&](const json& value) {
    json patch = mistral;
    patch["sliding_window"] = value;
    return llama.read(patch);
  };
  CHECK(window(100).longest_context() == 100);
  CHECK(window(40000).longest_context() == 32768);
  CHECK(llama.read(mistral).longest_context() == 4096);  // the default of transformers
  const TemporaryDirectory directory;
  json without = tiny_llama_config();
  without.merge_patch(mistral);
  without["sliding_window"] = nullptr;
  write_file(directory / "config.json", without.dump());
  CHECK(read_config(directory / "config.json").longest_context() == 32768);

  const ModelConfig qwen3 = llama.read({{"model_type", "qwen3"}, {"head_dim", 16}});
  CHECK(qwen3.head_norms());
  CHECK_FALSE(qwen3.qkv_biases());
  const ModelConfig biased = llama.read({{"attention_bias", true}, {"mlp_bias", true}});
  CHECK((biased.qkv_biases() && biased.attention_biases && biased.ffn_biases));

  const ModelConfig linear = llama.read({{"rope_scaling", {{"type", "linear"}, {"factor", 2.5}}}});
  CHECK(std::get<LinearRopeScaling>(linear.rotary.scaling).factor == 2.5f);
  CHECK(linear.rotary.magnitude() == 1);
  json yarn = {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 16}};
  const auto magnitude = [&] { return llama.read({{"rope_scaling", yarn}}).rotary.magnitude(); };
  CHECK(magnitude() == Approx(0.1 * std::log(4.0) + 1));
  yarn["mscale"] = 2.0;
  yarn["mscale_all_dim"] = 0.5;
  CHECK(magnitude() == Approx((0.2 * std::log(4.0) + 1) / (0.05 * std::log(4.0) + 1)));
  yarn["attention_factor"] = 1.25;
  CHECK(magnitude() == 1.25f);
}

TEST_CASE("config.json: contexts stay inside a sliding window where a layer has one, as in transformers") {
  const LlamaConfig llama;
  const auto longest = [&](const std::string& family, json fields) {
    fields["model_type"] = family;
    return llama.read_with_nulls(fields).longest_context();
  };
  const json full = {"full_attention", "full_attention"}, mixed = {"full_attention", "sliding_attention"};
  CHECK(longest("llama", {{"sliding_window", 16}}) == 16);
  CHECK(longest("llama", {{"sliding_window", 16}, {"layer_types", full}}) == 32);
  CHECK(longest("llama", {{"sliding_window", nullptr}}) == 32);
  CHECK(longest("mistral", {{"sliding_window", 16}, {"layer_types", mixed}}) == 16);
  CHECK(longest("mistral", {{"sliding_window", 16}, {"layer_types", full}}) == 32);
  for (const char* const family : {"qwen2", "qwen3"}) {
    const json used = {{"use_sliding_window", true}, {"sliding_window", 16}};
    const auto with = [&](const char* field, const json& value) {
      json fields = used;
      fields[field] = value;
      return longest(family, fields);
    };
    CHECK(longest(family, {{"sliding_window", 16}, {"max_window_layers", 0}}) == 32);  // not used
    CHECK(longest(family, used) == 32);                                                // windows begin with layer 28
    CHECK(with("max_window_layers", 2) == 32);
    CHECK(with("max_window_layers", 1) == 16);
    CHECK(with("max_window_layers", 0) == 16);
    CHECK(with("layer_types", mixed) == 16);
    CHECK(with("layer_types", full) == 32);
    CHECK(with("sliding_window", nullptr) == 32);
    CHECK(longest(family,
                  {{"use_sliding_window", true}, {"max_window_layers", 0}, {"max_position_embeddings", 9000}}) == 4096);
  }
}

TEST_CASE("config.json: keys of published models that change nothing") {
  const LlamaConfig llama;
  const auto accepted = [&](const json& patch) { CHECK(llama.read(patch).longest_context() == 32); };
  accepted({{"max_sequence_length", 2048}});                                              // Llama 1, Vicuna
  accepted({{"is_llama_config", true}, {"rope_interleaved", false}});                     // SmolLM 2
  accepted({{"activation", "swiglu"}});                                                   // Falcon 3
  accepted({{"model_type", "qwen2"}, {"use_mrope", false}, {"sliding_window", 131072}});  // Qwen 2.5
  accepted({{"hidden_act", "swish"}});
}

TEST_CASE("config.json: rotary positions in all nestings, with transformers' defaults") {
  const LlamaConfig llama;
  for (const char* const field : {"rope_scaling", "rope_parameters"}) {
    CHECK(llama.read({{field, {{"rope_type", "default"}, {"rope_theta", 5e5}}}}).rotary.theta == 5e5f);
    CHECK(llama.read({{"rope_theta", 5e5}, {field, json::object()}}).rotary.theta == 5e5f);
    CHECK(llama.read({{field, {{"full_attention", {{"rope_type", "linear"}, {"factor", 2.0}, {"rope_theta", 5e5}}}}}})
              .rotary.theta == 5e5f);
  }
  llama.refused({{"rope_parameters", {{"full_attention", {{"rope_theta", 5e5}}}, {"rope_theta", 1e4}}}},
                "rope_parameters: rope_theta: is no kind of layer");
  llama.refused(
      {{"rope_parameters", {{"full_attention", {{"rope_theta", 5e5}}}, {"sliding_attention", {{"rope_theta", 1e4}}}}}},
      "rope_parameters: sliding_attention: differs from full_attention");

  // Absent, null or 0: 32 positions of the config, and YaRN's own numbers.
  for (const json& nothing : {json(nullptr), json(0)}) {
    const json yarn = {{"rope_type", "yarn"},  {"factor", 4.0},     {"beta_fast", nothing},
                       {"beta_slow", nothing}, {"mscale", nothing}, {"mscale_all_dim", nothing}};
    const ModelConfig config = llama.read_with_nulls({{"rope_scaling", yarn}, {"head_dim", nothing}});
    const auto& scaling = std::get<YarnRopeScaling>(config.rotary.scaling);
    CHECK(scaling.original_positions == 32);
    CHECK(scaling.beta_fast == 32);
    CHECK(scaling.beta_slow == 1);
    CHECK(config.head_dim == 6);
    CHECK(config.max_positions == 128);
    CHECK(scaling.truncate);
  }
  // transformers takes the key with get("truncate", True): null is false.
  const json whole = {{"rope_type", "yarn"}, {"factor", 4.0}, {"truncate", nullptr}};
  CHECK_FALSE(std::get<YarnRopeScaling>(llama.read_with_nulls({{"rope_scaling", whole}}).rotary.scaling).truncate);
  const ModelConfig top = llama.read(
      {{"original_max_position_embeddings", 16}, {"rope_scaling", {{"rope_type", "yarn"}, {"factor", 4.0}}}});
  CHECK(std::get<YarnRopeScaling>(top.rotary.scaling).original_positions == 16);
  CHECK(top.max_positions == 64);
  CHECK(llama.read({{"rope_scaling", {{"type", "linear"}, {"factor", 2.5}}}}).max_positions == 80);
  const ModelConfig dynamic = llama.read({{"rope_scaling", {{"type", "dynamic"}, {"factor", 2.5}}}});
  CHECK(dynamic.max_positions == 80);
  CHECK(std::get<DynamicRopeScaling>(dynamic.rotary.scaling).original_positions == 32);
  CHECK_FALSE(dynamic.rotary.changes_at(32));
  CHECK(dynamic.rotary.changes_at(33));
  CHECK(inverse_frequencies(dynamic.rotary, 6, 32) == inverse_frequencies(RotaryPositions{}, 6));
  // base * ((2.5 * 64 / 32) - 1.5)^(6 / 4)
  const double base = 10000 * std::pow(3.5, 1.5);
  CHECK(inverse_frequencies(dynamic.rotary, 6, 64)[1] == Approx(std::pow(base, -1.0 / 3)));
}

TEST_CASE("config.json: the context limit follows the scaling, and a note says so") {
  const LlamaConfig llama;
  const auto note = [&](const json& patch) { return llama.notes(patch); };
  const std::string to80 = "note: max_position_embeddings is 32; with the ", is80 = "the longest context is 80";
  for (const char* const type : {"linear", "dynamic", "yarn"})
    CHECK_THAT(note({{"rope_scaling", {{"rope_type", type}, {"factor", 2.5}}}}),
               Contains(to80 + type) && Contains(is80));
  json llama3 = {{"rope_type", "llama3"}, {"factor", 2.5}, {"low_freq_factor", 1.0}, {"high_freq_factor", 4.0}};
  CHECK_THAT(note({{"rope_scaling", llama3}}), Contains(to80 + "llama3") && Contains(is80));
  llama3["original_max_position_embeddings"] = 8;  // max_position_embeddings states the longer context
  CHECK(note({{"rope_scaling", llama3}}).empty());
  CHECK(llama.read({{"rope_scaling", llama3}}).max_positions == 32);
  // Somebody has lowered max_position_embeddings below the positions of the training.
  llama3["original_max_position_embeddings"] = 64;
  CHECK(llama.read({{"rope_scaling", llama3}}).max_positions == 32);
  CHECK_THAT(note({{"rope_scaling", llama3}}),
             Contains("original_max_position_embeddings 64 is above max_position_embeddings 32"));
  const json yarn = {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 64}};
  const ModelConfig above = llama.read({{"rope_scaling", yarn}});
  CHECK(above.max_positions == 256);
  CHECK(std::get<YarnRopeScaling>(above.rotary.scaling).original_positions == 64);
  CHECK_THAT(note({{"rope_parameters", {{"full_attention", {{"rope_theta", 5e5}}}}}}),
             Contains("rope_parameters: full_attention is read; for this family transformers 5.24 reads no map"));
}

TEST_CASE("config.json of Llama and Qwen2: what is refused") {
  const LlamaConfig llama;
  for (const char* field : {"hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
                            "vocab_size", "max_position_embeddings"}) {
    llama.refused({{field, nullptr}}, std::string(field) + ": is missing");
  }
  llama.refused({{"num_key_value_heads", 3}}, "num_key_value_heads: 3 do not divide num_attention_heads 4");
  llama.refused({{"num_key_value_heads", 8}}, "num_key_value_heads: 8 do not divide num_attention_heads 4");
  llama.refused({{"head_dim", 7}}, "head_dim: a head of 7 elements cannot be rotated: it must be even");
  llama.refused({{"hidden_size", 20}}, "hidden_size: a head of 5 elements cannot be rotated");
  llama.refused({{"hidden_size", 25}}, "hidden_size: 25 is not a multiple of num_attention_heads 4");
  llama.refused({{"head_dim", 1 << 23}}, "num_attention_heads: 4 heads of 8388608 are more than 16777216 elements");
  llama.refused({{"rms_norm_eps", 0}}, "rms_norm_eps: expected a number above 0 and at most 1, found 0");
  llama.refused({{"rms_norm_eps", "1e-5"}}, "rms_norm_eps: expected a number");
  llama.refused({{"rope_theta", -1.0}}, "rope_theta: expected a number above 0");
  llama.refused({{"rope_theta", 1e300}}, "rope_theta: expected a number above 0");
  llama.refused({{"hidden_act", "gelu"}}, "hidden_act: expected \"silu\", found \"gelu\"");
  llama.refused({{"attention_bias", 1}}, "attention_bias: expected true or false, found 1");
  llama.refused({{"mlp_bias", "no"}}, "mlp_bias: expected true or false, found \"no\"");
  for (const char* family : {"qwen2", "mistral", "qwen3"})
    llama.refused({{"model_type", family}, {"attention_bias", true}}, "attention_bias: expected false, found true");
  llama.refused({{"model_type", "mistral"}, {"sliding_window", 0}}, "sliding_window: expected an integer from 1");
  llama.refused({{"use_sliding_window", true}}, "use_sliding_window: expected false");
  llama.refused({{"layer_types", {"full_attention", "chunked_attention"}}}, "layer_types: every layer must be");
  llama.refused({{"layer_types", {"full_attention", "sliding_attention"}}},
                "layer_types: 'sliding_attention' needs sliding_window");
  llama.refused({{"model_type", "qwen2"}, {"layer_types", {"sliding_attention", "sliding_attention"}}},
                "layer_types: 'sliding_attention' needs sliding_window");
  llama.refused({{"layer_types", {"full_attention"}}}, "layer_types: has 1 layers, num_hidden_layers is 2");
  llama.refused({{"sliding_window", 0}}, "sliding_window: expected an integer from 1");
  llama.refused({{"model_type", "qwen2"}, {"use_sliding_window", true}, {"max_window_layers", -1}},
                "max_window_layers: expected an integer from 0");
  llama.refused({{"model_type", "qwen2"}, {"use_mrope", true}}, "use_mrope: expected false");
  llama.refused({{"rope_interleaved", true}}, "rope_interleaved: expected false");
  llama.refused({{"quantization_config", json::object()}}, "quantization_config: is given: quantised weights");
  llama.refused({{"quantization", {{"bits", 4}}}}, "quantization: is given: quantised weights (MLX)");
  llama.refused({{"pruned_heads", {{"0", {1}}}}}, "pruned_heads: expected {}");
  llama.refused({{"hidden_size", 8}, {"rope_scaling", {{"type", "dynamic"}, {"factor", 2.0}}}},
                "rope_scaling: rope_type: 'dynamic' needs heads of more than 2 elements");
  llama.refused({{"partial_rotary_factor", 0.5}}, "partial_rotary_factor: expected 1.0, found 0.5");
  llama.refused(
      {{"architectures", {"Qwen2ForCausalLM"}}},
      "architectures: expected [\"LlamaForCausalLM\"] for model_type \"llama\", found [\"Qwen2ForCausalLM\"]");
  llama.refused({{"rope_scaling", 3}}, "rope_scaling: expected an object, found 3");
  llama.refused({{"rope_scaling", {{"type", "su"}}}},
                "rope_scaling: rope_type: 'su' is not implemented; there is: default, linear, dynamic, llama3, yarn");
  llama.refused({{"rope_scaling", {{"type", "linear"}, {"factor", 2.0}, {"faktor", 2.0}}}},
                "rope_scaling: faktor: rope_type 'linear' does not read this key (did you mean factor?)");
  llama.refused({{"rope_scaling", {{"type", "linear"}, {"factor", 2.0}, {"beta_fast", 2.0}}}},
                "rope_scaling: beta_fast: rope_type 'linear' does not read this key");
  llama.refused({{"rope_tetha", 5.0}}, "rope_tetha: csdsim does not read this key (did you mean rope_theta?)");
  llama.refused({{"rope_scaling", {{"type", "linear"}}}}, "rope_scaling: factor: is missing");
  const json yarn = {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 16}};
  const auto with = [&](const char* field, const json& value) {
    json changed = yarn;
    changed[field] = value;
    return json{{"rope_scaling", changed}};
  };
  llama.refused(with("beta_slow", 40), "rope_scaling: beta_slow: 40 is above beta_fast 32");
  llama.refused(with("attention_factor", 0), "rope_scaling: attention_factor: expected a number above 0");
  llama.refused(with("truncate", 1), "rope_scaling: truncate: expected true or false, found 1");
  llama.refused({{"rope_scaling", {{"type", "linear"}, {"rope_type", "default"}}}},
                "rope_scaling: type: 'linear' contradicts rope_type 'default'");
  RotaryForms forms;
  forms.old_form["rope_scaling"]["low_freq_factor"] = 4;
  llama.refused(forms.old_form, "rope_scaling: low_freq_factor: 4 is not below high_freq_factor 4");
  forms.old_form["rope_scaling"].erase("factor");
  llama.refused(forms.old_form, "rope_scaling: factor: is missing");
  forms.new_form["rope_theta"] = 10000.0;
  llama.refused(forms.new_form, "rope_theta: 10000 contradicts 500000 in rope_parameters");
  forms.new_form["rope_scaling"] = forms.scaling;
  llama.refused(forms.new_form, "rope_scaling: is given, and differs from rope_parameters; keep one");
}

}  // namespace test_config_json
