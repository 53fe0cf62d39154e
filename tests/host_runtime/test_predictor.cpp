// Predictors of active neurons: the file, and the arithmetic against a plain one in double.
#include <catch2/catch.hpp>
#include <cmath>

#include "base/crc32.h"
#include "base/error.h"
#include "base/rng.h"
#include "host_runtime/checkpoint/predictor_file.h"
#include "host_runtime/checkpoint/safetensors.h"
#include "tests/host_runtime/opt_6m.h"
#include "tests/host_runtime/tiny_checkpoint.h"

namespace test_predictor {

using namespace csdsim;
using namespace csdsim::host;
using namespace csdsim::test;
using Catch::Matchers::Contains;

namespace {

constexpr std::uint64_t kWidth = 24, kFfn = 40, kRank = 5;

Tensors random_predictor(std::uint64_t seed) {
  Rng rng(seed, "predictor");
  Tensors tensors;
  const auto add = [&](const std::string& name, std::vector<std::uint64_t> shape) {
    std::size_t count = 1;
    for (const std::uint64_t extent : shape) count *= extent;
    std::vector<float> values(count);
    for (float& v : values) v = static_cast<float>(rng.unit() * 2 - 1);
    tensors[name] = {std::move(shape), std::move(values)};
  };
  for (const std::string layer : {"layers.0.", "layers.1."}) {
    add(layer + "down", {kRank, kWidth});
    add(layer + "up", {kFfn, kRank});
    add(layer + "bias", {kFfn});
  }
  return tensors;
}

using Metadata = std::map<std::string, std::string>;

/// A safetensors file with this metadata.
std::string predictor_bytes(const Tensors& tensors, const Metadata& metadata, const std::string& dtype = "F32") {
  const std::string plain = encode_safetensors(tensors, dtype);
  std::uint64_t length = 0;
  std::memcpy(&length, plain.data(), 8);
  nlohmann::json header = nlohmann::json::parse(plain.substr(8, length));
  header["__metadata__"] = metadata;
  return safetensors_bytes(header.dump(), plain.substr(8 + length));
}

/// A tiny checkpoint on disk and the metadata of its predictor.
struct Tiny {
  TemporaryDirectory directory;
  CpuBackend backend;
  Metadata metadata{{"format", "csdsim-neuron-predictor-1"}};

  explicit Tiny(const nlohmann::json& config = tiny_config()) {
    write_checkpoint(directory.path(), config, tiny_weights(3), "F32");
    const std::string weights = encode_safetensors(tiny_weights(3), "F32");
    metadata["checkpoint_bytes"] = std::to_string(weights.size());
    metadata["checkpoint_crc32"] = fmt::format("{:08x}", crc32(std::as_bytes(std::span(weights))));
  }
  std::filesystem::path file() const { return directory / "predictor.safetensors"; }
  Checkpoint checkpoint() const { return open_checkpoint(directory.path()); }
  std::shared_ptr<const LowRankWeights> open(const std::string& bytes, const ModelConfig& config) const {
    write_file(file(), bytes);
    return open_predictor(file(), directory.path(), config);
  }
  std::shared_ptr<const LowRankWeights> open(const std::string& bytes) const {
    return open(bytes, checkpoint().config);
  }
};

/// sigmoid(up (down x) + bias) of a neuron in double, with the first `rank` components.
double score(const Tensors& t, const std::string& layer, std::span<const float> x, std::size_t neuron,
             std::size_t rank) {
  double logit = t.at(layer + "bias").values[neuron];
  for (std::size_t r = 0; r < rank; ++r) {
    double inner = 0;
    for (std::size_t i = 0; i < kWidth; ++i) inner += double{t.at(layer + "down").values[r * kWidth + i]} * x[i];
    logit += inner * t.at(layer + "up").values[neuron * kRank + r];
  }
  return 1 / (1 + std::exp(-logit));
}

}  // namespace

TEST_CASE("a low-rank predictor names the neurons whose score is above the threshold, of any rank", "[neurons]") {
  const Tiny tiny;
  const Tensors tensors = random_predictor(5);
  const auto weights = tiny.open(predictor_bytes(tensors, tiny.metadata));
  CHECK(weights->rank == kRank);
  const Checkpoint checkpoint = tiny.checkpoint();
  CpuBackend backend;
  const auto decoder = make_decoder(checkpoint.config, *checkpoint.weights, backend);
  Rng rng(8, "inputs");
  std::vector<float> inputs(3 * kWidth);
  for (float& v : inputs) v = static_cast<float>(rng.unit() * 2 - 1);
  std::size_t predicted = 0;
  for (const std::uint32_t rank : {1u, 3u, 5u}) {
    for (const double threshold : {0.2, 0.5, 0.9}) {
      // The second layer has one of its own.
      const std::uint32_t other = 6 - rank;
      const LowRankPredictor predictor(*decoder, weights, threshold, {rank, other});
      for (const std::uint32_t layer : {0u, 1u}) {
        CAPTURE(rank, threshold, layer);
        const ActiveNeurons active = predictor.predict(LayerId{layer}, inputs);
        REQUIRE(active.size() == 3);
        for (std::size_t token = 0; token < 3; ++token) {
          std::vector<std::uint32_t> expected;
          for (std::uint32_t neuron = 0; neuron < kFfn; ++neuron) {
            const auto row = std::span(inputs).subspan(token * kWidth, kWidth);
            if (score(tensors, fmt::format("layers.{}.", layer), row, neuron, layer == 0 ? rank : other) > threshold)
              expected.push_back(neuron);
          }
          CHECK(active[token] == expected);
          predicted += expected.size();
        }
      }
    }
  }
  CHECK(predicted > 300);
  CHECK_THROWS_WITH(LowRankPredictor(*decoder, weights, 0.5, {5, 6}), Contains("rank 6") && Contains("1 to the 5"));
  CHECK_THROWS_WITH(LowRankPredictor(*decoder, weights, 0.5, {0}), Contains("rank 0"));
  CHECK_THROWS_WITH(LowRankPredictor(*decoder, weights, 0.5, {1, 2, 3}), Contains("3 ranks for 2 layers"));
  for (const double threshold : {0.0, 1.0, -0.5, 2.0, std::nan("")})
    CHECK_THROWS_WITH(LowRankPredictor(*decoder, weights, threshold, {5}), Contains("between 0 and 1"));
}

TEST_CASE("the oracle names exactly the neurons that fire", "[neurons]") {
  const Opt6m& model = opt_6m();
  const auto tokens = model.tokens(0, 6);
  std::vector<TokenIndex> positions;
  for (std::uint32_t i = 0; i < 6; ++i) positions.emplace_back(i);
  const HiddenStates hidden = model.decoder->embed(tokens, positions);
  const Tensor inputs = model.decoder->feed_forward_inputs(LayerId{2}, hidden);
  const std::vector<float> inner = model.decoder->to_host_float(model.decoder->neuron_activations(LayerId{2}, inputs));
  const ActiveNeurons active = OraclePredictor(*model.decoder).predict(LayerId{2}, inputs);
  REQUIRE(active.size() == 6);
  const std::uint32_t ffn = model.checkpoint.config.ffn;
  std::size_t firing = 0;
  for (std::uint32_t token = 0; token < 6; ++token) {
    std::vector<std::uint32_t> expected;
    for (std::uint32_t neuron = 0; neuron < ffn; ++neuron)
      if (inner[token * ffn + neuron] > 0) expected.push_back(neuron);
    CHECK(active[token] == expected);
    firing += expected.size();
  }
  CHECK(firing > 0);
  CHECK(firing < 6 * ffn / 2);
}

TEST_CASE("the digest of weights is that of the file, or of the shards one after another", "[neurons]") {
  const std::string weights = encode_safetensors(tiny_weights(3), "F32");
  const Tiny tiny;
  const WeightsDigest digest = weights_digest(tiny.directory.path());
  CHECK(digest == WeightsDigest{weights.size(), crc32(std::as_bytes(std::span(weights)))});

  // The tensors in two shards: the first in name order comes first.
  TemporaryDirectory sharded;
  Tensors first, second;
  nlohmann::json map;
  for (const auto& [name, tensor] : tiny_weights(3)) {
    const bool is_first = name.ends_with("bias");
    (is_first ? first : second)[name] = tensor;
    map[name] = is_first ? "a.safetensors" : "b.safetensors";
  }
  const std::string a = encode_safetensors(first, "F32"), b = encode_safetensors(second, "F32");
  write_file(sharded / "a.safetensors", a);
  write_file(sharded / "b.safetensors", b);
  write_file(sharded / "model.safetensors.index.json", nlohmann::json{{"weight_map", map}}.dump());
  const std::string both = a + b;
  CHECK(weights_digest(sharded.path()) == WeightsDigest{both.size(), crc32(std::as_bytes(std::span(both)))});

  const TemporaryDirectory empty;
  CHECK_THROWS_WITH(weights_digest(empty.path()), Contains("no weights"));
}

TEST_CASE("predictors of another checkpoint, FATReLU or shape, and broken files are refused by name", "[neurons]") {
  const Tiny tiny;
  const Tensors good = random_predictor(5);
  const auto message = [&](const Tensors& tensors, const Metadata& metadata) {
    return user_error([&] { (void)tiny.open(predictor_bytes(tensors, metadata)); });
  };
  CHECK(message(good, tiny.metadata) == "no UserError");
  CHECK(user_error([&] { (void)tiny.open(predictor_bytes(good, tiny.metadata, "F16")); }) == "no UserError");

  Metadata other = tiny.metadata;
  other["checkpoint_crc32"] = "01234567";
  CHECK_THAT(message(good, other), Contains("predictor.safetensors: this predictor belongs to another checkpoint") &&
                                       Contains("01234567") && Contains(tiny.metadata.at("checkpoint_crc32")));
  other = tiny.metadata;
  other["checkpoint_bytes"] = "17";
  CHECK_THAT(message(good, other), Contains("another checkpoint") && Contains("17 bytes"));
  for (const char* key : {"format", "checkpoint_bytes", "checkpoint_crc32"}) {
    Metadata less = tiny.metadata;
    less.erase(key);
    CHECK_THAT(message(good, less), Contains(fmt::format("'{}' is missing in its metadata", key)));
  }
  other = tiny.metadata;
  other["format"] = "pt";
  CHECK_THAT(message(good, other), Contains("format 'pt' is not csdsim-neuron-predictor-1"));
  other = tiny.metadata;
  other["fatrelu"] = "0.7";
  CHECK_THAT(message(good, other), Contains("trained with FATReLU 0.7, the run has no FATReLU"));
  other["fatrelu"] = "much";
  CHECK_THAT(message(good, other), Contains("'fatrelu' in its metadata") && Contains("much"));

  const auto with = [&](const std::string& name, std::vector<std::uint64_t> shape, float value = 0.5f) {
    Tensors tensors = good;
    std::size_t count = 1;
    for (const std::uint64_t extent : shape) count *= extent;
    tensors[name] = {std::move(shape), std::vector<float>(count, value)};
    return message(tensors, tiny.metadata);
  };
  CHECK_THAT(with("layers.0.down", {kRank, kWidth + 1}), Contains("layers.0.down") && Contains("[5, 25]"));
  CHECK_THAT(with("layers.0.down", {0, kWidth}), Contains("[0, 24]"));
  CHECK_THAT(with("layers.0.down", {kWidth + 1, kWidth}), Contains("rank of 1 to 24"));
  CHECK_THAT(with("layers.0.down", {kRank * kWidth}), Contains("[120]"));
  CHECK_THAT(with("layers.1.down", {kRank - 1, kWidth}), Contains("layers.1.down") && Contains("[4, 24]"));
  CHECK_THAT(with("layers.1.up", {kFfn - 1, kRank}), Contains("layers.1.up") && Contains("needs [40, 5]"));
  CHECK_THAT(with("layers.1.bias", {kFfn + 1}), Contains("layers.1.bias"));
  CHECK_THAT(with("layers.2.down", {kRank, kWidth}), Contains("more layers than the 2"));
  CHECK_THAT(with("layers.0.bias", {kFfn}, INFINITY), Contains("layers.0.bias") && Contains("not finite"));
  Tensors less = good;
  less.erase("layers.1.up");
  CHECK_THAT(message(less, tiny.metadata), Contains("layers.1.up") && Contains("missing"));

  const std::string bytes = predictor_bytes(good, tiny.metadata);
  for (const std::size_t length : {std::size_t{0}, std::size_t{7}, std::size_t{100}, bytes.size() - 1})
    CHECK_THAT(user_error([&] { (void)tiny.open(bytes.substr(0, length)); }), Contains("predictor.safetensors"));
  CHECK_THAT(user_error([&] { (void)open_predictor(tiny.directory / "none", tiny.directory.path(), ModelConfig{}); }),
             Contains("none"));
}

TEST_CASE("a predictor with FATReLU belongs to runs with its threshold", "[neurons]") {
  const Tiny tiny;
  Metadata metadata = tiny.metadata;
  metadata["fatrelu"] = "0.70";
  const std::string bytes = predictor_bytes(random_predictor(5), metadata);
  ModelConfig config = tiny.checkpoint().config;
  config.fatrelu = Ratio{7, 10};
  CHECK(user_error([&] { (void)tiny.open(bytes, config); }) == "no UserError");
  config.fatrelu = Ratio{1, 2};
  CHECK_THAT(user_error([&] { (void)tiny.open(bytes, config); }), Contains("FATReLU 0.7, the run has FATReLU 0.5"));
  CHECK_THAT(user_error([&] { (void)tiny.open(predictor_bytes(random_predictor(5), tiny.metadata), config); }),
             Contains("no FATReLU, the run has FATReLU 0.5"));
}

}  // namespace test_predictor
