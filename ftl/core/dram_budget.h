// The capacity of controller DRAM, and how much of it each use holds, now and at most.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "base/units.h"

namespace csdsim {
class Statistics;
}

namespace csdsim::ftl {

enum class DramUse : std::uint8_t {
  group_buffer,    ///< tokens that do not fill a group yet
  component_tail,  ///< keys held component-major until their window is full (tail policy `dram`)
  value_mean,      ///< running mean of V, fp32
  flush_pending,   ///< page images whose program has not completed
  map,             ///< address maps of the KV namespace
  write_buffer,    ///< host writes that were acknowledged before they reached flash
  engine_buffer    ///< buffer of the attention engine, where it has no memory of its own
};
inline constexpr std::size_t kDramUses = 7;
inline constexpr std::array<std::string_view, kDramUses> kDramUseNames{
    "group_buffer", "component_tail", "value_mean", "flush_pending", "map", "write_buffer", "engine_buffer"};

/// Counts what each use holds of controller DRAM.
class DramBudget {
 public:
  explicit DramBudget(Bytes capacity) : capacity_(capacity) {}

  /// Throws InternalError if the capacity would be exceeded: ask fits() first.
  void charge(DramUse use, Bytes amount);
  /// Throws InternalError if less than `amount` is held.
  void release(DramUse use, Bytes amount);

  bool fits(Bytes amount) const { return amount <= capacity_ - total_; }
  Bytes capacity() const { return capacity_; }
  Bytes used() const { return total_; }
  Bytes used(DramUse use) const { return used_[index(use)]; }
  Bytes peak() const { return total_peak_; }
  Bytes peak(DramUse use) const { return peak_[index(use)]; }

  /// Registers capacity and peaks; the budget must outlive the dump.
  void register_statistics(Statistics& statistics) const;

 private:
  static constexpr std::size_t index(DramUse use) { return static_cast<std::size_t>(use); }

  Bytes capacity_;
  Bytes total_;
  Bytes total_peak_;
  std::array<Bytes, kDramUses> used_{};
  std::array<Bytes, kDramUses> peak_{};
};

}  // namespace csdsim::ftl
