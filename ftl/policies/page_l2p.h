// A generic SSD's placement of the writes of a KV cache.
#pragma once

#include "ftl/core/stripe.h"
#include "ftl/policies/registry.h"

namespace csdsim::ftl {

/// A page map that knows nothing of attention (InstInfer IV-C, the baseline of Figure 8): rows lie in the order in
/// which the host writes them, token by token with the KV heads side by side, K and V in files of their own; pages go
/// to the planes in turn as they arrive, channels first.
///
/// A page holds min(P / (d p), kv_heads) heads of P / (d p) / heads tokens; rows that the division leaves over stay
/// empty. There are no embedding pages: scores read token pages.
///
/// Optimises: nothing but even wear and programs. Costs: reading 16 scattered tokens of one head with 16 rows a page
/// reads 16 pages for one page's worth of rows, K and V each.
class PageL2pPolicy final : public KvPlanePolicy {
 public:
  static constexpr std::string_view kName = "page-l2p";
  static constexpr std::string_view kSummary =
      "What a generic SSD does: rows token by token, heads side by side, pages to the planes in turn.";

  explicit PageL2pPolicy(const FlashGeometry& geometry) : stripe_(geometry, kChannelDiePlane) {}
  std::string_view name() const override { return kName; }

  KvLayout layout(const KvShape& shape, Bytes page_size, const KvLayoutOptions& options) const override;
  PlaneId plane(const KvPageId&, const KvSequenceInfo&) override { return stripe_.plane_at(arrived_++); }
  void page_restored(const KvPageId&, const KvSequenceInfo&, PhysicalPageAddress) override { ++arrived_; }

 private:
  Stripe stripe_;
  std::uint64_t arrived_ = 0;  ///< pages so far
};

}  // namespace csdsim::ftl
