// Stores blocks that are frequent now, counted in a small sketch that ages (the frequency sketch of Einziger, Friedman,
// Manes, "TinyLFU: a highly efficient cache admission policy", ACM Transactions on Storage 13(4), 2017).
#pragma once

#include <vector>

#include "host_runtime/core/serving/admission/admission_policy.h"

namespace csdsim::host {

/// A count-min sketch of four rows of small counters. After a window of sightings all counters are halved, so that old
/// ones count less. A block is stored while its estimate is at least `threshold`. Memory does not grow with the trace:
/// 4 bytes per sighting of the window, rounded up to a power of two. Of blocks that are seen once per window up to a
/// sixth passes, because their counters are shared.
class FrequencyAdmission final : public AdmissionPolicy {
 public:
  static constexpr std::string_view kName = "frequency";
  static constexpr std::string_view kSummary =
      "A block is stored while a count that ages is at least `threshold` (default 2); counters are halved every "
      "`window` "
      "sightings (default 10 times the capacity, at most 10,485,760).";

  explicit FrequencyAdmission(const CachePolicyContext& context);

  std::string_view name() const override { return kName; }
  void seen(KvBlockId id) override;
  bool admits(KvBlockId id) const override { return estimate(id) >= threshold_; }

 private:
  static constexpr std::uint32_t kRows = 4;
  static constexpr std::uint8_t kMost = 15;  // four bits say enough, as in the paper; a byte is faster to reach

  std::size_t counter(KvBlockId id, std::uint32_t row) const;
  std::uint32_t estimate(KvBlockId id) const;

  std::uint32_t threshold_ = 2;
  std::uint64_t window_ = 0, sightings_ = 0;
  std::uint64_t columns_ = 0;  ///< a power of two
  std::vector<std::uint8_t> counters_;
};

}  // namespace csdsim::host
