#include "host_runtime/core/plan/tensor_ledger.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "base/error.h"

namespace csdsim::host {

namespace {

double mib(Bytes bytes) { return static_cast<double>(bytes.value) * 0x1p-20; }

}  // namespace

void TensorLedger::forget_tensors() {
  tensors_.clear();
  for (auto& [place, footprint] : footprints_) {
    footprint.now = {};
    footprint.of_class = {};
  }
}

void TensorLedger::place(const PlacedTensor& tensor) {
  resize(tensor.name, tensor.place, tensors_[tensor.name][tensor.place], tensor.bytes);
}

void TensorLedger::check_input(const Operation& op, const TensorName& name) const {
  const Place wanted = input_place(op, name.what);
  const auto tensor = tensors_.find(name);
  const auto refuse = [&](const std::string& instead) {
    throw InternalError(fmt::format("{} reads {} at {}, but it is {}", operation_name(op.kind, op.tag),
                                    tensor_name(name), place_name(wanted), instead));
  };
  if (tensor == tensors_.end() || tensor->second.empty()) refuse("nowhere");
  const auto copy = tensor->second.find(wanted);
  if (copy == tensor->second.end()) {
    std::vector<std::string> places;
    for (const auto& [place, entry] : tensor->second) places.push_back(place_name(place));
    refuse(fmt::format("at {}", fmt::join(places, ", ")));
  }
  if (copy->second.writer)
    refuse(fmt::format("still being written by operation {}: a dependency is missing", copy->second.writer->value));
}

/// Checks that the bytes of a transfer, which determine its time, equal those of its tensors: of those that it writes
/// if it takes a part of the tokens of those that it reads.
void TensorLedger::check_transfer(const Operation& op) const {
  const auto* link = std::get_if<LinkWork>(&op.work);
  if (link == nullptr || op.tensors.reads.empty()) return;
  // Records have buffers of one size; how much is in them depends on data.
  if (op.tensors.reads.front().what == TensorClass::records) return;
  Bytes sum;
  for (const TensorName& name : op.tensors.reads) sum += tensors_.at(name).at(input_place(op, name.what)).bytes;
  if (!op.tensors.tokens.empty()) {
    const Bytes whole = sum;
    sum = {};
    for (const SizedTensor& write : op.tensors.writes) sum += write.bytes;
    if (sum > whole)
      throw InternalError(fmt::format("{} takes {} B of tensors that have {} B", operation_name(op.kind, op.tag),
                                      sum.value, whole.value));
  }
  if (op.tensors.bounds ? sum < link->bytes : sum != link->bytes)
    throw InternalError(fmt::format("{} moves {} B, but its tensors have {} B", operation_name(op.kind, op.tag),
                                    link->bytes.value, sum.value));
}

/// Nothing is computed or moved: the operation stands for what has been done before it.
bool TensorLedger::takes_no_time(const Operation& op) {
  const auto* work = std::get_if<ComputeWork>(&op.work);
  return work != nullptr && *work == ComputeWork{.launches = 0};
}

void TensorLedger::drop_all(const Operation& op) {
  for (const TensorAt& drop : op.tensors.drops) {
    const auto tensor = tensors_.find(drop.name);
    const auto copy = tensor == tensors_.end() ? Copies::iterator{} : tensor->second.find(drop.place);
    if (tensor == tensors_.end() || copy == tensor->second.end())
      throw InternalError(fmt::format("{} drops {} at {}, where it is not", operation_name(op.kind, op.tag),
                                      tensor_name(drop.name), place_name(drop.place)));
    resize(drop.name, drop.place, copy->second, Bytes{});
    tensor->second.erase(copy);
    if (tensor->second.empty()) tensors_.erase(tensor);
  }
}

void TensorLedger::begin(const Operation& op) {
  for (const TensorName& name : op.tensors.reads) check_input(op, name);
  check_transfer(op);
  // New keys and values that were written to their places in the cache are not there twice.
  if (takes_no_time(op)) drop_all(op);
  for (const SizedTensor& write : op.tensors.writes) {
    const Place place = output_place(op, write.name.what);
    Entry& entry = tensors_[write.name][place];
    if (entry.writer)
      throw InternalError(fmt::format("{} writes {} at {} while operation {} does: a dependency is missing",
                                      operation_name(op.kind, op.tag), tensor_name(write.name), place_name(place),
                                      entry.writer->value));
    resize(write.name, place, entry, write.bytes);
    entry.writer = op.id;
  }
}

void TensorLedger::end(const Operation& op) {
  for (const SizedTensor& write : op.tensors.writes)
    tensors_.at(write.name).at(output_place(op, write.name.what)).writer.reset();
  if (!takes_no_time(op)) drop_all(op);
}

void TensorLedger::resize(const TensorName& name, Place place, Entry& entry, Bytes bytes) {
  Footprint& f = footprints_[place];
  Bytes& of_class = f.of_class[static_cast<std::size_t>(name.what)];
  f.now = f.now + bytes - entry.bytes;
  of_class = of_class + bytes - entry.bytes;
  entry.bytes = bytes;
  if (f.now.value > f.peak.value) {
    f.peak = f.now;
    f.of_class_at_peak = f.of_class;
  }
  const auto capacity = capacity_.find(place);
  if (capacity != capacity_.end() && f.now > capacity->second.bytes) overflow(place, name);
}

/// "; less with system.kv_buffers: 1 or workload.mini_batches above 2", or nothing. The largest class comes first.
std::string TensorLedger::remedies_for(const Footprint& f, Bytes missing) const {
  const auto bytes = [&](TensorClass what) { return f.of_class[static_cast<std::size_t>(what)]; };
  std::vector<MemoryRemedy> help;
  for (const MemoryRemedy& remedy : remedies_)
    if (bytes(remedy.what) >= missing) help.push_back(remedy);
  std::ranges::stable_sort(help,
                           [&](const MemoryRemedy& a, const MemoryRemedy& b) { return bytes(a.what) > bytes(b.what); });
  std::vector<std::string> parameters;
  for (const MemoryRemedy& remedy : help)
    if (std::ranges::find(parameters, remedy.parameter) == parameters.end()) parameters.push_back(remedy.parameter);
  return parameters.empty() ? "" : fmt::format("; less with {}", fmt::join(parameters, " or "));
}

void TensorLedger::overflow(Place place, const TensorName& name) const {
  const Footprint& f = footprints_.at(place);
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < kTensorClasses; ++i)
    if (f.of_class[i].value > 0)
      parts.push_back(fmt::format("{} {:.1f} MiB", kTensorClassNames[i], mib(f.of_class[i])));
  const Bytes others = f.now - f.of_class[static_cast<std::size_t>(name.what)];
  const auto& [capacity, stated] = capacity_.at(place);
  const Bytes room = capacity.value > others.value ? capacity - others : Bytes{};
  throw UserError(
      fmt::format("{}{}: {:.1f} MiB cannot hold {}: all tensors need {:.1f} MiB ({}); beside the others, up to "
                  "{:.1f} MiB of {} would fit{}",
                  stated.empty() ? "" : stated + ": ", place_name(place), mib(capacity), tensor_name(name), mib(f.now),
                  fmt::join(parts, ", "), mib(room), kTensorClassNames[static_cast<std::size_t>(name.what)],
                  place.on_gpu() ? remedies_for(f, f.now - capacity) : ""));
}

Footprint TensorLedger::footprint(Place place) const {
  const auto it = footprints_.find(place);
  return it == footprints_.end() ? Footprint{} : it->second;
}

}  // namespace csdsim::host
