// The KV cache as the attention engine sees it: the engine's interface over the KV FTL.
#pragma once

#include <cstdint>
#include <span>

#include "attention_engine/core/kv_source.h"
#include "ftl/core/kv_ftl.h"
#include "nfc/core/kv_filter.h"

namespace csdsim::csd_model {

class KvLookup final : public engine::KvSource {
 public:
  KvLookup(ftl::KvFtl& ftl, nfc::FilterLocation filter) : ftl_(ftl), filter_(filter) {}

  engine::KvHeadView view(HeadKey key) const override;
  engine::KvWindowView window(HeadKey key, std::uint32_t w) const override;
  void plan_token_groups(HeadKey key, KvRows which, std::span<const std::uint32_t> groups,
                         std::span<const std::uint32_t> rows, ReadPlan& out) override;
  void plan_embedding_groups(HeadKey key, std::span<const std::uint32_t> groups, std::span<const std::uint32_t> rows,
                             ReadPlan& out) override;
  const Half* token_rows(HeadKey key, KvKind kind, std::uint32_t group) const override;
  const Half* embedding_page(HeadKey key, std::uint32_t group, std::uint32_t window) const override;
  std::span<const float> value_mean(HeadKey key) const override;

 private:
  /// Rows that a filter on the die passes; empty, which means all, where there is no such filter.
  std::span<const std::uint32_t> passed(std::span<const std::uint32_t> rows) const {
    return filter_ == nfc::FilterLocation::nfc ? std::span<const std::uint32_t>() : rows;
  }

  ftl::KvFtl& ftl_;
  nfc::FilterLocation filter_;
};

}  // namespace csdsim::csd_model
