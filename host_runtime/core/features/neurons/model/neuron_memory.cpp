#include "host_runtime/core/features/neurons/model/neuron_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "base/error.h"

namespace csdsim::host {

NeuronMemory::NeuronMemory(std::uint32_t neurons, std::uint32_t rows)
    : neuron_at_(std::min(rows, neurons), kNone), row_of_(neurons, kNone), uses_(neurons) {
  if (rows == 0) throw UserError("memory for 0 neurons per layer, must be at least 1");
}

std::uint32_t NeuronMemory::row_of(std::uint32_t neuron) const {
  if (!contains(neuron)) throw InternalError(fmt::format("neuron {} is not in memory", neuron));
  return row_of_[neuron];
}

std::uint32_t NeuronMemory::neuron_at(std::uint32_t row) const {
  if (row >= used_) throw InternalError(fmt::format("row {} of {} holds no neuron", row, used_));
  return neuron_at_[row];
}

void NeuronMemory::check(std::span<const std::uint32_t> active, std::span<const std::uint32_t> drop) const {
  if (active.size() > neuron_at_.size())
    throw UserError(fmt::format("{} neurons of a layer are active at a time, but there is memory for {}", active.size(),
                                neuron_at_.size()));
  for (const std::uint32_t neuron : drop)
    if (std::binary_search(active.begin(), active.end(), neuron))
      throw InternalError(fmt::format("neuron {} is active and leaves the window", neuron));
}

void NeuronMemory::forget(std::uint32_t neuron) {
  freed_.push_back(row_of_[neuron]);
  row_of_[neuron] = kNone;
  by_use_.remove(uses_, neuron);
}

void NeuronMemory::touch(std::uint32_t neuron) { by_use_.to_newest(uses_, neuron); }

void NeuronMemory::free_rows(std::vector<std::uint32_t>& rows) {
  std::sort(rows.begin(), rows.end(), std::greater<>{});
  for (const std::uint32_t hole : rows) {
    const std::uint32_t last = --used_;
    if (hole != last) {
      neuron_at_[hole] = neuron_at_[last];
      row_of_[neuron_at_[hole]] = hole;
      update_.moves.push_back({last, hole});
    }
    neuron_at_[last] = kNone;
  }
  rows.clear();
}

void NeuronMemory::make_room(std::size_t count) {
  const std::size_t kept = used_ - freed_.size();
  for (std::size_t over = kept + count > rows() ? kept + count - rows() : 0; over > 0; --over) {
    update_.evicted.push_back(by_use_.oldest());
    forget(by_use_.oldest());
  }
}

const NeuronMemory::Update& NeuronMemory::update(std::span<const std::uint32_t> active,
                                                 std::span<const std::uint32_t> drop) {
  check(active, drop);
  update_.moves.clear();
  update_.placed.clear();
  update_.evicted.clear();
  for (const std::uint32_t neuron : drop)
    if (contains(neuron)) forget(neuron);
  std::size_t entering = 0;
  for (const std::uint32_t neuron : active) {
    if (contains(neuron))
      touch(neuron);
    else
      ++entering;
  }
  make_room(entering);
  free_rows(freed_);
  for (const std::uint32_t neuron : active) {
    if (contains(neuron)) continue;
    row_of_[neuron] = used_;
    neuron_at_[used_] = neuron;
    by_use_.push_newest(uses_, neuron);
    update_.placed.push_back({neuron, used_++});
  }
  return update_;
}

}  // namespace csdsim::host
