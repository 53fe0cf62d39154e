// Rows of K and V that the host writes again, because their pages cannot be read back.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ftl/kv/kv_append.h"
#include "ftl/kv/kv_collector.h"

namespace csdsim::ftl {

class KvRewriter {
 public:
  KvRewriter(KvFlash& flash, SequenceTable& table, PageOwners& owners, const KvLosses& losses, KvPlacer& placer,
             KvJobs& jobs, KvCollector& collector)
      : flash_(flash),
        table_(table),
        owners_(owners),
        losses_(losses),
        placer_(placer),
        jobs_(jobs),
        collector_(collector) {}

  /// KvFtl::rewrite
  AppendResult rewrite(const KvAppend& a);

 private:
  KvStatus validate(const KvAppend& a) const;
  std::vector<PhysicalPageAddress> lost_pages(const KvAppend& a, bool& waits) const;
  KvStatus check_room(const KvAppend& a, const std::vector<PhysicalPageAddress>& lost) const;
  FlushJob program(const KvAppend& a, const std::vector<PhysicalPageAddress>& lost);
  std::span<const Half> image(const KvAppend& a, const KvPageId& page, std::uint32_t partial_tokens);

  KvFlash& flash_;
  SequenceTable& table_;
  PageOwners& owners_;
  const KvLosses& losses_;
  KvPlacer& placer_;
  KvJobs& jobs_;
  KvCollector& collector_;
  std::vector<Half> image_;  ///< scratch, a page
};

}  // namespace csdsim::ftl
