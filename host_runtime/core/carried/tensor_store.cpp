#include "host_runtime/core/carried/tensor_store.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>
#include <utility>

namespace csdsim::host {

namespace {

/// Bytes of values whose size a plan states; nothing for a processor's own formats.
std::optional<Bytes> size_of(const std::any& value) {
  if (const auto* rows = std::any_cast<std::vector<Half>>(&value)) return Bytes{rows->size() * sizeof(Half)};
  if (const auto* partial = std::any_cast<PartialRows>(&value)) return partial->bytes();
  if (const auto* quantised = std::any_cast<QuantisedRows>(&value)) return Bytes{quantised->bytes.size()};
  return std::nullopt;
}

}  // namespace

void TensorStore::put(const TensorName& name, Place place, std::any value) {
  tensors_[name].insert_or_assign(place, std::move(value));
}

bool TensorStore::has(const TensorName& name, Place place) const {
  const auto tensor = tensors_.find(name);
  return tensor != tensors_.end() && tensor->second.count(place) > 0;
}

std::any& TensorStore::find(const TensorName& name, Place place, std::string_view user) {
  const auto tensor = tensors_.find(name);
  std::vector<std::string> places;
  if (tensor != tensors_.end()) {
    const auto copy = tensor->second.find(place);
    if (copy != tensor->second.end()) {
      if (const auto* const awaited = std::any_cast<AwaitedRows>(&copy->second)) copy->second = awaited->get();
      return copy->second;
    }
    for (const auto& [other, value] : tensor->second) places.push_back(place_name(other));
  }
  throw InternalError(fmt::format("{} reads {} at {}, but it is {}", user, tensor_name(name), place_name(place),
                                  places.empty() ? "nowhere" : fmt::format("at {}", fmt::join(places, ", "))));
}

void TensorStore::transfer(const Operation& op) {
  const std::string user = operation_name(op.kind, op.tag);
  for (const SizedTensor& write : op.tensors.writes) {
    if (write.name.what == TensorClass::weights) continue;  // the decoder has them at hand
    std::any value = find(write.name, input_place(op, write.name.what), user);
    if (const std::optional<Bytes> size = size_of(value); size && *size != write.bytes)
      throw InternalError(fmt::format("{}: {} has {} B, the plan says {} B", user, tensor_name(write.name), size->value,
                                      write.bytes.value));
    put(write.name, output_place(op, write.name.what), std::move(value));
  }
}

void TensorStore::drop(const Operation& op) {
  for (const TensorAt& gone : op.tensors.drops) {
    const auto tensor = tensors_.find(gone.name);
    if (tensor == tensors_.end()) continue;  // a tensor of the ledger alone: weights, a drive's K and V
    tensor->second.erase(gone.place);
    if (tensor->second.empty()) tensors_.erase(tensor);
  }
}

std::size_t TensorStore::size() const {
  std::size_t copies = 0;
  for (const auto& [name, places] : tensors_) copies += places.size();
  return copies;
}

}  // namespace csdsim::host
