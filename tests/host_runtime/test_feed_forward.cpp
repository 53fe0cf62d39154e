// The feed-forward block in parts: neurons that do not take part, and weights of the caller.
#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "tests/host_runtime/opt_6m.h"

namespace test_feed_forward {

using namespace csdsim;
using namespace csdsim::host;

namespace {

constexpr std::uint32_t kTokens = 5;

class NoMask final : public CpuBackend {
 public:
  bool supports(Operator op) const override { return op != Operator::mask; }
};

// A decoder on `B` with the hidden states after the attention block of layer 1.
template <class B = CpuBackend>
struct Block {
  B backend;
  Checkpoint checkpoint;
  std::unique_ptr<Decoder> decoder;
  LayerId layer{1};
  HiddenStates hidden;
  Tensor inputs;

  explicit Block(const std::string& name)
      : checkpoint(open_checkpoint(std::filesystem::path(CSDSIM_SOURCE_DIR) / "tests/data/golden" / name)),
        decoder(make_decoder(checkpoint.config, *checkpoint.weights, backend)),
        hidden(after_attention()),
        inputs(decoder->feed_forward_inputs(layer, hidden)) {}

  HiddenStates after_attention() const {
    std::vector<TokenId> tokens;
    std::vector<TokenIndex> positions;
    for (std::uint32_t i = 0; i < kTokens; ++i) {
      tokens.emplace_back((i * 37 + 5) % checkpoint.config.vocab);
      positions.emplace_back(i);
    }
    HiddenStates states = decoder->embed(tokens, positions);
    const LayerId first{0};
    decoder->finish_layer(first, states,
                          decoder->prefill_attention(decoder->attention_inputs(first, states), {{kTokens}}));
    decoder->finish_attention(layer, states,
                              decoder->prefill_attention(decoder->attention_inputs(layer, states), {{kTokens}}));
    return states;
  }
  std::uint32_t ffn() const { return checkpoint.config.ffn; }
  std::vector<float> activations() const { return decoder->to_host_float(decoder->neuron_activations(layer, inputs)); }
  // The hidden states after the feed-forward block.
  std::vector<float> end(const NeuronMasks* masks = nullptr, const FeedForwardWeights* weights = nullptr) const {
    HiddenStates states = after_attention();
    decoder->feed_forward(layer, states, inputs, masks, weights);
    return decoder->to_host_float(states.values);
  }
};

// A copy of a stored fp32 matrix, without the rows (or columns) of the neurons that are not kept.
Weight without(Backend& backend, const WeightSource& source, const std::string& name, const NeuronMasks& masks,
               bool columns) {
  const StoredTensor stored = source.tensor(name);
  REQUIRE(stored.type == ElementType::f32);
  std::vector<float> values(stored.bytes.size() / sizeof(float));
  std::memcpy(values.data(), stored.bytes.data(), stored.bytes.size());
  for (std::size_t i = 0; i < values.size(); ++i)
    if (masks.kept[columns ? i % stored.shape[1] : i / stored.shape[1]] == 0) values[i] = 0;
  return backend.load({ElementType::f32, stored.shape, std::as_bytes(std::span<const float>(values))});
}

}  // namespace

TEST_CASE("masks that keep all neurons that fire give the same bits; without one of them they do not") {
  for (const char* name : {"opt", "opt350"}) {
    CAPTURE(name);
    const Block block(name);
    const std::vector<float> whole = block.end(), inner = block.activations();
    NeuronMasks masks;
    for (const float value : inner) masks.kept.push_back(value != 0);
    const auto fire = std::ranges::count(masks.kept, 1);
    CHECK(fire > 0);
    CHECK(static_cast<std::size_t>(fire) < masks.kept.size());
    CHECK(block.end(&masks) == whole);
    const auto strongest = static_cast<std::size_t>(std::ranges::max_element(inner) - inner.begin());
    masks.kept[strongest] = 0;
    const std::vector<float> without_one = block.end(&masks);
    const std::size_t width = block.checkpoint.config.width, row = strongest / block.ffn();
    for (std::size_t token = 0; token < kTokens; ++token) {
      const auto at = static_cast<std::ptrdiff_t>(token * width), end = at + static_cast<std::ptrdiff_t>(width);
      CHECK(std::equal(whole.begin() + at, whole.begin() + end, without_one.begin() + at) == (token != row));
    }
    NeuronMasks one_for_all;
    for (std::size_t neuron = 0; neuron < block.ffn(); ++neuron) {
      bool fires = false;
      for (std::size_t token = 0; token < kTokens; ++token) fires |= inner[token * block.ffn() + neuron] != 0;
      one_for_all.kept.push_back(fires);
    }
    CHECK(block.end(&one_for_all) == whole);
  }
}

TEST_CASE("weights of the caller with zeros for the other neurons are the same as masks") {
  const Block block("opt");
  NeuronMasks masks;
  for (std::uint32_t neuron = 0; neuron < block.ffn(); ++neuron) masks.kept.push_back(neuron % 3 != 1);
  Block other("opt");
  const std::string at = block.checkpoint.weights->contains("model.decoder.layers.1.fc1.weight")
                             ? "model.decoder.layers.1."
                             : "decoder.layers.1.";
  const WeightSource& source = *other.checkpoint.weights;
  const FeedForwardWeights own{{},
                               without(other.backend, source, at + "fc1.weight", masks, false),
                               without(other.backend, source, at + "fc2.weight", masks, true)};
  const std::vector<float> masked = block.end(&masks);
  CHECK(other.end(nullptr, &own) == masked);
  CHECK(block.end() != masked);
}

TEST_CASE("masks of another shape, and a backend that cannot mask") {
  const Block block("opt");
  const NeuronMasks wrong{std::vector<std::uint8_t>(block.ffn() + 1, 1)};
  CHECK_THROWS_AS(block.end(&wrong), InternalError);
  const Block<NoMask> none("opt");
  const NeuronMasks all{std::vector<std::uint8_t>(block.ffn(), 1)};
  CHECK_THROWS_AS(none.end(&all), UserError);
  CHECK(none.end() == block.end());
}

}  // namespace test_feed_forward
