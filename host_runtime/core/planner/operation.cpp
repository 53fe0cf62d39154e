#include "host_runtime/core/planner/operation.h"

#include <fmt/format.h>

namespace csdsim::host {

std::string resource_name(Resource resource) {
  switch (resource.kind) {
    case ResourceKind::gpu:
      return "gpu";
    case ResourceKind::host:
      return "host";
    case ResourceKind::host_to_gpu:
      return "link host to gpu";
    case ResourceKind::gpu_to_host:
      return "link gpu to host";
    case ResourceKind::drive:
      return fmt::format("drive {}", resource.index);
  }
  return "?";
}

std::string operation_name(OpKind kind, const OpTag& tag) {
  const std::string phase = tag.phase == Phase::prefill ? "prefill" : fmt::format("decode {}", tag.step);
  const std::string layer = tag.layer ? fmt::format(" layer {}", tag.layer->value) : "";
  return fmt::format("{}{} mini-batch {} {}", phase, layer, tag.mini_batch.value,
                     kOpKindNames[static_cast<std::size_t>(kind)]);
}

}  // namespace csdsim::host
