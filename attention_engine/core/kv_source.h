// What the attention engine needs from whoever keeps the KV cache. Page layouts: InstInfer, section IV-C.
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <vector>

#include "base/address.h"
#include "base/fp16.h"
#include "base/page_op.h"

namespace csdsim::engine {

/// One KV head of one layer of one sequence: the unit of attention work.
struct HeadKey {
  SequenceId sequence;
  LayerId layer;
  KvHead head;
  auto operator<=>(const HeadKey&) const = default;
};

enum class KvKind : std::uint8_t { key, value };

/// From where keys are scored that have left the group buffer but are not in an embedding page yet.
enum class TailScoring : std::uint8_t {
  token_pages,  ///< from their K token pages (tail policy `token_index`)
  dram          ///< from a component-major copy in controller DRAM (tail policy `dram`): no flash page
};

/// The state of a head's cache. flushed_tokens is a multiple of n, transposed_tokens one of T, and
/// transposed_tokens <= flushed_tokens <= tokens.
struct KvHeadView {
  std::uint32_t tokens = 0;             ///< S, the current token included
  std::uint32_t head_dim = 0;           ///< d
  std::uint32_t tokens_per_page = 0;    ///< n, tokens of a token group
  std::uint32_t embedding_group = 0;    ///< m, components of an embedding page
  std::uint32_t window = 0;             ///< T, tokens of an embedding page; T * m = n * d
  std::uint32_t flushed_tokens = 0;     ///< tokens in full groups; the others are in the group buffer in DRAM
  std::uint32_t transposed_tokens = 0;  ///< S_e, tokens readable in embedding pages
  TailScoring tail = TailScoring::token_pages;

  constexpr std::uint32_t flushed_groups() const { return flushed_tokens / tokens_per_page; }
  constexpr std::uint32_t windows() const { return window == 0 ? 0 : transposed_tokens / window; }
};

/// Keys, values and their pages. Heads that are being worked on must not be appended to; whoever submits the work sees
/// to that and keeps their pages from being erased.
class KvSource {
 public:
  virtual ~KvSource() = default;

  virtual KvHeadView view(HeadKey key) const = 0;

  /// Appends a read for every group that has to come from flash; none for groups that are still readable in DRAM.
  /// `groups` ascend and lie below flushed_groups(). rows[i] is the number of rows of groups[i] that the filter passes,
  /// which a filter on the die needs for PageOp::channel_bytes; empty means all rows.
  virtual void plan_token_groups(HeadKey key, KvKind kind, std::span<const std::uint32_t> groups,
                                 std::span<const std::uint32_t> rows, std::vector<PageOp>& out) = 0;
  /// The same for embedding groups (components [g * m, g * m + m)), each over all windows below transposed_tokens.
  virtual void plan_embedding_groups(HeadKey key, std::span<const std::uint32_t> groups,
                                     std::span<const std::uint32_t> rows, std::vector<PageOp>& out) = 0;

  // Data, where it is carried.

  /// [n][d], row j % n is token j of the group; the last, unfinished group has tokens % n rows.
  virtual const Half* token_rows(HeadKey key, KvKind kind, std::uint32_t group) const = 0;
  /// [m][T]: run i holds component group * m + i of tokens [window * T, window * T + T). window < windows().
  virtual const Half* embedding_page(HeadKey key, std::uint32_t group, std::uint32_t window) const = 0;
  /// [d]: mean of V over all tokens, the current one included, kept in fp32.
  virtual std::span<const float> value_mean(HeadKey key) const = 0;
};

}  // namespace csdsim::engine
