// Dispatches operations to backends by resource.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <optional>

#include "host_runtime/core/planner/operation_backend.h"
#include "host_runtime/core/planner/tensor_ledger.h"

namespace csdsim::host {

/// Passes each operation to the backend of its resource. It also keeps the ledger of tensors, and asks the resolver for
/// work that depends on data.
///
///   Router router(&work);                     // null in timing runs
///   router.add(ResourceKind::gpu, gpu);
///   router.add(ResourceKind::host_to_gpu, link);
///   Executor executor(planner, router, {});
class Router final : public OperationBackend {
 public:
  /// Returns the work of an operation if it depends on data (which tokens a fetch returns after a score, which records
  /// are active), or nothing to keep the planner's work. Called when the operation starts.
  using Resolver = std::function<std::optional<Work>(const Operation&)>;

  explicit Router(OperationWork* work = nullptr) : work_(work) {}

  /// `backend` serves all resources of the kind and must outlive this. Throws InternalError if the kind has a backend.
  void add(ResourceKind kind, OperationBackend& backend);
  void set_resolver(Resolver resolver) { resolver_ = std::move(resolver); }
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
  Resolver resolver_;
  TensorLedger tensors_;
  std::map<OperationId, Operation> resolved_;  ///< running operations whose work came from the resolver
};

}  // namespace csdsim::host
