// Appending tokens: tails in DRAM and token pages.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ftl/kv/kv_collector.h"
#include "ftl/kv/kv_windows.h"

namespace csdsim::ftl {

class KvAppender {
 public:
  KvAppender(KvFlash& flash, const KvMappingPolicy& policy, KvSequences& sequences, KvPlacer& placer, KvJobs& jobs,
             KvCollector& collector, KvWindows& windows)
      : flash_(flash),
        policy_(policy),
        sequences_(sequences),
        placer_(placer),
        jobs_(jobs),
        collector_(collector),
        windows_(windows) {}

  /// KvFtl::append
  AppendResult append(const KvAppend& a);

 private:
  /// Changes that plan_ makes to the maps and tails of its sequence.
  struct Tails {
    Bytes table;                                    ///< by which the maps grow
    std::uint64_t rows_before = 0, rows_after = 0;  ///< in group buffers
    std::uint64_t keys_before = 0, keys_after = 0;  ///< in component-major tails
  };
  KvStatus validate(const KvAppend& a) const;
  void plan(const KvAppend& a);
  Tails change_of_tails(const KvAppend& a) const;
  KvStatus book(const KvAppend& a, std::uint64_t pages);
  KvStatus book_dram(KvSequence& s, const DramUses& before, const DramUses& after);
  KvLayer& layer_of(const KvAppend& a);
  void append_tile(const KvAppend& a, KvLayer& layer, const TilePlan& plan, std::vector<FlushJob>& jobs);
  void update_value_mean(const KvAppend& a, KvHead h, KvHeadState& head);
  void write_groups(const KvAppend& a, KvLayer& layer, const TilePlan& plan, std::vector<FlushJob>& jobs);
  std::span<const Half> group_image(const KvAppend& a, KvLayer& layer, const TilePlan& plan, std::uint32_t group,
                                    PageKind kind);
  void keep_tail(const KvAppend& a, KvHead h, KvHeadState& head, std::uint32_t from, std::uint32_t written);

  KvFlash& flash_;
  const KvMappingPolicy& policy_;
  KvSequences& sequences_;
  KvPlacer& placer_;
  KvJobs& jobs_;
  KvCollector& collector_;
  KvWindows& windows_;
  std::vector<TilePlan> plan_;    ///< scratch: of the current append
  std::vector<Half> image_;       ///< scratch, a token page
  std::vector<Half> row_values_;  ///< scratch, [tokens][d]
};

}  // namespace csdsim::ftl
