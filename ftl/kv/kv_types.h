// The vocabulary of the KV namespace.
#pragma once

#include <compare>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/address.h"
#include "contracts/kv_address.h"
#include "contracts/page_op.h"
#include "contracts/row_quantisation.h"
#include "ftl/core/backing_store.h"

namespace csdsim::ftl {

/// Bytes of one element of K or V in half precision; p in the papers.
inline constexpr std::uint32_t kElementBytes = 2;

/// What a sequence looks like. On a drive that holds a share of the heads, `kv_heads` is that share.
struct KvShape {
  std::uint32_t layers = 0;
  std::uint32_t kv_heads = 0;
  std::uint32_t head_dim = 0;  ///< d, elements of a token row
  std::uint32_t max_tokens =
      0;                        ///< longest expected length; a hint for the choice of m and for allocation, not a limit
  bool component_major = true;  ///< K is kept component-major too, as SparF wants it; dense attention does without
  /// How rows are stored. The groups of few bits divide head_dim.
  RowQuantisation format = {};
};

/// A page of the KV namespace. Token pages: `group` is the token group, `window` is 0, and the key's head is the first
/// of those that share the page. Embedding pages: `group` is the embedding group (components [group * m, group * m +
/// m)) and `window` the token window.
struct KvPageId {
  HeadKey key;
  PageKind kind = PageKind::token_k;
  std::uint32_t group = 0;
  std::uint32_t window = 0;
  auto operator<=>(const KvPageId&) const = default;
};

/// A page that could not be read back, and what was in it: `tokens` tokens from `first_token` on, of `heads` KV heads
/// from that of the page on.
struct KvLoss {
  KvPageId page;
  std::uint32_t heads = 1;
  std::uint32_t first_token = 0;
  std::uint32_t tokens = 0;
  auto operator<=>(const KvLoss&) const = default;
};

/// Tokens [first, end).
struct TokenSpan {
  std::uint32_t first = 0;
  std::uint32_t end = 0;
  bool operator==(const TokenSpan&) const = default;
};

/// What happens to keys whose embedding window is not complete.
enum class TailPolicy : std::uint8_t {
  token_index,     ///< they are scored from their token pages; a full window is read back, transposed and programmed
  dram,            ///< a component-major copy is held in controller DRAM until the window is full
  partial_program  ///< as token_index, but a window is programmed before it is full, too, and written again as it fills
};

enum class KvStatus : std::uint8_t {
  ok,
  busy,          ///< try again when flushes, erases or unpins have completed
  out_of_dram,   ///< does not fit into controller DRAM, even after waiting
  out_of_space,  ///< no flash page left, even after waiting
  read_only,     ///< a block failed and no spare block is left
  bad_sequence,  ///< unknown, or (create) in use
  bad_shape,     ///< the shape does not fit the page size: see KvLayout::make for the reason in words
  bad_layer,
  bad_head,
  bad_token,  ///< not the next token of every head in the range
  bad_data    ///< data given in timing mode, or of the wrong size
};
std::string_view to_string(KvStatus status);

using FlushJobId = StrongId<struct FlushJobTag, std::uint64_t>;

/// What a job writes: token pages of full groups, embedding pages of a window, pages that move, or lost pages again.
enum class FlushKind : std::uint8_t { groups, window, move, rewrite };

/// Background work that an append started: all `reads`, then all `programs`, then KvFtl::flush_done(id). Jobs are
/// independent of one another.
struct FlushJob {
  FlushJobId id;
  std::vector<PageOp> reads;
  std::vector<PageOp> programs;
  FlushKind kind = FlushKind::groups;
};

/// `jobs` include moves of garbage collection, which are run in the same way; those come with a status of busy, too.
/// `erases` are to be run, each followed by KvFtl::erase_done.
struct AppendResult {
  KvStatus status = KvStatus::ok;
  std::vector<FlushJob> jobs;
  std::vector<PageOp> erases;
};

/// `erases` are to be run, each followed by KvFtl::erase_done.
struct FreeResult {
  KvStatus status = KvStatus::ok;
  std::vector<PageOp> erases;
};

}  // namespace csdsim::ftl
