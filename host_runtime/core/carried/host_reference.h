// Drive operations of a plan done on the host: the reference that a drive's answer is compared with.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "host_runtime/core/attention/attention.h"
#include "host_runtime/core/attention/kv_cache.h"
#include "host_runtime/core/carried/operation_data.h"
#include "host_runtime/core/model/model_config.h"
#include "host_runtime/core/plan/executor.h"

namespace csdsim::host {

/// Keeps the KV cache of each drive in host memory and attends there: dense attention (partial, too), or SparQ with the
/// r, k and l of the operation. Tokens are scored and fetched there, too. Files and blocks are in host memory, too, and
/// feed-forward networks of drives are computed from there.
/// Takes no simulated time. The other operations go to OperationData as always, so that two runs of the same plan
/// differ in nothing but where attention happens.
class HostReference final : public host::OperationBackend {
 public:
  /// `sums` computes feed-forward networks of drives; plans without them need none.
  HostReference(const host::ModelConfig& model, std::uint32_t sequences, OperationData& data, NeuronSums sums = {});

  std::optional<SimTime> start(const host::Operation& op, SimTime now) override;
  void end(const host::Operation& op) override;

 private:
  /// The cache of an operation's heads.
  host::HostKvCache& cache_of(const host::Operation& op);
  void free_sequences(const host::Operation& op);
  void append(const host::Operation& op);
  void attend(const host::Operation& op);
  void attend_partially(const host::Operation& op, std::size_t index, std::span<const float> q);
  void score(const host::Operation& op);
  void fetch(const host::Operation& op);
  void access_file(const host::Operation& op);
  void access_blocks(const host::Operation& op);
  void feed_forward(const host::Operation& op);

  host::ModelConfig model_;
  OperationData& data_;
  std::uint32_t sequences_;
  NeuronSums sums_;
  /// By drive, and by the first head of its operations: heads may hold different tokens.
  std::map<std::pair<std::uint32_t, std::uint32_t>, host::HostKvCache> caches_;
  std::map<std::string, std::vector<std::byte>> files_;
  std::map<std::uint32_t, std::vector<std::byte>> blocks_;  ///< by drive
  std::map<host::OperationId, host::Operation> resolved_;   ///< running operations whose work depends on data
};

/// Runs a plan from start to end with attention on the host; before it, the plans that load the drives.
void run_on_host(host::Planner& planner, const host::ModelConfig& model, std::uint32_t sequences, OperationData& data,
                 const NeuronSums& sums = {});

}  // namespace csdsim::host
