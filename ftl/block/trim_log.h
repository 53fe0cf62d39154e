// The trims that the firmware has noted in its reserved area of the flash: without power it forgets all others.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <utility>

#include "ftl/block/page_map.h"
#include "ftl/core/backing_store.h"

namespace csdsim::ftl {

/// Trims have stamps of the clock of programs: a trim hides the copies of its page with stamps up to its own. Without
/// bytes (timing mode) it only counts, because nothing can be recovered.
class TrimLog {
 public:
  using Stamps = std::map<LogicalPage, std::uint64_t>;  ///< stamp of the last trim of each page

  explicit TrimLog(const BackingStore& store) : store_(store) {}

  void note(LogicalPage page) {
    ++trims_;
    if (store_.carried()) unsaved_.emplace_back(page, store_.clock());
  }
  /// Trims so far.
  std::uint64_t trims() const { return trims_; }
  bool any_unsaved() const { return saved_trims_ < trims_; }
  /// The first `trims` trims are in flash.
  void save(std::uint64_t trims);
  void save_all() { save(trims_); }

  /// What a drive finds after a power loss, with or without the trims that were in DRAM only.
  Stamps stamps(bool with_unsaved) const;
  void restore(Stamps saved) { saved_ = std::move(saved); }

 private:
  const BackingStore& store_;
  std::uint64_t trims_ = 0;
  std::uint64_t saved_trims_ = 0;
  Stamps saved_;
  std::deque<std::pair<LogicalPage, std::uint64_t>> unsaved_;  ///< in order, with their stamps
};

}  // namespace csdsim::ftl
