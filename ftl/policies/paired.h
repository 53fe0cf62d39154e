// K and V of the same tokens in one page.
#pragma once

#include "ftl/policies/head_stripe.h"
#include "ftl/policies/registry.h"

namespace csdsim::ftl {

/// A mapping of this project. A token page holds K and V of n = P / (2 d p) tokens of a head, where others hold one of
/// them of twice as many. Embedding pages and striping are those of `instinfer`.
///
/// Optimises: attending a token takes its K and its V, which are now one page: a sparse attend of scattered tokens
/// reads one page a touched group instead of two, and never more than two for 2n tokens, what `instinfer` always reads.
/// A group fills after half as many tokens, so that group buffers take half the DRAM. Costs: reading K alone, for
/// scores of tokens in no embedding window and for the read-back of a full window, moves V along: twice the pages.
class PairedPolicy final : public KvPlanePolicy {
 public:
  static constexpr std::string_view kName = "paired";
  static constexpr std::string_view kSummary =
      "As instinfer, with K and V of the same tokens in one page: a scattered token costs one page read, not two.";

  explicit PairedPolicy(const FlashGeometry& geometry) : geometry_(geometry) {}
  std::string_view name() const override { return kName; }

  /// Throws UserError as well where a page holds an odd number of rows.
  KvLayout layout(const KvShape& shape, Bytes page_size, const KvLayoutOptions& options) const override;
  PlaneId plane(const KvPageId& page, const KvSequenceInfo& sequence) override {
    return plane_of(geometry_, head_stripe(geometry_, page, sequence));
  }

 private:
  FlashGeometry geometry_;
};

}  // namespace csdsim::ftl
