#include "host_runtime/core/systems/kvpr/planner.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "host_runtime/core/plan/kept_kv.h"

namespace csdsim::host {

SplitCosts split_costs(const ModelShape& model, Place activations, const RowQuantisation& kv) {
  const Bytes x{std::uint64_t{model.width} * model.element_bytes};
  return {.activations = activations == Place::host() ? x : Bytes{},
          .kv = kept_kv_bytes(model, kv) * model.kv_heads,
          .flops = model.recompute_kv(1).flops};
}

KvprPlanner::KvprPlanner(const PlannerInputs& inputs, const KvprPlan& plan, const WeightPlacement& weights)
    : LayerPlanner(inputs, shard_heads(inputs.model.kv_heads, 1), weights, plan.format),
      plan_(plan),
      layers_(mini_batches(), std::vector<Layer>(inputs.model.layers)),
      freed_(mini_batches()) {
  if (plan_.kv_buffers == 0) throw UserError("system: kv_buffers is 0, must be at least 1");
}

std::vector<std::uint32_t> KvprPlanner::recomputed(const Part& part) const {
  std::vector<std::uint32_t> cached, prompts;
  for (const StepSequence& s : part.sequences) {
    cached.push_back(s.first_token);
    prompts.push_back(prompt(s));
  }
  return split_of_sequences({.costs = split_costs(model(), plan_.activations, plan_.format),
                             .rates = plan_.rates,
                             .share = plan_.share,
                             .step = plan_.split_step},
                            cached, prompts);
}

SizedTensor KvprPlanner::kept_activations(const Part& part) const {
  std::uint64_t prompts = 0;
  for (const StepSequence& s : part.sequences) prompts += prompt(s);
  return {TensorName::kept(TensorClass::layer_input, part.tag.layer, part.tag.mini_batch),
          Bytes{std::uint64_t{model().width} * model().element_bytes * prompts}};
}

SizedTensor KvprPlanner::copied_activations(const Part& part, std::uint64_t tokens) const {
  return {TensorName::of(TensorClass::layer_input, part.tag),
          Bytes{std::uint64_t{model().width} * model().element_bytes * tokens}};
}

SizedTensor KvprPlanner::step_cache(const Part& part, std::uint32_t of, std::uint64_t tokens) const {
  const Bytes of_head = of == 0 ? model().kv_bytes_per_token_and_head() : kept_kv_bytes(model(), kv_format());
  return {TensorName::of(TensorClass::kv_cache, part.tag, heads(), of), of_head * model().kv_heads * tokens};
}

std::vector<PlacedTensor> KvprPlanner::resident() const {
  std::vector<PlacedTensor> tensors = LayerPlanner::resident();
  for (PlacedTensor& cache : caches_at(Place::host())) tensors.push_back(std::move(cache));
  if (inputs().span.prefill) return tensors;
  for (std::uint32_t layer = 0; layer < model().layers; ++layer)
    for (std::uint32_t mb = 0; mb < mini_batches(); ++mb) {
      const Part part = first_part(layer, mb);
      const SizedTensor kept = kept_activations(part);
      tensors.push_back({kept.name, on_host() ? Place::host() : gpu_memory(part.tag), kept.bytes});
    }
  return tensors;
}

LayerPlanner::Ids KvprPlanner::room_for(const Part& part) const {
  if (part.layer() < plan_.kv_buffers) return {};
  const Layer& layer = layers_[part.mini_batch()][part.layer() - plan_.kv_buffers];
  Ids room = layer.kv;
  room.insert(room.end(), layer.activations.begin(), layer.activations.end());
  return room;
}

std::vector<SizedTensor> KvprPlanner::kept_inputs(const Part& part) const {
  if (part.tag.phase == Phase::decode) return {};
  return {kept_activations(part)};
}

LayerPlanner::Ids KvprPlanner::store_kv(OperationSink& sink, const Part& part, OperationId made) {
  const SizedTensor kv = new_kv(part, heads());
  Ids before = {transfer(sink, ResourceKind::gpu_to_host, part.tag, LinkPayload::kv, {made}, {kv})};
  before.insert(before.end(), state(part).kv.begin(), state(part).kv.end());
  // The transfer has written k and v to the cache already, so appending takes no time.
  return {sink.add(OpKind::append_kv, Resource::host(), part.tag, ComputeWork{.launches = 0}, std::move(before),
                   {.reads = {kv.name}, .writes = {cache(part, heads())}, .drops = {{kv.name, Place::host()}}})};
}

LayerPlanner::Ids KvprPlanner::store_activations(OperationSink& sink, const Part& part, OperationId made) {
  if (!on_host()) return {made};
  return {
      transfer(sink, ResourceKind::gpu_to_host, part.tag, LinkPayload::activations, {made}, {kept_activations(part)})};
}

void KvprPlanner::keep(OperationSink& sink, const Part& part, OperationId projected) {
  state(part).activations = store_activations(sink, part, projected);
  state(part).kv = store_kv(sink, part, projected);
}

OperationId KvprPlanner::recompute(OperationSink& sink, const Part& part, const std::vector<TokenSlice>& slices,
                                   std::uint64_t tokens, Ids room) {
  const SizedTensor kept = kept_activations(part), copy = copied_activations(part, tokens);
  const SizedTensor made = step_cache(part, 0, tokens);
  TensorUses uses{.reads = {kept.name}, .writes = {made}, .tokens = slices};
  Ids before = state(part).activations;
  before.insert(before.end(), room.begin(), room.end());
  if (on_host()) {
    const OperationId copied = sink.add(OpKind::transfer, {ResourceKind::host_to_gpu, gpu_index(part.tag)}, part.tag,
                                        LinkWork{copy.bytes, LinkPayload::activations}, std::move(before),
                                        {.reads = {kept.name}, .writes = {copy}, .tokens = slices});
    before = {copied};
    uses = {.reads = {copy.name}, .writes = {made}, .drops = {{copy.name, gpu_memory(part.tag)}}};
  }
  const Ids& weights = plan_.hides_recomputation ? kv_weights_copied(part) : weights_copied(part);
  before.insert(before.end(), weights.begin(), weights.end());
  // The GPU does not recompute for this layer before the attention of the one before it: nothing waits for that longer.
  if (!freed_[part.mini_batch()].empty()) before.push_back(freed_[part.mini_batch()].back());
  return sink.add(OpKind::recompute_kv, gpu(part.tag), part.tag, model().recompute_kv(tokens), std::move(before),
                  std::move(uses));
}

LayerPlanner::Outputs KvprPlanner::attend(OperationSink& sink, const Part& part, OperationId projected) {
  const std::vector<std::uint32_t> split = recomputed(part);
  std::vector<TokenSlice> first, others;
  std::uint64_t travelling = 0;
  for (std::size_t i = 0; i < split.size(); ++i) {
    const StepSequence& s = part.sequences[i];
    first.push_back({s.sequence, 0, split[i]});
    others.push_back({s.sequence, split[i], s.first_token - split[i]});
    travelling += s.first_token - split[i];
  }
  const std::uint64_t recomputing = std::accumulate(split.begin(), split.end(), std::uint64_t{0});

  Ids& freed = freed_[part.mini_batch()];
  Ids room;
  if (freed.size() >= plan_.kv_buffers) room.push_back(freed[freed.size() - plan_.kv_buffers]);
  Ids ready = {projected};
  const TensorName q = queries(part, heads()).name, kv = new_kv(part, heads()).name;
  const Place memory = gpu_memory(part.tag);
  // The new tokens join the copy.
  const SizedTensor copy = step_cache(part, 1, travelling), grown = step_cache(part, 1, travelling + part.tokens);
  const SizedTensor output = attention_output(part, heads());
  TensorUses uses{.reads = {q, kv}, .writes = {output, grown}, .drops = {{q, memory}, {grown.name, memory}}};
  if (recomputing > 0) {
    ready.push_back(recompute(sink, part, first, recomputing, room));
    uses.reads.push_back(step_cache(part, 0, recomputing).name);
    uses.drops.push_back({step_cache(part, 0, recomputing).name, memory});
  }
  if (travelling > 0) {
    Ids before = state(part).kv;
    before.insert(before.end(), room.begin(), room.end());
    ready.push_back(sink.add(OpKind::transfer, {ResourceKind::host_to_gpu, gpu_index(part.tag)}, part.tag,
                             LinkWork{copy.bytes, LinkPayload::kv}, std::move(before),
                             {.reads = {cache_before(part, heads()).name}, .writes = {copy}, .tokens = others}));
    uses.reads.push_back(copy.name);
  }
  const ComputeWork work = attention_work(part, travelling + part.tokens, memory, uses);
  const OperationId attention =
      sink.add(OpKind::attention, gpu(part.tag), part.tag, work, std::move(ready), std::move(uses));
  freed.push_back(attention);
  if (freed.size() > plan_.kv_buffers) freed.erase(freed.begin());
  state(part).kv = store_kv(sink, part, attention);
  return {{attention}, {output.name}};
}

}  // namespace csdsim::host
