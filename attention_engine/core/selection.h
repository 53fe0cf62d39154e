// Components and tokens that a SparF job touches when no data are carried.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "attention_engine/core/kv_source.h"
#include "attention_engine/core/page_groups.h"
#include "attention_engine/core/sparf.h"

namespace csdsim::engine {

/// Chooses for a head with S > k the embedding groups E of phase A and the flushed token groups U of phase B.
class SelectionSource {
 public:
  virtual ~SelectionSource() = default;
  virtual void components(HeadKey key, const KvHeadView& view, const SparfParams& params, PageGroups& out) = 0;
  virtual void tokens(HeadKey key, const KvHeadView& view, const SparfParams& params, PageGroups& out) = 0;
};

/// Selected tokens cluster in few pages. The share of the flushed token groups that is touched is given, or follows
/// from the number of selected tokens in a touched page: k of S tokens on pages of n touch a share of k n / (S times
/// that number), at most 1. (A share of 0.25 fits the figures of InstInfer at ratio 1/8 and 16 tokens per page, which
/// is 8 per page; opt-6m measures 0.46. Uniform token picks would touch 0.88.)
///
/// Touches round(share * groups) groups, or more if the selected tokens need them: always those of the l newest tokens,
/// the others chosen by a hash of (seed, key, S). Components: r of d by the same hash.
class ClusteredSelection : public SelectionSource {
 public:
  /// Throws UserError unless 0 < token_page_fraction <= 1.
  ClusteredSelection(double token_page_fraction, std::uint64_t seed);
  /// So many selected tokens in a touched page. Throws UserError unless it is at least 1.
  static ClusteredSelection with_selected_per_page(double selected_per_page, std::uint64_t seed);
  void components(HeadKey key, const KvHeadView& view, const SparfParams& params, PageGroups& out) override;
  void tokens(HeadKey key, const KvHeadView& view, const SparfParams& params, PageGroups& out) override;

 private:
  double share(const KvHeadView& view, const SparfParams& params) const;

  double token_page_fraction_;
  double selected_per_page_ = 0;  ///< 0: the share is given
  std::uint64_t seed_;
  std::vector<std::uint32_t> indices_;
};

/// Selections recorded on a real checkpoint.
///
/// Without stretching, a head finds what was recorded for its key and length. With it, any head of any model finds
/// something: keys wrap around (sequence, layer and head modulo those recorded, the layer one further with every round
/// of the sequences, so that a run of few layers meets all that were recorded), of the lengths recorded the nearest
/// counts (of two the shorter), and what was touched there is scaled to the head: page group g of G is touched if group
/// floor((g + 1/2) G'/G) of G' was, so that the share of pages touched and its dependence on age stay what they were.
/// Selection that was recorded on a checkpoint. A head of the recorded length and dimension gets it unchanged.
class RecordedSelection : public SelectionSource {
 public:
  RecordedSelection() = default;
  /// Stretches; recorded on heads of `head_dim` components.
  explicit RecordedSelection(std::uint32_t head_dim) : head_dim_(head_dim) {}

  /// I and J of a head when it holds `tokens` tokens; both ascending. A second record for the same (key, tokens) throws
  /// UserError.
  void record(HeadKey key, std::uint32_t tokens, std::vector<std::uint32_t> components,
              std::vector<std::uint32_t> selected_tokens);
  /// Both throw UserError if there is no record for (key, view.tokens), and, when stretching, if k/S or r/d is another
  /// one than was recorded: off by more than a tenth and by more than one of the smaller context or head.
  void components(HeadKey key, const KvHeadView& view, const SparfParams& params, PageGroups& out) override;
  void tokens(HeadKey key, const KvHeadView& view, const SparfParams& params, PageGroups& out) override;

  /// Throws what components() and tokens() would throw for a head of this length: call it before a simulation starts.
  void check(std::uint32_t tokens, std::uint32_t head_dim, const SparfParams& params) const;

 private:
  struct Point {
    HeadKey key;
    std::uint32_t tokens = 0;
    auto operator<=>(const Point&) const = default;
  };
  struct Record {
    std::vector<std::uint32_t> components;
    std::vector<std::uint32_t> tokens;
  };
  struct Found {
    const Record& record;
    std::uint32_t tokens;  ///< length at which it was recorded
  };
  Found find(HeadKey key, std::uint32_t tokens) const;

  std::map<Point, Record> records_;
  std::uint32_t head_dim_ = 0;  ///< 0: no stretching
  std::uint32_t sequences_ = 0, layers_ = 0, heads_ = 0;
};

}  // namespace csdsim::engine
