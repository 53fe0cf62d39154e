// K and V of 4 and 8 bits from scenarios: tokens against attention over the same rounded values, bytes and time.
#include <fmt/format.h>

#include <catch2/catch.hpp>

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"
#include "experiment/checkpoint/loaded_model.h"
#include "experiment/experiments.h"
#include "experiment/generation/generation_run.h"
#include "experiment/generation/generation_setup.h"
#include "experiment/generation/generation_workload.h"
#include "experiment/runner.h"
#include "host_runtime/checkpoint/checkpoint.h"
#include "host_runtime/core/decoder/generation.h"
#include "host_runtime/core/eval/rounded_kv.h"
#include "host_runtime/cpu/cpu_backend.h"
#include "tests/integration/small_platform.h"

namespace test_kept_kv {

using namespace csdsim;

namespace {

using Sets = std::vector<std::string>;
using Tokens = std::vector<std::vector<host::TokenId>>;

const std::string kPlatform = test::small_platform("kept-kv");

scenario::Scenario load(const std::string& text, const Sets& sets) {
  return experiment::load_scenario_text(text, "kept_kv.yaml", CSDSIM_SOURCE_DIR, sets).base.scenario;
}

scenario::Scenario carried(const std::string& model, const Sets& sets) {
  return load(kPlatform + "model: {path: models/" + model +
                  "}\nworkload: {kind: generation, batch: 3, input_tokens: 48, output_tokens: 10}\n"
                  "simulation: {data: carried, compare: [host]}\n",
              sets);
}

/// A checkpoint, and what attention on the host makes of the prompts of a scenario.
struct Oracle {
  explicit Oracle(const std::string& model)
      : checkpoint(host::open_checkpoint(std::string(CSDSIM_SOURCE_DIR "/models/") + model)) {}

  host::CpuBackend backend;
  host::Checkpoint checkpoint;
  std::unique_ptr<host::Decoder> decoder = host::make_decoder(checkpoint.config, *checkpoint.weights, backend);

  Tokens generate(const scenario::Scenario& s, host::AttentionProvider& attention) const {
    const auto& workload = experiment::generation_of(s);
    return host::generate(*decoder, attention, experiment::make_prompts(workload, checkpoint.config.vocab, s.seed),
                          {.max_new_tokens = workload.output_tokens, .sampling = {}, .stop = {}});
  }

  Tokens with_format(const scenario::Scenario& s, const RowQuantisation& format) const {
    host::HostAttention dense(checkpoint.config, std::make_unique<host::DenseAttention>());
    host::RoundedKv rounded(dense, format, checkpoint.config.head_dim);
    return generate(s, rounded);
  }
};

/// Attends to K and V of the first tokens of each sequence as they are, and to those of the others as rounded ones.
class PartlyRounded final : public host::AttentionProvider {
 public:
  PartlyRounded(const host::ModelConfig& config, const RowQuantisation& format, Ratio exact)
      : config_(config),
        exact_(exact),
        plain_(config, std::make_unique<host::DenseAttention>()),
        few_(config, std::make_unique<host::DenseAttention>()),
        rounded_(few_, format, config.head_dim) {}

  void create_sequence(SequenceId s) override { plain_.create_sequence(s), rounded_.create_sequence(s); }
  void free_sequence(SequenceId s) override { plain_.free_sequence(s), rounded_.free_sequence(s); }
  void store(LayerId layer, std::span<const host::SequenceSlice> slices, std::span<const Half> k,
             std::span<const Half> v) override {
    plain_.store(layer, slices, k, v);
    rounded_.store(layer, slices, k, v);
  }
  void attend(LayerId layer, std::span<const SequenceId> sequences, std::span<const float> q, std::span<const Half> k,
              std::span<const Half> v, std::span<Half> out) override {
    plain_.attend(layer, sequences, q, k, v, out);
    rounded_.attend(layer, sequences, q, k, v, out);
    const std::size_t per_head = std::size_t{config_.group_size()} * config_.head_dim;
    std::vector<float> made(per_head), query(per_head);
    for (std::size_t row = 0; row < sequences.size(); ++row)
      for (std::uint32_t head = 0; head < config_.kv_heads; ++head) {
        const host::KvView plain = plain_.cache().view(sequences[row], layer, KvHead{head});
        const host::KvView few = few_.cache().view(sequences[row], layer, KvHead{head});
        const std::size_t first = exact_.round_of(plain.tokens - 1) * config_.head_dim;
        std::vector<Half> keys(few.keys.begin(), few.keys.end()), values(few.values.begin(), few.values.end());
        std::copy_n(plain.keys.begin(), first, keys.begin());
        std::copy_n(plain.values.begin(), first, values.begin());
        host::KvView joined;
        joined.tokens = plain.tokens;
        joined.head_dim = config_.head_dim;
        joined.keys = keys;
        joined.values = values;
        const std::size_t at = row * config_.q_width() + head * per_head;
        std::vector<Half> wire(per_head);
        floats_to_halves(q.subspan(at, per_head), wire);
        halves_to_floats(wire, query);
        host::DenseAttention().attend(query, joined, made, nullptr);
        floats_to_halves(made, out.subspan(at, per_head));
      }
  }

 private:
  host::ModelConfig config_;
  Ratio exact_;
  host::HostAttention plain_, few_;
  host::RoundedKv rounded_;
};

Tokens tokens_of(const scenario::RunResult& result) {
  Tokens all;
  for (const auto& sequence : result.document["tokens"]) {
    auto& tokens = all.emplace_back();
    for (const auto& token : sequence) tokens.emplace_back(token.get<std::uint32_t>());
  }
  return all;
}

scenario::RunResult run_checked(const scenario::Scenario& s) {
  scenario::RunResult result = experiment::run_scenario(s);
  CHECK(result.failure.empty());
  CHECK(result.document["comparison"]["host"]["tokens_equal"] == 30);
  CHECK(result.document["comparison"]["host"]["attention_outputs_identical"] == true);
  return result;
}

/// Without grouped queries; K and V of a token and layer take 2 KiB with 16 bits.
experiment::GenerationOutcome timing(Sets sets) {
  const scenario::Scenario s =
      load(kPlatform +
               "model: {layers: 6, heads: 8, kv_heads: 8, head_dim: 64, hidden_size: 512, ffn_size: 1024, "
               "vocab_size: 1000, max_positions: 4096}\n"
               "workload: {kind: generation, batch: 4, input_tokens: 1000, output_tokens: 9, mini_batches: 1}\n"
               "simulation: {sampling: off}\n",
           sets);
  const auto& workload = experiment::generation_of(s);
  return experiment::run_generation(
      experiment::generation_setup(s, std::vector(workload.batch, workload.input_tokens)));
}

}  // namespace

TEST_CASE("carried runs make the tokens of attention to the same rounded K and V, wherever these are kept") {
  for (const char* const model : {"opt-6m", "llama-gqa-6m"}) {
    const Oracle oracle(model);
    for (const auto& [bits, group] : {std::pair{4U, 32U}, {4U, 16U}, {8U, 64U}}) {
      const std::string format = fmt::format(", kv_bits: {}, kv_group: {}}}", bits, group);
      const Tokens expected =
          oracle.with_format(carried(model, {"system.kind=host-kv"}), {.bits = bits, .group = group});
      std::string digest;
      for (const char* const system :
           {"{kind: host-kv", "{kind: host-kv, attention: host", "{kind: hf-accelerate, weights_on_host: 50 %",
            "{kind: flexgen-ssd, policy: given", "{kind: flexgen-ssd, policy: given, kv_on_gpu: 30 %, kv_on_host: 30 %",
            "{kind: kvpr, recomputed_share: 0"}) {
        if (bits == 8 && std::string(system) != "{kind: host-kv" && !std::string(system).starts_with("{kind: flexgen"))
          continue;
        CAPTURE(model, bits, group, system);
        const scenario::RunResult result = run_checked(carried(model, {"system=" + (system + format)}));
        CHECK((tokens_of(result) == expected));
        const std::string made = result.document["stats"]["attention_digest"];
        if (digest.empty()) digest = made;
        CHECK(made == digest);
      }
      const scenario::RunResult plain = run_checked(carried(model, {"system.kind=host-kv"}));
      CHECK(plain.document["stats"]["attention_digest"] != digest);
    }
  }
  const Oracle oracle("opt-6m");
  const scenario::Scenario parts = carried(
      "opt-6m", {"system={kind: flexgen-ssd, policy: given, kv_bits: 4, kv_group: 32}", "workload.mini_batches=2"});
  CHECK((tokens_of(run_checked(parts)) == oracle.with_format(parts, {.bits = 4, .group = 32})));
}

TEST_CASE("KVPR attends to recomputed K and V of 16 bits and to rounded ones of the other tokens") {
  const RowQuantisation four{.bits = 4, .group = 32};
  for (const char* const model : {"opt-6m", "llama-gqa-6m"}) {
    const Oracle oracle(model);
    for (const std::uint64_t percent : {30U, 70U}) {
      CAPTURE(model, percent);
      const scenario::Scenario s = carried(
          model, {fmt::format("system={{kind: kvpr, recomputed_share: {} %, kv_bits: 4, kv_group: 32}}", percent),
                  "workload.batch=1"});
      const scenario::RunResult result = experiment::run_scenario(s);
      CHECK(result.failure.empty());
      PartlyRounded partly(oracle.checkpoint.config, four, Ratio::of(percent, 100));
      CHECK((tokens_of(result) == oracle.generate(s, partly)));
    }
  }
}

TEST_CASE("with a slow link, a decode step takes what copying the bytes of the format takes") {
  const auto decode = [](const std::string& system) {
    return timing({"system={kind: hf-accelerate" + system + "}", "platform.gpu.link={bandwidth: 1 GB/s}",
                   "platform.gpu.memory_bandwidth=10 TB/s"})
        .times.decode_s;
  };
  const auto copied = [](double bits, double group) {
    double seconds = 0;
    for (std::uint64_t step = 0; step < 8; ++step)
      seconds += 6e-9 * 4 * double(1000 + step) * 8 * 2 * (64 * bits / 8 + (group > 0 ? 64 / group * 2 : 0));
    return seconds * 46 / 48;  // two buffers of the 48 layers of all steps are filled in the prefill
  };
  CHECK(decode("") == Approx(copied(16, 0)).epsilon(0.01));
  CHECK(decode(", kv_bits: 8") == Approx(copied(8, 64)).epsilon(0.01));
  CHECK(decode(", kv_bits: 4") == Approx(copied(4, 64)).epsilon(0.01));
  CHECK(decode(", kv_bits: 4, kv_group: 16") == Approx(copied(4, 16)).epsilon(0.01));
}

TEST_CASE("with a fast link, dequantising takes the time of its passes over GPU memory") {
  // Nothing is copied while the GPU has its memory at 100 GB/s and needs no time for launches and arithmetic.
  const auto busy = [](const std::string& system) {
    return timing({"system={kind: host-kv" + system + "}", "platform.gpu.link={bandwidth: 60 GB/s}",
                   "platform.gpu.memory_bandwidth=100 GB/s", "platform.gpu.efficiency.attention_decode=100 %",
                   "platform.gpu.efficiency.elementwise=100 %", "platform.gpu.kernel_launch=0 ns"})
        .decode.of(host::ResourceKind::gpu)
        .busy_s;
  };
  const double few = 8 * 2 * 34, fp16 = 8 * 2 * 128;  // bytes of a token and layer
  double passes = 0;
  for (std::uint64_t step = 0; step < 8; ++step) passes += 6 * 4 * (double(1001 + step) + 1) * (few + fp16) / 100e9;
  CHECK(busy(", kv_bits: 4") - busy("") == Approx(passes).epsilon(0.001));
}

}  // namespace test_kept_kv
