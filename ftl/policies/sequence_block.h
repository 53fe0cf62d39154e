// Erase blocks per sequence.
#pragma once

#include <unordered_map>
#include <vector>

#include "ftl/policies/head_stripe.h"
#include "ftl/policies/registry.h"

namespace csdsim::ftl {

/// Every sequence fills erase blocks of its own, so that freeing it frees them whole. Pages are striped as by
/// `instinfer`, over all channels, but only over as many planes of each as the blocks of the longest expected sequence
/// (KvShape::max_tokens) need; sequences start at different planes.
///
/// Optimises: no garbage collection and a write amplification of 1, whatever order sequences end in. Costs: the last
/// block in each plane stays partly empty while the sequence lives, which counts where sequences are short against
/// planes times the block size; fewer planes per sequence, so less parallelism for short ones. Runs that simulate a few
/// layers instead of all see sequences that are shorter in proportion.
class SequenceBlockPolicy : public KvMappingPolicy {
 public:
  static constexpr std::string_view kName = "sequence-block";
  static constexpr std::string_view kSummary =
      "As instinfer, with erase blocks of its own for each sequence: freeing one frees whole blocks.";

  explicit SequenceBlockPolicy(const FlashGeometry& geometry) : geometry_(geometry) {}
  std::string_view name() const override { return kName; }
  PhysicalPageAddress place(const KvPageId& page, const KvSequenceInfo& sequence, PageAllocator& pages) override;
  /// Moves pages into the sequence's own blocks, so that they end with it as well.
  PhysicalPageAddress move(const KvPageId& page, const KvSequenceInfo& sequence, PhysicalPageAddress from,
                           PageAllocator& pages) override;
  void sequence_freed(const KvSequenceInfo& sequence, PageAllocator& pages) override;

 private:
  struct Territory {
    AppendPoint point;
    std::uint32_t planes = 0;  ///< planes per channel
    std::uint64_t first = 0;   ///< row of the first of them
  };
  const Territory& territory(const KvSequenceInfo& sequence);

  FlashGeometry geometry_;
  std::unordered_map<SequenceId, Territory> territories_;
  std::vector<AppendPoint> unused_;  ///< points of freed sequences
  AppendPoint next_ = kFirstOwnPoint;
};

}  // namespace csdsim::ftl
