// The KV cache as the attention engine sees it: the engine's interface over the KV FTL.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <span>
#include <tuple>
#include <vector>

#include "attention_engine/core/kv_source.h"
#include "csd_model/firmware/busy_heads.h"
#include "ftl/kv/kv_ftl.h"
#include "nfc/core/kv_filter.h"

namespace csdsim::csd_model {

/// The heads that a command reads, and what of them could not be read back.
struct LossWatch {
  BusyHeads heads;
  bool drops = false;  ///< lost tokens are dropped, and the command does without them
  std::set<ftl::KvLoss> losses;
};

/// While a command is watched, it hears of every lost page that is planned to be read of its heads, also by a command
/// that runs beside it: what the two have in common is not told apart.
class KvLookup final : public engine::KvSource {
 public:
  KvLookup(ftl::KvFtl& ftl, const FlashGeometry& geometry, nfc::FilterLocation filter)
      : ftl_(ftl), filter_(geometry, filter) {}

  engine::KvHeadView view(HeadKey key) const override;
  engine::KvWindowView window(HeadKey key, std::uint32_t w) const override;
  void plan_token_groups(HeadKey key, KvRows which, std::span<const std::uint32_t> groups,
                         std::span<const std::uint32_t> rows, ReadPlan& out) override;
  void plan_embedding_groups(HeadKey key, std::span<const std::uint32_t> groups, std::span<const std::uint32_t> rows,
                             ReadPlan& out) override;
  const Half* token_rows(HeadKey key, KvKind kind, std::uint32_t group) const override;
  const Half* embedding_page(HeadKey key, std::uint32_t group, std::uint32_t window) const override;
  void passed_rows(HeadKey key, KvKind kind, std::uint32_t group, std::span<const std::uint32_t> wanted,
                   std::vector<const Half*>& out) const override;
  void passed_runs(HeadKey key, std::uint32_t group, std::uint32_t w, std::span<const std::uint32_t> wanted,
                   std::vector<const Half*>& out) const override;
  std::span<const float> value_mean(HeadKey key) const override;
  std::vector<engine::TokenRange> dropped(HeadKey key) const override;

  /// `watch` must stay until unwatch().
  void watch(LossWatch& watch) { watches_.push_back(&watch); }
  void unwatch(LossWatch& watch) { std::erase(watches_, &watch); }

  /// The power fails: nobody watches any more.
  void forget() { watches_.clear(); }

  const nfc::KvFilter& filter() const { return filter_; }

 private:
  void report(const HeadKey& key);
  const Half* dequantised(HeadKey key, KvKind kind, std::uint32_t group, const Half* rows) const;

  const Half* raw_rows(HeadKey key, KvKind kind, std::uint32_t group) const;
  void pass(const Half* page, std::size_t row, std::size_t rows, std::span<const std::uint32_t> wanted) const;

  /// Reads that are planned from `first` on go through the filters.
  void filter_from(std::size_t first, ReadPlan& plan);

  ftl::KvFtl& ftl_;
  mutable nfc::KvFilter filter_;
  std::vector<LossWatch*> watches_;
  /// Groups of tokens of few bits that were asked for since the last view().
  mutable std::map<std::tuple<HeadKey, KvKind, std::uint32_t>, std::vector<Half>> dequantised_;
  /// The same of embedding pages, by window and group of components.
  mutable std::map<std::tuple<HeadKey, std::uint32_t, std::uint32_t>, std::vector<Half>> dequantised_components_;
  mutable std::deque<std::vector<Half>> dequantised_rows_;  ///< likewise, that a filter has passed
  mutable std::vector<bool> mask_;                          ///< scratch: of a page
  mutable std::vector<const std::byte*> passed_;            ///< scratch: rows of a page
};

}  // namespace csdsim::csd_model
