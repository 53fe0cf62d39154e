// Reading the cache: which page operations a read takes, and the rows.
#pragma once

#include <cstdint>
#include <span>

#include "contracts/read_plan.h"
#include "ftl/kv/flash_reader.h"
#include "ftl/kv/kv_pages.h"

namespace csdsim::ftl {

/// Its functions are described in kv_ftl.h.
class KvReader {
 public:
  KvReader(KvFlash& flash, const KvMappingPolicy& policy, const SequenceTable& table, KvLosses& losses, KvPages& pages,
           FlashReader& reader)
      : flash_(flash), policy_(policy), table_(table), losses_(losses), pages_(pages), reader_(reader) {}

  void plan_token_groups(const HeadKey& key, KvRows which, std::span<const std::uint32_t> groups,
                         std::span<const std::uint32_t> rows, ReadPlan& out);
  void plan_embedding_groups(const HeadKey& key, std::span<const std::uint32_t> groups,
                             std::span<const std::uint32_t> rows, ReadPlan& out);

  const Half* token_rows(const HeadKey& key, KvKind kind, std::uint32_t group) const;
  const Half* token_row(const HeadKey& key, KvKind kind, TokenIndex token) const;
  const Half* embedding_page(const HeadKey& key, std::uint32_t ge, std::uint32_t window) const;
  std::span<const float> value_mean(const HeadKey& key) const;

 private:
  void plan_page(const HeadKey& key, const KvMapEntry& entry, std::uint64_t channel_bytes, std::uint64_t wanted,
                 ReadPlan& out);

  KvFlash& flash_;
  const KvMappingPolicy& policy_;
  const SequenceTable& table_;
  KvLosses& losses_;
  KvPages& pages_;
  FlashReader& reader_;
};

}  // namespace csdsim::ftl
