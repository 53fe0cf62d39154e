// Dispatches operations to backends by resource.
#pragma once

#include <array>
#include <map>
#include <optional>

#include "host_runtime/core/plan/operation_backend.h"
#include "host_runtime/core/plan/tensor_ledger.h"

namespace csdsim::host {

class RunFeatures;

/// Passes each operation to the backend of its resource. It also keeps the ledger of tensors, and asks the features for
/// work that depends on data: which tokens a fetch returns after a score, which records are active.
///
///   Router router(&work);                     // null in timing runs
///   router.add(ResourceKind::gpu, gpu);
///   router.add(ResourceKind::host_to_gpu, link);
///   Executor executor(planner, router, {});
class Router final : public OperationBackend {
 public:
  explicit Router(OperationWork* work = nullptr) : work_(work) {}

  /// `backend` serves all resources of the kind and must outlive this. Throws InternalError if the kind has a backend.
  void add(ResourceKind kind, OperationBackend& backend);
  /// Whom it asks when an operation starts; they must outlive this.
  void set_features(const RunFeatures& features) { features_ = &features; }
  TensorLedger& tensors() { return tensors_; }
  const TensorLedger& tensors() const { return tensors_; }

  void place(std::span<const PlacedTensor> tensors) override;
  /// Throws InternalError with the operation and its resource if no backend serves it.
  std::optional<SimTime> start(const Operation& op, SimTime now) override;
  void end(const Operation& op) override;
  Bytes moved(const Operation& op) const override;

 private:
  OperationBackend& backend(const Operation& op) const;

  OperationWork* work_;
  std::array<OperationBackend*, kResourceKinds> backends_{};
  const RunFeatures* features_ = nullptr;
  TensorLedger tensors_;
  std::map<OperationId, Operation> resolved_;  ///< running operations whose work depends on data
};

}  // namespace csdsim::host
