// Page arithmetic of the two KV layouts. InstInfer; reference/algorithms.md 3.2 to 3.5.
#pragma once

#include <cstdint>

#include "base/units.h"
#include "ftl/core/kv_types.h"

namespace csdsim::ftl {

/// Pages that one KV head occupies in flash, by kind.
struct KvPageCount {
  std::uint64_t key = 0;
  std::uint64_t value = 0;
  std::uint64_t embedding = 0;
  std::uint64_t total() const { return key + value + embedding; }
  bool operator==(const KvPageCount&) const = default;
};

/// How token rows of `head_dim` halves are cut into pages. A token page holds n tokens of K or of V, one row each. An
/// embedding page holds m runs of T consecutive tokens: one run a component of K. All of S below are tokens of one
/// head.
struct KvLayout {
  Bytes page_size;
  std::uint32_t head_dim = 0;         ///< d
  std::uint32_t embedding_group = 0;  ///< m, components an embedding page
  std::uint32_t group_tokens = 0;     ///< n = P / (d p), tokens a token page
  std::uint32_t window_tokens = 0;    ///< T = P / (m p), tokens an embedding page
  bool component_major = true;        ///< embedding pages exist; otherwise no window is ever full

  /// `embedding_group` 0 chooses m: the largest T with T <= max(256, max_tokens / 2), else the smallest T there is.
  /// Half the longest sequence, because tokens short of a window cost whole token pages
  /// (docs/adr/0003-embedding-group.md). Throws UserError, with the numbers, if a page does not hold a whole number of
  /// token rows, or if m is not a power of two that divides d.
  static KvLayout make(Bytes page_size, std::uint32_t head_dim, std::uint32_t embedding_group, std::uint32_t max_tokens,
                       bool component_major = true);

  std::uint32_t embedding_pages() const { return head_dim / embedding_group; }  ///< a window: d / m
  std::uint32_t window_groups() const { return window_tokens / group_tokens; }  ///< token groups of a window: d / m too
  std::uint64_t full_groups(std::uint64_t tokens) const { return tokens / group_tokens; }
  std::uint64_t full_windows(std::uint64_t tokens) const { return component_major ? tokens / window_tokens : 0; }

  /// Pages in flash once everything that can be flushed is.
  KvPageCount pages(std::uint64_t tokens) const;

  /// DRAM that tokens outside a full group take: K and V rows.
  Bytes group_buffer(std::uint64_t tokens) const;
  /// DRAM that keys outside a complete window take when the component-major tail is held in DRAM.
  Bytes component_tail(std::uint64_t tokens) const;
  /// The most that a whole sequence of `shape` can take of the two above.
  Bytes worst_tail(const KvShape& shape, TailPolicy tail) const;

  Bytes row() const { return {std::uint64_t{head_dim} * kElementBytes}; }
  /// Programmed in the long run, a token and head: K twice, V once.
  Bytes programmed_per_token() const { return row() * 3; }
};

}  // namespace csdsim::ftl
