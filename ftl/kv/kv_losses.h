// Pages that cannot be read back: which they are, what was in them, and the tokens that attention leaves out.
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

  /// Whether the content of the page was lost before it was programmed here. Other lost pages fail when they are read.
  bool lost(PhysicalPageAddress ppa) const { return lost_.contains(ppa.value); }
  void mark(PhysicalPageAddress ppa) { lost_.insert(ppa.value); }
  /// Call it when the page is given back. Returns whether it was lost.
  bool forget(PhysicalPageAddress ppa) { return lost_.erase(ppa.value) > 0; }
  /// Whether a read would lose the page now. It is not counted as a read.
  bool would_lose(PhysicalPageAddress ppa) const;
  /// Those of lost() that are in flash, ascending.
  std::vector<PhysicalPageAddress> lost_in_flash() const;

  /// Reports that `reader` asked for a page that is lost.
  void report(SequenceId reader, PhysicalPageAddress ppa);
  /// Whether all tokens [first, end), which are in `page`, were dropped. The page is then reported, and not read.
  bool report_dropped(const KvPageId& page, std::uint32_t first, std::uint32_t end);
  /// Removes and returns what was reported.
  std::vector<KvLoss> take() { return std::exchange(reported_, {}); }
  bool any_reported() const { return !reported_.empty(); }

  /// Takes the tokens of a lost page out of attention of their heads.
  void drop(const KvLoss& loss);
  /// Spans that ascend and do not touch.
  std::span<const TokenSpan> dropped(const HeadKey& key) const;
  /// Copies the dropped tokens of `parent` to its fork.
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
