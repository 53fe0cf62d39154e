// Placing: asks the mapping policy where a page goes, checks the answer, and keeps account of who owns which page.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "ftl/kv/kv_losses.h"
#include "ftl/kv/kv_pages.h"
#include "ftl/kv/page_owners.h"
#include "ftl/kv/parked_pages.h"
#include "ftl/kv/reclaim_queue.h"

namespace csdsim::ftl {

class KvPlacer {
 public:
  KvPlacer(KvFlash& flash, KvMappingPolicy& policy, KvPages& pages, PageOwners& owners, ParkedPages& parked,
           KvLosses& losses, ReclaimQueue& reclaim)
      : flash_(flash),
        policy_(policy),
        pages_(pages),
        owners_(owners),
        parked_(parked),
        losses_(losses),
        reclaim_(reclaim) {}

  /// Where a new page goes; `job` programs it. Throws InternalError if there is no room: it was booked before.
  PhysicalPageAddress place(const KvPageId& page, const KvSequence& s, PageOwner owner, FlushJob& job);
  /// The same. Empty if programs have failed in all pages that were left.
  std::optional<PhysicalPageAddress> place_if_room(const KvPageId& page, const KvSequence& s, PageOwner owner,
                                                   FlushJob& job);
  /// The same for a page that moves out of `from`.
  std::optional<PhysicalPageAddress> place_moved(const KvPageId& page, const KvSequence& s, PageOwner owner,
                                                 PhysicalPageAddress from, FlushJob& job);
  /// Records that the page belongs to `owner`.
  void take(PhysicalPageAddress ppa, PageOwner owner);
  /// Gives a page back that no sequence uses. True if its block may be erased now.
  bool drop(PhysicalPageAddress ppa);

 private:
  /// Takes the page that the policy has returned; invalid() if no page was left.
  PhysicalPageAddress accept(std::string_view call, const KvPageId& page, PhysicalPageAddress ppa, PageOwner owner);
  PhysicalPageAddress ask(const KvPageId& page, const KvSequence& s, PageOwner owner, FlushJob& job);
  static std::optional<PhysicalPageAddress> if_any(PhysicalPageAddress ppa) {
    return ppa.valid() ? std::optional(ppa) : std::nullopt;
  }
  void check_answer(std::string_view call, const KvPageId& page, PhysicalPageAddress ppa) const;

  KvFlash& flash_;
  KvMappingPolicy& policy_;
  KvPages& pages_;
  PageOwners& owners_;
  ParkedPages& parked_;
  KvLosses& losses_;
  ReclaimQueue& reclaim_;
};

}  // namespace csdsim::ftl
