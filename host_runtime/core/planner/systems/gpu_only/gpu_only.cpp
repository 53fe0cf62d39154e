#include "host_runtime/core/planner/systems/gpu_only/gpu_only.h"

namespace csdsim::host {

SystemNeeds GpuOnly::needs(const ModelShape& model, const BatchLengths& workload) const {
  return {.kv = Home::gpu,
          .residents = {{Home::gpu, "weights", model.weight_bytes()},
                        {Home::gpu, "K and V", model.kv_bytes_per_token() * workload.longest_contexts()}}};
}

std::unique_ptr<Planner> GpuOnly::plan(const PlannerInputs& inputs) const {
  return std::make_unique<GpuOnlyPlanner>(inputs);
}

std::vector<PlacedTensor> GpuOnlyPlanner::resident() const {
  std::vector<PlacedTensor> tensors = LayerPlanner::resident();
  for (PlacedTensor& cache : caches_at(Place::gpu())) tensors.push_back(std::move(cache));
  return tensors;
}

void GpuOnlyPlanner::keep(OperationSink& sink, const Part& part, OperationId projected) {
  const HeadRange heads = shards().front();
  const TensorName kv = new_kv(part, heads).name;
  // The projections write k and v to the cache directly, so this operation takes no time.
  sink.add(OpKind::append_kv, Resource::gpu(), part.tag, ComputeWork{.launches = 0}, {projected},
           {.reads = {kv}, .writes = {cache(part, heads)}, .drops = {{kv, Place::gpu()}}});
}

LayerPlanner::Outputs GpuOnlyPlanner::attend(OperationSink& sink, const Part& part, OperationId projected) {
  const HeadRange heads = shards().front();
  const TensorName q = queries(part, heads).name, kv = new_kv(part, heads).name;
  const SizedTensor output = attention_output(part, heads), kept = cache(part, heads);
  const OperationId attention = sink.add(
      OpKind::attention, Resource::gpu(), part.tag, model().decode_attention(part.sequences.count, context(part)),
      {projected},
      {.reads = {q, kv, kept.name}, .writes = {output, kept}, .drops = {{q, Place::gpu()}, {kv, Place::gpu()}}});
  return {{attention}, {output.name}};
}

}  // namespace csdsim::host
