// Recomputation of K and V from layer inputs (KVPR, arXiv 2411.17089) in runs that carry data.
#include <catch2/catch.hpp>

#include <filesystem>
#include <memory>

#include "base/error.h"
#include "host_runtime/checkpoint/checkpoint.h"
#include "host_runtime/core/carried/decoder_data.h"
#include "host_runtime/core/carried/host_reference.h"
#include "host_runtime/core/machine/processor_backends.h"
#include "host_runtime/core/plan/router.h"
#include "host_runtime/core/systems/systems.h"
#include "host_runtime/cpu/cpu_backend.h"

namespace test_recompute {

using namespace csdsim;
using namespace csdsim::host;
using Catch::Matchers::Contains;

namespace {

constexpr std::uint32_t kNewTokens = 6;

struct Model {
  CpuBackend backend;
  Checkpoint checkpoint;
  std::unique_ptr<Decoder> decoder;
  ModelShape shape;

  explicit Model(const std::string& directory)
      : checkpoint(open_checkpoint(std::filesystem::path(CSDSIM_SOURCE_DIR) / directory)),
        decoder(make_decoder(checkpoint.config, *checkpoint.weights, backend)),
        shape(ModelShape::of(checkpoint.config)) {}

  /// Three prompts. Together they have more rows than the backend multiplies one at a time; a decode step has fewer.
  std::vector<std::vector<TokenId>> prompts() const {
    std::vector<std::vector<TokenId>> out;
    for (const std::uint32_t length : {25u, 1u, 9u}) {
      auto& prompt = out.emplace_back();
      for (std::uint32_t i = 0; i < length; ++i)
        prompt.emplace_back((length * 31 + i * 17 + 5) % checkpoint.config.vocab);
    }
    return out;
  }
};

/// Keeps the layer inputs of the prompt at `home`. Every decode step recomputes K and V of the prompt on the GPU, which
/// keeps those of new tokens. With `check`, K and V of the prompt also stay on the GPU, as part 9, for comparison only.
class Recomputing final : public Planner {
 public:
  Recomputing(const Model& model, PlaceKind home, bool check = false)
      : model_(model.shape), prompts_(model.prompts()), home_{home, 0}, check_(check) {}

  bool next_step(OperationSink& sink) override {
    if (step_ == kNewTokens) return false;
    rows_ = 0;
    for (const auto& prompt : prompts_) rows_ += step_ == 0 ? prompt.size() : 1;
    tag_ = {.phase = step_ == 0 ? Phase::prefill : Phase::decode, .step = step_ == 0 ? 0 : step_ - 1};
    const SizedTensor hidden{TensorName::of(TensorClass::hidden, tag_), width_bytes(rows_)};
    add(sink, OpKind::embed, model_.embed(rows_), {.writes = {hidden}});
    for (std::uint32_t layer = 0; layer < model_.layers; ++layer) {
      tag_.layer = LayerId{layer};
      attention(sink, hidden);
    }
    tag_.layer.reset();
    add(sink, OpKind::sample, model_.sample(prompts_.size()),
        {.reads = {hidden.name}, .drops = {{hidden.name, Place::gpu()}}});
    ++step_;
    return true;
  }

 private:
  Bytes width_bytes(std::uint64_t rows) const { return {std::uint64_t{model_.width} * model_.element_bytes * rows}; }
  std::uint64_t prompt_tokens() const {
    std::uint64_t sum = 0;
    for (const auto& prompt : prompts_) sum += prompt.size();
    return sum;
  }
  void add(OperationSink& sink, OpKind kind, Work work, TensorUses uses, Resource at = Resource::gpu()) {
    last_ = {sink.add(kind, at, tag_, std::move(work), last_, std::move(uses))};
  }
  void move(OperationSink& sink, ResourceKind link, const SizedTensor& t, bool drop) {
    if (home_.kind == PlaceKind::gpu) return;
    TensorUses uses{.reads = {t.name}, .writes = {t}};
    if (drop) uses.drops.push_back({t.name, Place::gpu()});
    add(sink, OpKind::transfer, LinkWork{t.bytes}, std::move(uses), {link, 0});
  }
  SizedTensor cache(std::uint32_t part, std::uint64_t tokens) const {
    return {TensorName::kept(TensorClass::kv_cache, tag_.layer, {}, {KvHead{0}, model_.kv_heads}, part),
            model_.kv_bytes_per_token_and_layer() * tokens};
  }

  void attention(OperationSink& sink, const SizedTensor& hidden) {
    const HeadRange all{KvHead{0}, model_.kv_heads};
    const Place gpu = Place::gpu();
    const bool prefill = step_ == 0;
    const HeadRange split = prefill ? HeadRange{} : all;
    const SizedTensor q{TensorName::of(TensorClass::queries, tag_, split), model_.query_bytes(all) * rows_};
    const SizedTensor kv{TensorName::of(TensorClass::new_kv, tag_, all), model_.kv_bytes_per_token_and_layer() * rows_};
    const SizedTensor out{TensorName::of(TensorClass::attention_output, tag_, split), q.bytes};
    const SizedTensor x{TensorName::kept(TensorClass::layer_input, tag_.layer), width_bytes(prompt_tokens())};
    TensorUses inputs{.reads = {hidden.name}, .writes = {q, kv}};
    if (prefill) inputs.writes.push_back(x);
    add(sink, OpKind::attention_inputs, model_.attention_inputs(rows_), std::move(inputs));
    if (prefill) {
      if (check_) add(sink, OpKind::append_kv, ComputeWork{}, {.reads = {kv.name}, .writes = {cache(9, rows_)}});
      add(sink, OpKind::attention, ComputeWork{},
          {.reads = {q.name}, .writes = {out}, .drops = {{q.name, gpu}, {kv.name, gpu}}});
      move(sink, ResourceKind::gpu_to_host, x, true);
    } else {
      const SizedTensor again = cache(0, prompt_tokens()), grown = cache(1, std::uint64_t{step_} * prompts_.size());
      move(sink, ResourceKind::host_to_gpu, x, false);
      TensorUses recomputed{.reads = {x.name}, .writes = {again}};
      if (home_.kind == PlaceKind::host) recomputed.drops.push_back({x.name, gpu});
      add(sink, OpKind::recompute_kv, model_.recompute_kv(prompt_tokens()), std::move(recomputed));
      TensorUses uses{
          .reads = {q.name, kv.name, again.name}, .writes = {out, grown}, .drops = {{q.name, gpu}, {kv.name, gpu}}};
      if (step_ > 1) uses.reads.push_back(grown.name);
      if (!check_) uses.drops.push_back({again.name, gpu});
      add(sink, OpKind::attention, ComputeWork{}, std::move(uses));
    }
    add(sink, OpKind::finish_layer, model_.finish_layer(rows_),
        {.reads = {out.name, hidden.name}, .writes = {hidden}, .drops = {{out.name, gpu}}});
  }

  ModelShape model_;
  std::vector<std::vector<TokenId>> prompts_;
  Place home_;
  bool check_;
  std::uint32_t step_ = 0;
  OpTag tag_;
  std::uint64_t rows_ = 0;
  std::vector<OperationId> last_;
};

void run(Planner& planner, DecoderData& data) {
  GpuBackend gpu(GpuModel(GpuConfig{}), &data);
  LinkBackend link({.bandwidth = {1'000'000'000}, .latency = {}}, &data);
  Router router(&data);
  router.add(ResourceKind::gpu, gpu);
  router.add(ResourceKind::host_to_gpu, link);
  router.add(ResourceKind::gpu_to_host, link);
  Executor executor(planner, router, {});
  executor.start({});
  while (!executor.finished()) executor.advance(executor.next_event());
}

using Cache = std::shared_ptr<HostKvCache>;

bool same(std::span<const Half> a, std::span<const Half> b) { return std::ranges::equal(a, b); }

}  // namespace

TEST_CASE("K and V recomputed from layer inputs have the bits of those of the prefill, and so has the output") {
  const std::string directory = GENERATE("tests/data/golden/opt", "tests/data/golden/opt350", "tests/data/golden/llama",
                                         "tests/data/golden/qwen2", "models/opt-6m", "models/llama-gqa-6m");
  CAPTURE(directory);
  const Model model(directory);
  PlannerInputs in;
  in.model = model.shape;
  in.workload = {{25, 1, 9}, kNewTokens};
  in.span = {true, 0, kNewTokens - 1};
  in.mini_batches = 1;
  DecoderData reference(*model.decoder, model.prompts(), kNewTokens, 1, {});
  run_on_host(*builtin_systems().make("instinfer-dense")->plan(in), model.checkpoint.config, 3, reference);

  DecoderData data(*model.decoder, model.prompts(), kNewTokens, 1, {});
  Recomputing checked(model, PlaceKind::gpu, true);
  run(checked, data);
  const HeadRange all{KvHead{0}, model.shape.kv_heads};
  for (std::uint32_t layer = 0; layer < model.shape.layers; ++layer) {
    const auto cache = [&](std::uint32_t part) {
      return data.tensors().at<Cache>(TensorName::kept(TensorClass::kv_cache, LayerId{layer}, {}, all, part),
                                      Place::gpu(), "the test");
    };
    const Cache again = cache(0), made = cache(9);
    for (std::uint32_t s = 0; s < 3; ++s)
      for (std::uint32_t h = 0; h < all.count; ++h) {
        const KvView a = again->view(SequenceId{s}, LayerId{0}, KvHead{h});
        const KvView b = made->view(SequenceId{s}, LayerId{0}, KvHead{h});
        REQUIRE(a.tokens == model.prompts()[s].size());
        REQUIRE((same(a.keys, b.keys) && same(a.values, b.values)));
      }
  }
  CHECK(data.generated() == reference.generated());
  CHECK(data.attention_digest() == reference.attention_digest());

  DecoderData from_host(*model.decoder, model.prompts(), kNewTokens, 1, {});
  Recomputing offloaded(model, PlaceKind::host);
  run(offloaded, from_host);
  CHECK(from_host.generated() == reference.generated());
  CHECK(from_host.attention_digest() == reference.attention_digest());
  // Only the layer inputs and K and V of new tokens remain.
  CHECK(from_host.tensors().size() == 2 * model.shape.layers);
}

TEST_CASE("layer inputs of several steps are projected in their batches, also for a part of the heads") {
  const Model model("tests/data/golden/llama");
  DecoderData data(*model.decoder, model.prompts(), kNewTokens, 1, {});
  const HeadRange all{KvHead{0}, model.shape.kv_heads}, last{KvHead{model.shape.kv_heads - 1}, 1};
  const TensorName kept = TensorName::kept(TensorClass::layer_input, LayerId{0});
  const TensorName cache = TensorName::kept(TensorClass::kv_cache, LayerId{0}, {}, all);
  const auto perform = [&](OpKind kind, const OpTag& tag, TensorUses uses) {
    Operation op;
    op.kind = kind;
    op.resource = Resource::gpu();
    op.tag = tag;
    op.work = ComputeWork{};
    op.tensors = std::move(uses);
    data.perform(op);
    data.ended(op);
  };
  for (std::uint32_t step = 0; step < 4; ++step) {
    OpTag tag{.phase = step == 0 ? Phase::prefill : Phase::decode, .step = step == 0 ? 0 : step - 1};
    const TensorName hidden = TensorName::of(TensorClass::hidden, tag);
    perform(OpKind::embed, tag, {.writes = {{hidden, {}}}});
    tag.layer = LayerId{0};
    const TensorName kv = TensorName::of(TensorClass::new_kv, tag, all);
    const TensorName x = TensorName::of(TensorClass::layer_input, tag);  // in the prefill, this is `kept`
    perform(OpKind::attention_inputs, tag, {.reads = {hidden}, .writes = {{kv, {}}, {x, {}}}});
    TensorUses append{.reads = {kv}, .writes = {{cache, {}}}};
    // Step 1 is appended to `kept`; steps 2 and 3 are separate tensors.
    if (step == 1) append.reads.push_back(x);
    if (step == 1) append.writes.push_back({kept, {}});
    if (step > 0) append.reads.push_back(cache);
    perform(OpKind::append_kv, tag, std::move(append));
    tag.layer.reset();
    perform(OpKind::sample, tag, {.reads = {hidden}});
  }
  OpTag tag{.phase = Phase::decode, .step = 2, .layer = LayerId{0}};
  const TensorName again = TensorName::kept(TensorClass::kv_cache, LayerId{0}, {}, last, 5);
  const TensorName third = TensorName::of(TensorClass::layer_input, tag);
  tag.step = 1;
  const TensorName second = TensorName::of(TensorClass::layer_input, tag);
  perform(OpKind::recompute_kv, tag, {.reads = {third, kept, second}, .writes = {{again, {}}}});
  const auto& made = data.tensors().at<Cache>(cache, Place::gpu(), "the test");
  const auto& recomputed = data.tensors().at<Cache>(again, Place::gpu(), "the test");
  for (std::uint32_t s = 0; s < 3; ++s) {
    const KvView a = recomputed->view(SequenceId{s}, LayerId{0}, KvHead{0});
    const KvView b = made->view(SequenceId{s}, LayerId{0}, last.first);
    CHECK(a.tokens == model.prompts()[s].size() + 3);
    CHECK((same(a.keys, b.keys) && same(a.values, b.values)));
  }
  CHECK_THROWS_WITH(perform(OpKind::recompute_kv, tag, {.writes = {{again, {}}}}), Contains("reads no layer_input"));
}

}  // namespace test_recompute
