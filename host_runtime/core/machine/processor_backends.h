// Backends of processors and links: they take times from models and call OperationWork for the data.
#pragma once

#include <map>
#include <span>

#include "host_runtime/core/machine/gpu_model.h"
#include "host_runtime/core/plan/operation_backend.h"

namespace csdsim::host {

/// Runs GPU operations in GpuModel::time().
class GpuBackend final : public OperationBackend {
 public:
  /// `work` is null in timing runs.
  explicit GpuBackend(GpuModel model, OperationWork* work = nullptr) : model_(std::move(model)), work_(work) {}
  std::optional<SimTime> start(const Operation& op, SimTime now) override;

  /// Runs work that is no operation of the plan one after the other on GPU `gpu`, once its operations have ended that
  /// run now; later ones wait for it. Returns when it ends.
  SimTime run_between(std::uint32_t gpu, std::span<const ComputeWork> work, SimTime now);
  /// Time of this work, less the time that operations have waited for it.
  SimTime between() const { return between_; }

 private:
  struct Busy {
    SimTime operations;  ///< until then
    SimTime between;
  };
  GpuModel model_;
  OperationWork* work_;
  std::map<std::uint32_t, Busy> busy_;  ///< by GPU
  SimTime between_;
};

/// The host's cores and memory.
struct HostParameters {
  std::uint32_t cores = 0;
  std::uint64_t core_flops = 0;  ///< peak of one core, operations per second; a multiply-add is two
  Bandwidth memory = {};         ///< memory bandwidth of all cores together
  /// Concurrent operations (ExecutorConfig::slots); they share cores and memory bandwidth evenly.
  std::uint32_t slots = 1;
  SimTime launch = {};  ///< added per ComputeWork::launches
  /// Shares of the peaks that operators reach, as for a GPU.
  RooflineEfficiency efficiency = {
      .gemm = {1, 1}, .gemv = {1, 1}, .attention_prefill = {1, 1}, .attention_decode = {1, 1}, .elementwise = {1, 1}};
};

/// Runs host operations in the time of a roofline over their share of the cores:
/// max(flops / (cores / slots x core_flops x compute share), bytes / (memory / slots x memory share)) + launches x
/// launch.
class HostBackend final : public OperationBackend {
 public:
  /// Throws UserError if a peak or `slots` is zero, there are more slots than cores, or a share is outside (0, 1].
  explicit HostBackend(const HostParameters& parameters, OperationWork* work = nullptr);
  std::optional<SimTime> start(const Operation& op, SimTime now) override;

 private:
  GpuModel roofline_;
  OperationWork* work_;
};

/// A link between host and GPU. A transfer in either direction takes latency + bytes / bandwidth.
struct LinkModel {
  Bandwidth bandwidth = {};
  SimTime latency = {};
};

/// Runs transfers over the link between host and GPU, one operation at a time in each direction.
class LinkBackend final : public OperationBackend {
 public:
  /// Throws UserError if the bandwidth is 0.
  explicit LinkBackend(const LinkModel& model, OperationWork* work = nullptr);
  std::optional<SimTime> start(const Operation& op, SimTime now) override;

  /// Bytes of all transfers so far in one direction.
  Bytes bytes(ResourceKind direction) const { return bytes_[static_cast<std::size_t>(direction)]; }

 private:
  LinkModel model_;
  OperationWork* work_;
  std::array<Bytes, kResourceKinds> bytes_{};
};

}  // namespace csdsim::host
