// Component-major windows of K: transposing them, and the tail policies.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ftl/kv/kv_append.h"
#include "ftl/kv/kv_jobs.h"
#include "ftl/kv/kv_reader.h"

namespace csdsim::ftl {

class KvWindows {
 public:
  KvWindows(KvFlash& flash, KvPlacer& placer, KvLosses& losses, FlashReader& pages, const KvReader& reader,
            KvJobs& jobs)
      : flash_(flash), placer_(placer), losses_(losses), pages_(pages), reader_(reader), jobs_(jobs) {}

  /// Up to which token the window `windows`, which is not full with `tokens`, is to be programmed now; 0: it is not.
  std::uint32_t partial_target(const KvLayout& layout, const KvHeadState& head, std::uint32_t windows,
                               std::uint32_t tokens) const;
  /// Programs the windows of `plan`.
  void write(const KvAppend& a, KvLayer& layer, const TilePlan& plan, std::vector<FlushJob>& jobs);
  /// The pages of tokens [window.first, end), transposed from their token groups. Holds until the next call.
  std::span<const Half> transpose(const HeadKey& key, const KvLayout& layout, const KvWindow& window,
                                  std::uint32_t end);

 private:
  void fill_component_tail(const KvAppend& a, KvHead h, KvHeadState& head, const KvWindow& window);
  template <class Add>
  void program(const KvSequence& s, const HeadKey& key, const MapSegment& segment, std::uint32_t window,
               std::uint32_t partial_tokens, const Half* image, bool lost, FlushJob& job, const Add& add);
  FlushJob write_window(KvSequence& s, const HeadKey& key, KvLayer& layer, std::uint32_t window);
  FlushJob write_partial(KvSequence& s, const HeadKey& key, KvLayer& layer, std::uint32_t window, std::uint32_t end);

  KvFlash& flash_;
  KvPlacer& placer_;
  KvLosses& losses_;
  FlashReader& pages_;
  const KvReader& reader_;
  KvJobs& jobs_;
  std::vector<Half> image_;  ///< scratch, the pages of a window
};

}  // namespace csdsim::ftl
