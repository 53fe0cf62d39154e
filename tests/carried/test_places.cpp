// A checkpoint's tokens with K and V on the GPU or in host memory, against attention in the reference; and what happens
// when a planner forgets a transfer.
#include <catch2/catch.hpp>

#include <memory>

#include "base/error.h"
#include "host_runtime/checkpoint/checkpoint.h"
#include "host_runtime/core/attention/attention.h"
#include "host_runtime/core/carried/decoder_data.h"
#include "host_runtime/core/carried/host_reference.h"
#include "host_runtime/core/decoder/generation.h"
#include "host_runtime/core/machine/processor_backends.h"
#include "host_runtime/core/plan/router.h"
#include "host_runtime/core/systems/gpu_only/gpu_only.h"
#include "host_runtime/core/systems/host_kv/host_kv.h"
#include "host_runtime/core/systems/systems.h"
#include "host_runtime/cpu/cpu_backend.h"

namespace test_places {

using namespace csdsim;
using namespace csdsim::host;
using Catch::Matchers::Contains;

namespace {

struct Model {
  CpuBackend backend;
  Checkpoint checkpoint = open_checkpoint(CSDSIM_SOURCE_DIR "/models/opt-6m");
  std::unique_ptr<Decoder> decoder = make_decoder(checkpoint.config, *checkpoint.weights, backend);
  ModelShape shape = ModelShape::of(checkpoint.config);
};

const std::vector<std::vector<TokenId>> kPrompts = {{TokenId{5}, TokenId{17}, TokenId{900}}, {TokenId{44}, TokenId{3}}};
constexpr std::uint32_t kNewTokens = 6;

/// Layer by layer with K and V at `home`, attention where they are, and everything else on the GPU.
class KvAtHome final : public Planner {
 public:
  KvAtHome(const ModelShape& model, PlaceKind home, bool forgets = false)
      : model_(model), home_(home), forgets_(forgets) {}

  bool next_step(OperationSink& sink) override {
    if (step_ == kNewTokens) return false;
    tokens_ = 0;
    context_ = 0;
    for (const auto& prompt : kPrompts) {
      tokens_ += step_ == 0 ? prompt.size() : 1;
      context_ += prompt.size() + step_;
    }
    tag_ = {.phase = step_ == 0 ? Phase::prefill : Phase::decode, .step = step_ == 0 ? 0 : step_ - 1};
    const SizedTensor hidden{TensorName::of(TensorClass::hidden, tag_),
                             Bytes{std::uint64_t{model_.width} * model_.element_bytes * tokens_}};
    add(sink, OpKind::embed, Resource::gpu(), model_.embed(tokens_), {.writes = {hidden}});
    for (std::uint32_t layer = 0; layer < model_.layers; ++layer) {
      tag_.layer = LayerId{layer};
      attention(sink, hidden);
    }
    tag_.layer.reset();
    add(sink, OpKind::sample, Resource::gpu(), model_.sample(kPrompts.size()),
        {.reads = {hidden.name}, .drops = {{hidden.name, Place::gpu()}}});
    ++step_;
    return true;
  }

 private:
  void add(OperationSink& sink, OpKind kind, Resource resource, Work work, TensorUses uses) {
    last_ = {sink.add(kind, resource, tag_, std::move(work), last_, std::move(uses))};
  }
  void move(OperationSink& sink, ResourceKind link, const std::vector<SizedTensor>& tensors) {
    if (home_ == PlaceKind::gpu) return;
    LinkWork work;
    TensorUses uses{.writes = tensors};
    for (const SizedTensor& t : tensors) {
      work.bytes += t.bytes;
      uses.reads.push_back(t.name);
      uses.drops.push_back({t.name, link == ResourceKind::gpu_to_host ? Place::gpu() : Place::host()});
    }
    add(sink, OpKind::transfer, {link, 0}, work, std::move(uses));
  }
  void attention(OperationSink& sink, const SizedTensor& hidden) {
    const HeadRange all{KvHead{0}, model_.kv_heads};
    const bool prefill = step_ == 0;
    const HeadRange split = prefill ? HeadRange{} : all;
    const Place home{home_, 0};
    const Resource at = home_ == PlaceKind::gpu ? Resource::gpu() : Resource::host();
    const SizedTensor q{TensorName::of(TensorClass::queries, tag_, split), model_.query_bytes(all) * tokens_};
    const SizedTensor kv{TensorName::of(TensorClass::new_kv, tag_, all),
                         model_.kv_bytes_per_token_and_layer() * tokens_};
    const SizedTensor out{TensorName::of(TensorClass::attention_output, tag_, split), q.bytes};
    const SizedTensor cache{TensorName::kept(TensorClass::kv_cache, tag_.layer, tag_.mini_batch, all),
                            model_.kv_bytes_per_token_and_layer() * context_};
    add(sink, OpKind::attention_inputs, Resource::gpu(), model_.attention_inputs(tokens_),
        {.reads = {hidden.name}, .writes = {q, kv}});
    if (prefill) {
      add(sink, OpKind::attention, Resource::gpu(), ComputeWork{},
          {.reads = {q.name}, .writes = {out}, .drops = {{q.name, Place::gpu()}}});
      move(sink, ResourceKind::gpu_to_host, {kv});
      add(sink, OpKind::append_kv, at, ComputeWork{},
          {.reads = {kv.name}, .writes = {cache}, .drops = {{kv.name, home}}});
    } else {
      move(sink, ResourceKind::gpu_to_host, {q, kv});
      add(sink, OpKind::attention, at, ComputeWork{},
          {.reads = {q.name, kv.name, cache.name}, .writes = {out, cache}, .drops = {{q.name, home}, {kv.name, home}}});
      if (!forgets_) move(sink, ResourceKind::host_to_gpu, {out});
    }
    add(sink, OpKind::finish_layer, Resource::gpu(), model_.finish_layer(tokens_),
        {.reads = {out.name, hidden.name}, .writes = {hidden}, .drops = {{out.name, Place::gpu()}}});
  }

  ModelShape model_;
  PlaceKind home_;
  bool forgets_;
  std::uint32_t step_ = 0;
  OpTag tag_;
  std::uint64_t tokens_ = 0, context_ = 0;
  std::vector<OperationId> last_;
};

struct Outcome {
  std::vector<std::vector<TokenId>> tokens;
  std::uint64_t digest = 0;
  std::size_t kept = 0;
  Bytes down, up, gpu, host;
};

Outcome run(const Model& model, Planner& planner, std::uint32_t mini_batches) {
  DecoderData data(*model.decoder, kPrompts, kNewTokens, mini_batches, {});
  HostParameters cores{.cores = 4, .core_flops = 1'000'000'000, .memory = {1'000'000'000}};
  GpuBackend gpu(GpuModel(GpuConfig{}), &data);
  HostBackend host(cores, &data);
  LinkBackend link({.bandwidth = {1'000'000'000}, .latency = {}}, &data);
  Router router(&data);
  router.add(ResourceKind::gpu, gpu);
  router.add(ResourceKind::host, host);
  router.add(ResourceKind::host_to_gpu, link);
  router.add(ResourceKind::gpu_to_host, link);
  Executor executor(planner, router, {});
  executor.start({});
  while (!executor.finished()) executor.advance(executor.next_event());
  return {data.generated(),
          data.attention_digest(),
          data.tensors().size(),
          link.bytes(ResourceKind::gpu_to_host),
          link.bytes(ResourceKind::host_to_gpu),
          router.tensors().footprint(Place::gpu()).now,
          router.tensors().footprint(Place::host()).now};
}

Outcome run(const Model& model, PlaceKind home, bool forgets = false) {
  KvAtHome planner(model.shape, home, forgets);
  return run(model, planner, 1);
}

PlannerInputs inputs_of(const Model& model, std::uint32_t mini_batches) {
  PlannerInputs in;
  in.model = model.shape;
  in.workload = {{3, 2}, kNewTokens};
  in.span = {true, 0, kNewTokens - 1};
  in.mini_batches = mini_batches;
  return in;
}

}  // namespace

TEST_CASE("tokens do not depend on where K and V live") {
  const Model model;
  const PlannerInputs in = inputs_of(model, 1);
  DecoderData reference(*model.decoder, kPrompts, kNewTokens, 1, {});
  run_on_host(*builtin_systems().make("instinfer-dense")->plan(in), model.checkpoint.config, 2, reference);

  // The plain loop, which shares no code with the plan, generates the same; and the digest depends on the outputs.
  GenerationOptions options;
  options.max_new_tokens = kNewTokens;
  CHECK(reference.generated() ==
        generate_on_host(*model.decoder, std::make_unique<DenseAttention>(), kPrompts, options));
  auto other_prompts = kPrompts;
  other_prompts[1][0] = TokenId{45};
  DecoderData other(*model.decoder, other_prompts, kNewTokens, 1, {});
  run_on_host(*builtin_systems().make("instinfer-dense")->plan(in), model.checkpoint.config, 2, other);
  CHECK(other.attention_digest() != reference.attention_digest());

  const Bytes cache = model.shape.kv_bytes_per_token() * (3 + 2 + 2 * (kNewTokens - 1));
  const Bytes queries =
      model.shape.query_bytes({KvHead{0}, model.shape.kv_heads}) * (2 * (kNewTokens - 1) * model.shape.layers);
  const Outcome on_gpu = run(model, PlaceKind::gpu);
  CHECK(on_gpu.tokens == reference.generated());
  CHECK(on_gpu.digest == reference.attention_digest());
  CHECK(on_gpu.down == Bytes{});
  CHECK(on_gpu.gpu == cache);
  const Outcome in_host = run(model, PlaceKind::host);
  CHECK(in_host.tokens == reference.generated());
  CHECK(in_host.digest == reference.attention_digest());
  CHECK(in_host.host == cache);
  CHECK(in_host.gpu == Bytes{});
  CHECK(in_host.down == cache + queries);
  CHECK(in_host.up == queries);
  // Nothing stays but the caches, one per layer.
  CHECK(in_host.kept == model.shape.layers);
}

TEST_CASE("a planner that forgets a transfer fails, by name") {
  const Model model;
  CHECK_THROWS_AS(run(model, PlaceKind::host, true), InternalError);
  CHECK_THROWS_WITH(run(model, PlaceKind::host, true),
                    Contains("finish_layer reads attention_output") && Contains("at gpu, but it is at host"));
}

TEST_CASE("systems that keep K and V on the GPU or in host memory generate the reference's tokens") {
  const Model model;
  DecoderData reference(*model.decoder, kPrompts, kNewTokens, 1, {});
  run_on_host(*builtin_systems().make("instinfer-dense")->plan(inputs_of(model, 1)), model.checkpoint.config, 2,
              reference);
  const Bytes cache = model.shape.kv_bytes_per_token() * (3 + 2 + 2 * (kNewTokens - 1));
  HostKv at_host;
  at_host.attention = AttentionAt::host;
  for (const std::uint32_t mini_batches : {1U, 2U}) {
    const PlannerInputs in = inputs_of(model, mini_batches);
    const Outcome on_gpu = run(model, *GpuOnly().plan(in), mini_batches);
    const Outcome copied = run(model, *HostKv().plan(in), mini_batches);
    const Outcome in_place = run(model, *at_host.plan(in), mini_batches);
    for (const Outcome* out : {&on_gpu, &copied, &in_place}) {
      CHECK(out->tokens == reference.generated());
      CHECK(out->digest == reference.attention_digest());
      CHECK(out->kept == model.shape.layers * mini_batches);  // nothing stays but the caches
    }
    const Bytes weights = model.shape.weight_bytes();
    CHECK(on_gpu.gpu == cache + weights);
    CHECK(copied.gpu == weights);
    CHECK(copied.host == cache);
    CHECK(in_place.host == cache);
  }
}

}  // namespace test_places
