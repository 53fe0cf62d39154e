// KV heads that are being attended to.
#pragma once

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "ftl/kv/kv_types.h"

namespace csdsim::csd_model {

/// A multiset of ranges of KV heads, per layer of a sequence.
class BusyHeads {
 public:
  using Layer = std::pair<SequenceId, LayerId>;

  void add(const Layer& layer, const HeadRange& heads) { ranges_[layer].push_back(heads); }

  /// Precondition: the same range was added.
  void remove(const Layer& layer, const HeadRange& heads) {
    const auto entry = ranges_.find(layer);
    std::vector<HeadRange>& ranges = entry->second;
    ranges.erase(std::ranges::find_if(
        ranges, [&](const auto& range) { return range.first == heads.first && range.count == heads.count; }));
    if (ranges.empty()) ranges_.erase(entry);
  }

  bool overlap(const Layer& layer, const HeadRange& heads) const {
    const auto entry = ranges_.find(layer);
    return entry != ranges_.end() && std::ranges::any_of(entry->second, [&](const auto& range) {
             return range.first.value < heads.first.value + heads.count &&
                    heads.first.value < range.first.value + range.count;
           });
  }

 private:
  std::map<Layer, std::vector<HeadRange>> ranges_;
};

}  // namespace csdsim::csd_model
