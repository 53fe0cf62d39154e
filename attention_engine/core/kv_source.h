// The attention engine's interface to the KV cache. Page layouts: InstInfer, section IV-C.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/address.h"
#include "base/fp16.h"
#include "contracts/kv_address.h"
#include "contracts/read_plan.h"
#include "contracts/row_quantisation.h"

namespace csdsim::engine {

/// Source of the keys that have left the group buffer but are not in an embedding page yet, for scoring.
enum class TailScoring : std::uint8_t {
  token_pages,  ///< from their K token pages (tail policy `token_index`)
  dram          ///< from a component-major copy in controller DRAM (tail policy `dram`): no flash page
};

/// Tokens [first, first + tokens), kept in pages of `group` components each.
struct KvWindowView {
  std::uint32_t first = 0;
  std::uint32_t tokens = 0;  ///< T
  std::uint32_t group = 0;   ///< m
};

/// Tokens [first, end).
struct TokenRange {
  std::uint32_t first = 0;
  std::uint32_t end = 0;
  constexpr std::uint32_t count() const { return end - first; }
};

/// The state of a head's cache. flushed_tokens and transposed_tokens are multiples of n, none exceeds tokens.
struct KvHeadView {
  std::uint32_t tokens = 0;             ///< S, the current token included
  std::uint32_t head_dim = 0;           ///< d
  std::uint32_t tokens_per_page = 0;    ///< n, tokens of a token group
  std::uint32_t embedding_group = 0;    ///< m, components of an embedding page; the least where windows differ
  std::uint32_t window = 0;             ///< T, tokens of an embedding page; those of the first where windows differ
  std::uint32_t flushed_tokens = 0;     ///< tokens in full groups; the others are in the group buffer in DRAM
  std::uint32_t transposed_tokens = 0;  ///< S_e, tokens readable in embedding pages
  TailScoring tail = TailScoring::token_pages;
  RowQuantisation format = {};  ///< format of K and of V of a token

  bool quantised() const { return format.quantised(); }
  /// Bytes of K, or of V, of a token.
  std::uint64_t row() const { return format.row(head_dim, sizeof(Half)).value; }

  constexpr std::uint32_t flushed_groups() const { return flushed_tokens / tokens_per_page; }
  bool operator==(const KvHeadView&) const = default;
};

/// Keys, values and their pages. The initiator of attention work must neither append to its heads nor let their pages
/// be erased until the work is done.
class KvSource {
 public:
  virtual ~KvSource() = default;

  virtual KvHeadView view(HeadKey key) const = 0;
  /// Window `w` of the head: windows follow one another from token 0 on. Default: all windows have the same size.
  virtual KvWindowView window(HeadKey key, std::uint32_t w) const {
    const KvHeadView v = view(key);
    return {w * v.window, v.window, v.embedding_group};
  }

  /// Appends a read for every page that has to come from flash, keys first (ReadPlan::values_from says where values
  /// begin, if they have pages of their own), and the map lookups that finding these pages takes; nothing for groups
  /// that are still readable in DRAM. `groups` ascend and lie below flushed_groups(). rows[i] is the number of rows of
  /// groups[i] that filters pass; empty means all rows.
  virtual void plan_token_groups(HeadKey key, KvRows which, std::span<const std::uint32_t> groups,
                                 std::span<const std::uint32_t> rows, ReadPlan& out) = 0;
  /// The same for embedding groups (components [g * m, g * m + m) with m of the view), each over all windows below
  /// transposed_tokens; a window of larger groups is read where they hold one of these.
  virtual void plan_embedding_groups(HeadKey key, std::span<const std::uint32_t> groups,
                                     std::span<const std::uint32_t> rows, ReadPlan& out) = 0;

  // Data, where it is carried: fp16, to which rows of few bits are dequantised. These hold until the next view().

  /// [n][d], row j % n is token j of the group; the last, unfinished group has tokens % n rows.
  virtual const Half* token_rows(HeadKey key, KvKind kind, std::uint32_t group) const = 0;
  /// [m][T] with m and T of the window: run i holds component group * m + i of its tokens, as far as they lie below
  /// transposed_tokens.
  virtual const Half* embedding_page(HeadKey key, std::uint32_t group, std::uint32_t window) const = 0;
  /// Rows of a token group in flash that was planned with `rows`: appends one row [d] for each of `wanted`, which
  /// ascend below n, as filters pass them. Default: the rows of token_rows().
  virtual void passed_rows(HeadKey key, KvKind kind, std::uint32_t group, std::span<const std::uint32_t> wanted,
                           std::vector<const Half*>& out) const {
    const Half* const rows = token_rows(key, kind, group);
    const std::size_t d = view(key).head_dim;
    for (const std::uint32_t row : wanted) out.push_back(rows + row * d);
  }
  /// The same for the runs [T] of an embedding page; `wanted` ascend below m of the window.
  virtual void passed_runs(HeadKey key, std::uint32_t group, std::uint32_t w, std::span<const std::uint32_t> wanted,
                           std::vector<const Half*>& out) const {
    const Half* const page = embedding_page(key, group, w);
    const std::size_t tokens = window(key, w).tokens;
    for (const std::uint32_t run : wanted) out.push_back(page + run * tokens);
  }
  /// [d]: mean of V over all tokens, the current one included, kept in fp32.
  virtual std::span<const float> value_mean(HeadKey key) const = 0;
  /// Tokens that take no part in attention, because their pages cannot be read: their logits are -inf. Known when the
  /// pages of a job have arrived.
  virtual std::vector<TokenRange> dropped(HeadKey) const { return {}; }
};

}  // namespace csdsim::engine
