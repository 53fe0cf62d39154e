// K and V of the same tokens in one page.
#pragma once

#include "ftl/policies/sequence_block.h"

namespace csdsim::ftl {

/// A mapping of this project. A token page holds K and V of n = P / (2 d p) tokens of a head, where others hold one of
/// them of twice as many; a sequence fills erase blocks of its own (SequenceBlockPolicy); embedding windows grow with
/// the context unless a group size is asked for.
///
/// Optimises: attending a token takes its K and its V, which are now one page: a sparse attend of scattered tokens
/// reads one page per touched group instead of two, and never more than two for 2n tokens, what `instinfer` always
/// reads. A group fills after half as many tokens, so that group buffers take half the DRAM. Freed sequences leave no
/// holes. Costs: reading K alone, for scores of tokens in no embedding window and for the read-back of a full window,
/// moves V along: twice the pages. Windows that begin short keep those tokens few.
class PairedPolicy final : public SequenceBlockPolicy {
 public:
  static constexpr std::string_view kName = "paired";
  static constexpr std::string_view kSummary =
      "K and V of the same tokens in one page, windows that grow, blocks of its own for each sequence.";

  using SequenceBlockPolicy::SequenceBlockPolicy;
  std::string_view name() const override { return kName; }

  /// Throws UserError as well where a page holds an odd number of rows.
  KvLayout layout(const KvShape& shape, Bytes page_size, const KvLayoutOptions& options) const override;
};

}  // namespace csdsim::ftl
