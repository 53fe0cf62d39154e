// Drive operations of a plan done on the host: the reference that a drive's answer is compared with.
#pragma once

#include <memory>
#include <optional>

#include "csd_model/generation/operation_data.h"
#include "host_runtime/core/attention.h"
#include "host_runtime/core/kv_cache.h"
#include "host_runtime/core/model_config.h"
#include "host_runtime/core/planner/executor.h"

namespace csd_model {

/// Keeps the KV cache in host memory and attends there: dense attention, or SparQ with the r, k and l of the operation.
/// Takes no simulated time. The other operations go to OperationData as always, so that two runs of the same plan
/// differ in nothing but where attention happens.
class HostBackend final : public csdsim::host::OperationBackend {
 public:
  HostBackend(const csdsim::host::ModelConfig& model, std::uint32_t sequences, OperationData& data);

  std::optional<csdsim::SimTime> start(const csdsim::host::Operation& op, csdsim::SimTime now) override;

 private:
  void append(const csdsim::host::Operation& op);
  void attend(const csdsim::host::Operation& op);

  csdsim::host::ModelConfig model_;
  OperationData& data_;
  csdsim::host::HostKvCache cache_;
};

/// Runs a plan from start to end with attention on the host.
void run_on_host(csdsim::host::Planner& planner, const csdsim::host::ModelConfig& model, std::uint32_t sequences,
                 OperationData& data);

}  // namespace csd_model
