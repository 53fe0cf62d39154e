// Pages that cannot be read back: which they are, what was in them, and tokens that attention does without.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <unordered_set>
#include <utility>
#include <vector>

#include "ftl/kv/kv_flash.h"
#include "ftl/kv/page_owners.h"
#include "ftl/kv/parked_pages.h"
#include "ftl/kv/sequence_table.h"

namespace csdsim::ftl {

class KvLosses {
 public:
  KvLosses(KvFlash& flash, const SequenceTable& table, const PageOwners& owners, const ParkedPages& parked)
      : flash_(flash), table_(table), owners_(owners), parked_(parked) {}

  /// Its content was lost before it was programmed here. Other pages fail when they are read.
  bool lost(PhysicalPageAddress ppa) const { return lost_.contains(ppa.value); }
  void mark(PhysicalPageAddress ppa) { lost_.insert(ppa.value); }
  /// The page is gone. Returns whether it was lost.
  bool forget(PhysicalPageAddress ppa) { return lost_.erase(ppa.value) > 0; }
  /// Whether a read would lose the page now. It is not counted as a read.
  bool would_lose(PhysicalPageAddress ppa) const;
  /// Those of lost() that are in flash, ascending.
  std::vector<PhysicalPageAddress> lost_in_flash() const;

  /// `reader` asked for the page and does not get it.
  void report(SequenceId reader, PhysicalPageAddress ppa);
  /// True if all tokens [first, end), which are in `page`, are dropped: it is not read, and whoever wants it is told.
  bool report_dropped(const KvPageId& page, std::uint32_t first, std::uint32_t end);
  /// What was reported since the last call.
  std::vector<KvLoss> take() { return std::exchange(reported_, {}); }
  bool any_reported() const { return !reported_.empty(); }

  /// From now on the tokens of a lost page take no part in attention of their heads.
  void drop(const KvLoss& loss);
  /// Ascending, apart from one another.
  std::span<const TokenSpan> dropped(const HeadKey& key) const;
  /// A fork has dropped what its parent has.
  void inherit(SequenceId parent, SequenceId child);
  void forget(SequenceId id);

 private:
  KvLoss loss_of(SequenceId reader, PhysicalPageAddress ppa) const;

  KvFlash& flash_;
  const SequenceTable& table_;
  const PageOwners& owners_;
  const ParkedPages& parked_;
  std::unordered_set<std::uint64_t> lost_;
  std::vector<KvLoss> reported_;
  std::map<HeadKey, std::vector<TokenSpan>> dropped_;
};

}  // namespace csdsim::ftl
