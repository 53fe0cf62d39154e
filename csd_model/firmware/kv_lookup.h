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
  csdsim::engine::KvWindowView window(csdsim::engine::HeadKey key, std::uint32_t w) const override;
  void plan_token_groups(csdsim::engine::HeadKey key, csdsim::engine::KvRows which,
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
  /// What a filter on the die passes; all of a page where there is none.
  std::span<const std::uint32_t> passed(std::span<const std::uint32_t> rows) const {
    return filter_ == csdsim::nfc::FilterLocation::nfc ? std::span<const std::uint32_t>() : rows;
  }

  csdsim::ftl::KvFtl& ftl_;
  csdsim::nfc::FilterLocation filter_;
};

}  // namespace csd_model
