// Times the GPU and the links by model and hands everything else on.
#pragma once

#include "host_runtime/core/planner/executor.h"
#include "host_runtime/core/planner/gpu_model.h"

namespace csdsim::host {

/// A link between host and GPU, the same in both directions: latency + bytes / bandwidth.
struct LinkModel {
  Bandwidth bandwidth = {};
  SimTime latency = {};
};

/// GPU operations take GpuModel::time(), transfers LinkModel time; drives and the host processor belong to `others`.
class PlatformBackend final : public OperationBackend {
 public:
  PlatformBackend(const GpuModel& gpu, const LinkModel& link, OperationBackend& others);
  std::optional<SimTime> start(const Operation& op, SimTime now) override;

 private:
  GpuModel gpu_;
  LinkModel link_;
  OperationBackend& others_;
};

}  // namespace csdsim::host
