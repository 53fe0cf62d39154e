// The KV cache as the attention engine sees it: the engine's interface over the KV FTL.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "attention_engine/core/kv_source.h"
#include "ftl/core/kv_ftl.h"
#include "nfc/core/kv_filter.h"

namespace csd_model {

class KvLookup final : public csdsim::engine::KvSource {
 public:
  KvLookup(csdsim::ftl::KvFtl& ftl, csdsim::nfc::FilterLocation filter) : ftl_(ftl), filter_(filter) {}

  csdsim::engine::KvHeadView view(csdsim::engine::HeadKey key) const override;
  void plan_token_groups(csdsim::engine::HeadKey key, csdsim::engine::KvKind kind,
                         std::span<const std::uint32_t> groups, std::span<const std::uint32_t> rows,
                         std::vector<csdsim::PageOp>& out) override;
  void plan_embedding_groups(csdsim::engine::HeadKey key, std::span<const std::uint32_t> groups,
                             std::span<const std::uint32_t> rows, std::vector<csdsim::PageOp>& out) override;
  const csdsim::Half* token_rows(csdsim::engine::HeadKey key, csdsim::engine::KvKind kind,
                                 std::uint32_t group) const override;
  const csdsim::Half* embedding_page(csdsim::engine::HeadKey key, std::uint32_t group,
                                     std::uint32_t window) const override;
  std::span<const float> value_mean(csdsim::engine::HeadKey key) const override;

 private:
  /// Plans group by group, so that each page's bytes on the channel follow from the rows that the die passes.
  template <class Plan>
  void plan_filtered(std::span<const std::uint32_t> groups, std::span<const std::uint32_t> rows,
                     std::uint64_t row_bytes, std::vector<csdsim::PageOp>& out, const Plan& plan);

  csdsim::ftl::KvFtl& ftl_;
  csdsim::nfc::FilterLocation filter_;
};

}  // namespace csd_model
