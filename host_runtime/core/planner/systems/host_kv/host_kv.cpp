#include "host_runtime/core/planner/systems/host_kv/host_kv.h"

#include "host_runtime/core/planner/systems/host_kv/planner.h"

namespace csdsim::host {

void HostKv::describe(ParamVisitor& v) {
  v.param("attention", attention, "Processor that attends in decode.", paper("FlexGen 4.1: both are offered"));
  v.param("kv_buffers", kv_buffers, {1, 1024},
          "Layers whose K and V the GPU holds per mini-batch: on their way to the host in the prefill, copied ahead in "
          "decode with attention: gpu.",
          assumed("double buffering"));
}

SystemNeeds HostKv::needs(const ModelShape& model, const BatchLengths& workload) const {
  return {.kv = Home::host,
          .residents = {{Home::gpu, "weights", model.weight_bytes()},
                        {Home::host, "K and V", model.kv_bytes_per_token() * workload.longest_contexts()}}};
}

std::unique_ptr<Planner> HostKv::plan(const PlannerInputs& inputs) const {
  return std::make_unique<HostKvPlanner>(inputs, attention, kv_buffers);
}

}  // namespace csdsim::host
