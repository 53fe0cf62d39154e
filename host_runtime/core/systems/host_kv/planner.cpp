#include "host_runtime/core/systems/host_kv/planner.h"

#include <utility>

#include "base/error.h"

namespace csdsim::host {

HostAttentionPlanner::HostAttentionPlanner(const PlannerInputs& inputs, std::uint32_t kv_buffers,
                                           const WeightPlacement& weights, const RowQuantisation& kv)
    : LayerPlanner(inputs, shard_heads(inputs.model.kv_heads, 1), weights, kv),
      kv_buffers_(kv_buffers),
      stored_(mini_batches(), std::vector<Ids>(inputs.model.layers)) {
  if (kv_buffers_ == 0) throw UserError("system: kv_buffers is 0, must be at least 1");
}

std::vector<PlacedTensor> HostAttentionPlanner::resident() const {
  std::vector<PlacedTensor> tensors = LayerPlanner::resident();
  for (PlacedTensor& cache : caches_at(Place::host())) tensors.push_back(std::move(cache));
  return tensors;
}

LayerPlanner::Ids HostAttentionPlanner::room_for(const Part& part) const {
  if (part.layer() < kv_buffers_) return {};
  return stored_[part.mini_batch()][part.layer() - kv_buffers_];
}

void HostAttentionPlanner::keep(OperationSink& sink, const Part& part, OperationId projected) {
  const HeadRange heads = shards().front();
  const SizedTensor kv = new_kv(part, heads);
  const OperationId moved = transfer(sink, ResourceKind::gpu_to_host, part.tag, LinkPayload::kv, {projected}, {kv});
  Ids& stored = stored_[part.mini_batch()][part.layer()];
  Ids before = {moved};
  before.insert(before.end(), stored.begin(), stored.end());
  // The transfer has written k and v to the cache already, so this operation takes no time.
  const OperationId appended =
      sink.add(OpKind::append_kv, Resource::host(), part.tag, ComputeWork{.launches = 0}, std::move(before),
               {.reads = {kv.name}, .writes = {cache(part, heads)}, .drops = {{kv.name, Place::host()}}});
  stored = {appended};
}

LayerPlanner::Outputs HostAttentionPlanner::attend(OperationSink& sink, const Part& part, OperationId projected) {
  const HeadRange heads = shards().front();
  const SizedTensor q = queries(part, heads), kv = new_kv(part, heads);
  const SizedTensor output = attention_output(part, heads), kept = cache(part, heads);
  Ids before = {transfer(sink, ResourceKind::gpu_to_host, part.tag, LinkPayload::kv, {projected}, {q, kv})};
  Ids& stored = stored_[part.mini_batch()][part.layer()];
  before.insert(before.end(), stored.begin(), stored.end());
  TensorUses uses{.reads = {q.name, kv.name, kept.name},
                  .writes = {output, kept},
                  .drops = {{q.name, Place::host()}, {kv.name, Place::host()}}};
  const ComputeWork work = attention_work(part, context(part), Place::host(), uses);
  const OperationId attention =
      sink.add(OpKind::attention, Resource::host(), part.tag, work, std::move(before), std::move(uses));
  stored = {attention};
  return {{transfer(sink, ResourceKind::host_to_gpu, part.tag, LinkPayload::activations, {attention}, {output})},
          {output.name}};
}

void HostAttentionPlanner::release(OperationSink& sink, const Part& part) {
  Ids& stored = stored_[part.mini_batch()][part.layer()];
  stored = {free_cache(sink, Resource::host(), part, shards().front(), stored)};
}

}  // namespace csdsim::host
