// InstInfer's mapping.
#pragma once

#include "ftl/policies/head_stripe.h"
#include "ftl/policies/registry.h"

namespace csdsim::ftl {

/// InstInfer IV-C (docs/algorithms.md, Layouts): K in token groups and in embedding groups, V in token groups, each
/// page of one head; the groups of a head striped over all channels (head_stripe), blocks shared by all heads.
///
/// Optimises: one head's pages come from all channels at once, dense or sparse; a flush of many heads covers all
/// channels. Costs: a third of all programs are K written a second time; blocks mix sequences, so that a freed sequence
/// leaves holes for garbage collection.
class InstinferPolicy final : public KvPlanePolicy {
 public:
  static constexpr std::string_view kName = "instinfer";
  static constexpr std::string_view kSummary =
      "Token groups and embedding groups, each head striped over all channels, blocks shared (InstInfer IV-C).";

  explicit InstinferPolicy(const FlashGeometry& geometry) : geometry_(geometry) {}
  std::string_view name() const override { return kName; }
  PlaneId plane(const KvPageId& page, const KvSequenceInfo& sequence) override {
    return plane_of(geometry_, head_stripe(geometry_, page, sequence));
  }

 private:
  FlashGeometry geometry_;
};

}  // namespace csdsim::ftl
