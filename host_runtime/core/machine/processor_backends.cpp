#include "host_runtime/core/machine/processor_backends.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace csdsim::host {

namespace {

template <class T>
const T& work_of(const Operation& op) {
  const T* const work = std::get_if<T>(&op.work);
  if (work == nullptr)
    throw InternalError(
        fmt::format("{} is not an operation of {}", operation_name(op.kind, op.tag), resource_name(op.resource)));
  return *work;
}

/// Memory is freed in no time.
bool frees_memory(const Operation& op) { return op.kind == OpKind::free_kv; }

GpuConfig share_of(const HostParameters& host) {
  if (host.cores == 0 || host.slots == 0 || host.slots > host.cores)
    throw UserError(
        fmt::format("host: {} concurrent operations on {} cores; the number must be 1 to the number of cores",
                    host.slots, host.cores));
  GpuConfig share;
  share.fp16_rate = ComputeRate{host.core_flops * host.cores / host.slots};
  share.memory_bandwidth = {host.memory.bytes_per_second / host.slots};
  share.kernel_launch = host.launch;
  share.efficiency = host.efficiency;
  return share;
}

}  // namespace

std::optional<SimTime> GpuBackend::start(const Operation& op, SimTime now) {
  if (work_ != nullptr) work_->perform(op);
  if (frees_memory(op)) return SimTime{};
  const SimTime duration = model_.time(work_of<ComputeWork>(op));
  Busy& busy = busy_[op.resource.index];
  const SimTime begin = std::max(now, busy.between);
  between_ -= begin - now;
  busy.operations = std::max(busy.operations, begin + duration);
  return begin + duration - now;
}

SimTime GpuBackend::run_between(std::uint32_t gpu, std::span<const ComputeWork> work, SimTime now) {
  Busy& busy = busy_[gpu];
  SimTime end = std::max({now, busy.operations, busy.between});
  for (const ComputeWork& one : work) {
    const SimTime duration = model_.time(one);
    end += duration;
    between_ += duration;
  }
  return busy.between = end;
}

HostBackend::HostBackend(const HostParameters& parameters, OperationWork* work)
    : roofline_(share_of(parameters)), work_(work) {}

std::optional<SimTime> HostBackend::start(const Operation& op, SimTime) {
  if (work_ != nullptr) work_->perform(op);
  if (frees_memory(op)) return SimTime{};
  return roofline_.time(work_of<ComputeWork>(op));
}

LinkBackend::LinkBackend(const LinkModel& model, OperationWork* work) : model_(model), work_(work) {
  if (model.bandwidth.bytes_per_second == 0) throw UserError("link between host and gpu: bandwidth is 0");
}

std::optional<SimTime> LinkBackend::start(const Operation& op, SimTime) {
  const Bytes bytes = work_of<LinkWork>(op).bytes;
  if (work_ != nullptr) work_->perform(op);
  bytes_[static_cast<std::size_t>(op.resource.kind)] += bytes;
  return model_.latency + transfer_time(bytes, model_.bandwidth);
}

}  // namespace csdsim::host
