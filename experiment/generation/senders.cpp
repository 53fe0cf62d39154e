#include "experiment/generation/senders.h"

#include <algorithm>
#include <memory>
#include <variant>

namespace csdsim::experiment {

Senders senders_of(const GenerationSetup& setup) {
  host::PlannerInputs inputs = setup.plan;
  inputs.model.layers = 1;
  inputs.drives = setup.platform.drives;
  // Prompts as long as those of the run: of a single token, no share of the tokens is left for most places. A second
  // step has new tokens of the first one.
  const std::uint32_t decode_steps = std::min(2U, inputs.workload.decode_steps());
  const std::uint32_t longest = std::ranges::max(inputs.workload.prompts());
  inputs.workload = {std::vector<std::uint32_t>(inputs.mini_batches, longest), decode_steps + 1};
  inputs.span = {.prefill = true, .first_step = 0, .decode_steps = decode_steps};
  const std::unique_ptr<host::Planner> planner = setup.system->plan(inputs);
  Senders senders;
  host::OperationSink sink;
  while (planner->next_step(sink))
    for (const host::Operation& op : sink.take()) {
      const bool copies = std::holds_alternative<host::LinkWork>(op.work);
      senders.to_gpu = senders.to_gpu || (copies && op.resource.kind == host::ResourceKind::host_to_gpu);
      senders.from_gpu = senders.from_gpu || (copies && op.resource.kind == host::ResourceKind::gpu_to_host);
      senders.peer_to_peer = senders.peer_to_peer || host::uses_peer_to_peer(op);
      const auto* const work = std::get_if<host::ComputeWork>(&op.work);
      senders.host_cores = senders.host_cores ||
                           (op.resource.kind == host::ResourceKind::host && work != nullptr && work->bytes().value > 0);
    }
  return senders;
}

bool shares_host_memory(const GenerationSetup& setup) {
  const auto memory = static_cast<double>(setup.host.memory.bytes_per_second);
  const double copies = double(setup.gpu_link.bandwidth.bytes_per_second) * setup.plan.gpus;
  // Streaming operators of the cores are the fastest ones.
  const double cores = memory * setup.host.efficiency.attention_decode.value();
  if (setup.host.cores == 0 || 2 * copies + cores <= memory) return false;
  const Senders senders = senders_of(setup);
  return (senders.to_gpu ? copies : 0) + (senders.from_gpu ? copies : 0) + (senders.host_cores ? cores : 0) > memory;
}

}  // namespace csdsim::experiment
