// Jobs in flight: the pages that they write, the sequences that they pin, and what their end makes readable in flash.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "ftl/kv/kv_sequences.h"

namespace csdsim::ftl {

/// What an append has started: token groups, a full window, or one that is not full.
struct PendingFlush {
  enum class What : std::uint8_t { groups, window, partial };
  HeadKey key;
  What what = What::groups;
  std::uint32_t first = 0;  ///< token group, or window
  std::uint32_t count = 0;  ///< token groups, or 1
  std::uint32_t pages = 0;
};

/// Pages that have a map entry already and go to new places.
struct PendingMove {
  std::vector<std::pair<PageOwner, PhysicalPageAddress>> pages;
  std::vector<SequenceId> sequences;  ///< pinned by it; a sequence may be named more than once
  bool only_copy = false;             ///< they came from DRAM: flash has no older copy of them
};

class KvJobs {
 public:
  KvJobs(KvFlash& flash, SequenceTable& table, const PageOwners& owners, KvSequences& sequences)
      : flash_(flash), table_(table), owners_(owners), sequences_(sequences) {}

  FlushJobId new_id() { return FlushJobId{next_++}; }
  FlushJobId begin_flush(KvSequence& s, const PendingFlush& flush);
  /// Pins the sequences once each and returns them. The caller has charged the pages to DramUse::flush_pending.
  const std::vector<SequenceId>& begin_move(FlushJobId id, PendingMove move);
  /// KvFtl::flush_done
  std::vector<PageOp> done(FlushJobId id);

  std::size_t pending_flushes() const { return flushes_.size(); }
  bool idle() const { return flushes_.empty() && moves_.empty(); }
  /// Destinations of pages that are being moved and have an old copy in flash still.
  std::unordered_set<std::uint64_t> being_copied() const;

 private:
  std::vector<PageOp> flush_done(FlushJobId id, const PendingFlush& flush);
  std::vector<PageOp> move_done(const PendingMove& move);

  KvFlash& flash_;
  SequenceTable& table_;
  const PageOwners& owners_;
  KvSequences& sequences_;
  std::unordered_map<std::uint64_t, PendingFlush> flushes_;
  std::unordered_map<std::uint64_t, PendingMove> moves_;
  std::uint64_t next_ = 0;
};

}  // namespace csdsim::ftl
