// One backend per resource: hands each operation to the one that serves what it occupies.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <optional>

#include "host_runtime/core/planner/operation_backend.h"
#include "host_runtime/core/planner/tensor_ledger.h"

namespace csdsim::host {

/// Also keeps the ledger of tensors, and asks the resolver for what only the moment tells.
///
///   Router router(&work);                     // null in timing runs
///   router.add(ResourceKind::gpu, gpu);
///   router.add(ResourceKind::host_to_gpu, link);
///   Executor executor(planner, router, {});
class Router final : public OperationBackend {
 public:
  /// The work of an operation where it depends on data (which tokens a fetch returns after a score, which records are
  /// active); nothing where the planner's stands. Called when the operation starts.
  using Resolver = std::function<std::optional<Work>(const Operation&)>;

  explicit Router(OperationWork* work = nullptr) : work_(work) {}

  /// `backend` serves all resources of the kind and must outlive this. InternalError if the kind has one already.
  void add(ResourceKind kind, OperationBackend& backend);
  void set_resolver(Resolver resolver) { resolver_ = std::move(resolver); }
  TensorLedger& tensors() { return tensors_; }
  const TensorLedger& tensors() const { return tensors_; }

  void place(std::span<const PlacedTensor> tensors) override;
  /// InternalError that names the operation and its resource where nobody serves it.
  std::optional<SimTime> start(const Operation& op, SimTime now) override;
  void end(const Operation& op) override;

 private:
  OperationBackend& backend(const Operation& op) const;

  OperationWork* work_;
  std::array<OperationBackend*, kResourceKinds> backends_{};
  Resolver resolver_;
  TensorLedger tensors_;
  std::map<OperationId, Operation> resolved_;  ///< running operations whose work the resolver settled
};

}  // namespace csdsim::host
