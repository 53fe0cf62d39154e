#include "host_runtime/core/plan/router.h"

#include <fmt/format.h>

#include <utility>

#include "base/error.h"
#include "host_runtime/core/plan/run_feature.h"

namespace csdsim::host {

void Router::add(ResourceKind kind, OperationBackend& backend) {
  OperationBackend*& entry = backends_[static_cast<std::size_t>(kind)];
  if (entry != nullptr) throw InternalError(fmt::format("{} has a backend already", resource_name({kind, 0})));
  entry = &backend;
}

OperationBackend& Router::backend(const Operation& op) const {
  OperationBackend* const found = backends_[static_cast<std::size_t>(op.resource.kind)];
  if (found == nullptr)
    throw InternalError(
        fmt::format("{}: no backend serves {}", operation_name(op.kind, op.tag), resource_name(op.resource)));
  return *found;
}

void Router::place(std::span<const PlacedTensor> tensors) {
  for (const PlacedTensor& tensor : tensors) tensors_.place(tensor);
}

std::optional<SimTime> Router::start(const Operation& op, SimTime now) {
  OperationBackend& serving = backend(op);
  const Operation* resolved = &op;
  if (features_ != nullptr) {
    if (std::optional<Work> work = features_->resolve(op)) {
      Operation& copy = resolved_.emplace(op.id, op).first->second;
      copy.work = std::move(*work);
      resolved = &copy;
    }
  }
  tensors_.begin(*resolved);
  return serving.start(*resolved, now);
}

Bytes Router::moved(const Operation& op) const {
  const auto found = resolved_.find(op.id);
  return moved_bytes((found == resolved_.end() ? op : found->second).work);
}

void Router::end(const Operation& op) {
  const auto found = resolved_.find(op.id);
  const Operation& resolved = found == resolved_.end() ? op : found->second;
  backend(op).end(resolved);
  if (work_ != nullptr) work_->ended(resolved);
  tensors_.end(resolved);
  if (found != resolved_.end()) resolved_.erase(found);
}

}  // namespace csdsim::host
