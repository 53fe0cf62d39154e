// The contents that units of a block namespace may have after a loss of power.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/rng.h"

namespace csdsim::ftl::durability {

using UnitBytes = std::vector<std::byte>;

/// The versions of one unit that may come back, the oldest first; the last one is what the host reads while there is
/// power. Versions have numbers, which count on.
class UnitOracle {
 public:
  explicit UnitOracle(std::size_t size) : versions_{UnitBytes(size)} {}

  const UnitBytes& current() const { return versions_.back(); }
  std::uint64_t version() const { return first_ + versions_.size() - 1; }
  void write(UnitBytes bytes) { versions_.push_back(std::move(bytes)); }
  /// No version older than this one may come back.
  void make_durable(std::uint64_t version) {
    for (; first_ < version && versions_.size() > 1; ++first_) versions_.pop_front();
  }
  /// The newest version that has these bytes, by its age: 0 is the last one. Empty if none that may come back has.
  std::optional<std::size_t> age_of(std::span<const std::byte> bytes) const {
    for (std::size_t age = 0; age < versions_.size(); ++age)
      if (std::ranges::equal(versions_[versions_.size() - 1 - age], bytes)) return age;
    return std::nullopt;
  }
  /// Newer versions are lost; this one is in flash.
  void settle(std::size_t age) {
    UnitBytes kept = std::move(versions_[versions_.size() - 1 - age]);
    first_ += versions_.size();
    versions_.assign(1, std::move(kept));
  }

 private:
  std::uint64_t first_ = 0;  ///< number of the oldest
  std::deque<UnitBytes> versions_;
};

/// Bytes that no other write of any unit has.
inline UnitBytes bytes_of(std::uint64_t unit, std::uint64_t serial, std::size_t size) {
  UnitBytes bytes(size);
  std::uint64_t word = 0;
  for (std::size_t i = 0; i < size; ++i, word >>= 8) {
    if (i % 8 == 0) word = counter_random(unit + 1, serial + (std::uint64_t{i} << 32));
    bytes[i] = static_cast<std::byte>(word);
  }
  return bytes;
}

}  // namespace csdsim::ftl::durability
