// FATReLU in gated networks (arXiv 2402.13516).
#include <catch2/catch.hpp>
#include <cmath>

#include "base/error.h"
#include "host_runtime/core/decoder/generation.h"
#include "tests/host_runtime/opt_6m.h"
#include "tests/host_runtime/tiny_checkpoint.h"

namespace test_fatrelu {

using namespace csdsim;
using namespace csdsim::host;
using Catch::Matchers::Contains;

namespace {

const std::filesystem::path kLlama = std::filesystem::path(CSDSIM_SOURCE_DIR) / "models" / "llama-gqa-6m";

class NoFatrelu final : public CpuBackend {
 public:
  bool supports(Operator op) const override { return op != Operator::fatrelu; }
};

/// The activations of layer 1 for some tokens.
std::vector<float> activations(std::optional<Ratio> fatrelu) {
  CpuBackend backend;
  Checkpoint checkpoint = open_checkpoint(kLlama);
  checkpoint.config.fatrelu = fatrelu;
  const auto decoder = make_decoder(checkpoint.config, *checkpoint.weights, backend);
  const std::vector<TokenId> tokens{TokenId{300}, TokenId{17}, TokenId{2000}, TokenId{41}};
  const std::vector<TokenIndex> positions{TokenIndex{0}, TokenIndex{1}, TokenIndex{2}, TokenIndex{3}};
  const HiddenStates hidden = decoder->embed(tokens, positions);
  return decoder->to_host_float(
      decoder->neuron_activations(LayerId{1}, decoder->feed_forward_inputs(LayerId{1}, hidden)));
}

}  // namespace

TEST_CASE("FATReLU keeps silu(gate) times up where silu(gate) reaches the threshold, else gives zero", "[neurons]") {
  CpuBackend backend;
  const std::vector<float> gates{-3, -0.5f, 0, 0.2f, 0.9f, 1.1f, 4, 20}, ups{1, 2, 3, -4, 5, -6, 7, 0.5f};
  const auto make = [&](const std::vector<float>& values) {
    Tensor tensor = backend.allocate(2, 4);
    std::vector<Half> halves;
    for (const float v : values) halves.push_back(float_to_half(v));
    backend.upload(halves, tensor);
    return tensor;
  };
  for (const float threshold : {0.0f, 0.1f, 0.7f, 5.0f}) {
    CAPTURE(threshold);
    Tensor gate = make(gates), plain = make(gates);
    std::vector<float> found(8), silu(8);
    backend.fatrelu(gate, make(ups), threshold);
    backend.swiglu(plain, make(ups));
    backend.download(gate, found);
    backend.download(plain, silu);
    for (std::size_t i = 0; i < 8; ++i) {
      const double x = half_to_float(float_to_half(gates[i]));
      CHECK(found[i] == (x / (1 + std::exp(-x)) < threshold ? 0 : silu[i]));
    }
  }
  CHECK_THROWS_AS(backend.fatrelu(*std::make_unique<Tensor>(backend.allocate(1, 4)), make(ups), 0), InternalError);
}

TEST_CASE("a Llama with FATReLU has silent neurons; the others are those of SiLU, bit for bit", "[neurons]") {
  const std::vector<float> silu = activations({}), low = activations(Ratio{1, 10}), high = activations(Ratio{1, 1});
  const auto zeros = [](const std::vector<float>& values) { return std::ranges::count(values, 0.0f); };
  CHECK(zeros(silu) == 0);
  CHECK(zeros(low) > static_cast<std::ptrdiff_t>(silu.size() / 4));
  CHECK(zeros(high) > zeros(low));
  CHECK(zeros(high) < static_cast<std::ptrdiff_t>(silu.size()));
  for (std::size_t i = 0; i < silu.size(); ++i) {
    if (high[i] != 0) CHECK(low[i] == high[i]);
    if (low[i] != 0) CHECK(silu[i] == low[i]);
  }
}

TEST_CASE("FATReLU of a network without a gate, or on a backend without it", "[neurons]") {
  Checkpoint opt = open_checkpoint(csdsim::test::kOpt6m), llama = open_checkpoint(kLlama);
  CHECK(opt.config.sparse_ffn());
  CHECK(!llama.config.sparse_ffn());
  opt.config.fatrelu = llama.config.fatrelu = Ratio{1, 2};
  CHECK(llama.config.sparse_ffn());
  CpuBackend cpu;
  NoFatrelu other;
  CHECK_THROWS_WITH(make_decoder(opt.config, *opt.weights, cpu), Contains("opt has ReLU"));
  CHECK_THROWS_WITH(make_decoder(llama.config, *llama.weights, other), Contains("fatrelu"));
  llama.config.fatrelu.reset();
  CHECK_NOTHROW(make_decoder(llama.config, *llama.weights, other));
}

}  // namespace test_fatrelu
