#include "host_runtime/core/planner/platform_backend.h"

#include "base/error.h"

namespace csdsim::host {

PlatformBackend::PlatformBackend(const GpuModel& gpu, const LinkModel& link, OperationBackend& others)
    : gpu_(gpu), link_(link), others_(others) {
  if (link.bandwidth.bytes_per_second == 0) throw UserError("link between host and gpu: bandwidth is 0");
}

std::optional<SimTime> PlatformBackend::start(const Operation& op, SimTime now) {
  switch (op.resource.kind) {
    case ResourceKind::gpu:
      return gpu_.time(std::get<ComputeWork>(op.work));
    case ResourceKind::host_to_gpu:
    case ResourceKind::gpu_to_host:
      return link_.latency + transfer_time(std::get<LinkWork>(op.work).bytes, link_.bandwidth);
    case ResourceKind::host:
    case ResourceKind::drive:
      break;
  }
  return others_.start(op, now);
}

}  // namespace csdsim::host
