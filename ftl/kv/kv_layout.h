// Page arithmetic of the two KV layouts. InstInfer; docs/algorithms.md, Layouts to Tail.
#pragma once

#include <cstdint>

#include "base/units.h"
#include "contracts/quantised_integers.h"
#include "ftl/kv/kv_types.h"

namespace csdsim::ftl {

/// Pages that one KV head occupies in flash, by kind. Where several heads, or K and V, share a page, all of it counts.
struct KvPageCount {
  std::uint64_t key = 0;
  std::uint64_t value = 0;  ///< 0 where V lies in the pages of K
  std::uint64_t embedding = 0;
  std::uint64_t total() const { return key + value + embedding; }
  bool operator==(const KvPageCount&) const = default;
};

/// Tokens [first, first + tokens) of a head, kept component-major in head_dim / group pages.
struct KvWindow {
  std::uint32_t first = 0;
  std::uint32_t tokens = 0;  ///< T
  std::uint32_t group = 0;   ///< m, components per embedding page
  std::uint32_t end() const { return first + tokens; }
  bool operator==(const KvWindow&) const = default;
};

/// How token rows of `head_dim` elements are cut into pages.
///
/// A token page holds n tokens of `page_heads` KV heads, K or V, or both where they are `paired`: [K, V][head][n][d].
/// An embedding page holds m runs of T consecutive tokens of one head, one run per component of K: [m][T].
///
/// Windows of T tokens follow one another. With `doublings` they get longer with the context: kWindowsPerStage times T
/// tokens into the sequence, T may double and m halve, `doublings` times at most, so that the keys that fill no window
/// yet stay a fifth of the context at most. All of S below are tokens of one head.
///
/// With few bits an embedding page holds, behind its runs, the scales of its tokens' rows (ftl/kv/kv_components.h).
/// T is then a whole number of token groups and fills pages as far as that allows; those of windows that double are
/// full after the last doubling.
struct KvLayout {
  static constexpr std::uint32_t kWindowsPerStage = 4;

  Bytes page_size;
  std::uint32_t head_dim = 0;         ///< d
  std::uint32_t embedding_group = 0;  ///< m of the first window
  std::uint32_t group_tokens = 0;     ///< n, tokens per token page
  std::uint32_t window_tokens = 0;    ///< T of the first window
  bool component_major = true;        ///< embedding pages exist; otherwise no window is ever full
  std::uint32_t page_heads = 1;       ///< KV heads that share a token page
  bool paired = false;                ///< K and V of the same tokens share a token page
  std::uint32_t doublings = 0;        ///< how often T doubles as the context grows
  Bytes codeword{};                   ///< what a read moves at least, set by the FTL; 0: the page
  std::uint32_t group_codewords = 1;  ///< codewords of a group of tokens, likewise
  RowQuantisation format = {};        ///< format of a row

  /// One head per page, K and V in separate pages, windows of one length: n = P / (d p), T = P / (m p). Where rows do
  /// not divide a page (heads of 80 or 96), the end of every token page stays empty. With embedding pages, n is then
  /// the largest power of two that fits, so that windows are whole numbers of token groups; with few bits, windows are
  /// cut to whole groups instead.
  ///
  /// `embedding_group` 0 chooses m: the largest T with T <= max(256, max_tokens / 2), else the smallest T there is.
  /// Half the longest sequence, because tokens short of a window cost whole token pages
  /// (docs/adr/0003-embedding-group.md). With few bits m is so large that scales take no more of a page than integers,
  /// where d allows it. Throws UserError, with the numbers, if a page holds no token row or is no
  /// power of two with embedding pages, or if m is not a power of two that divides d.
  static KvLayout make(Bytes page_size, std::uint32_t head_dim, std::uint32_t embedding_group, std::uint32_t max_tokens,
                       bool component_major = true, const RowQuantisation& format = {});

  /// Throws UserError unless the fields describe pages that can exist: what a token page holds fits into it, m is a
  /// power of two that divides d in every window, windows fill their pages (few bits: fit) and are whole numbers of
  /// token groups, and
  /// heads that share token pages keep no embedding pages (their windows would fill at different times).
  void validate() const;

  /// Lets windows double as often as they can: until m is 1, with few bits the smallest that make() chooses.
  void let_windows_double();

  std::uint32_t embedding_pages() const { return head_dim / embedding_group; }  ///< pages of the first window: d / m
  std::uint32_t embedding_pages(const KvWindow& w) const { return head_dim / w.group; }
  std::uint32_t window_groups() const { return window_tokens / group_tokens; }  ///< token groups of the first window
  std::uint32_t finest_group() const { return embedding_group >> doublings; }   ///< the smallest m of any window

  /// Tokens of a group, the unit that reads ask for: those whose rows of a head `group_codewords` codewords hold, or
  /// one whose row is longer. They divide n, and are n without codewords.
  std::uint32_t fetch_tokens() const;
  /// Components of embedding pages of which a codeword holds the runs, likewise. They divide finest_group().
  std::uint32_t fetch_components() const;

  KvWindow window(std::uint32_t w) const;
  /// Embedding pages of the windows before `w`: an embedding page's position is this plus its group.
  std::uint64_t embedding_position(const KvWindow& w) const {
    return std::uint64_t{embedding_pages()} * (w.first / window_tokens);
  }
  /// The window that holds the embedding page at `position`.
  std::uint32_t window_at(std::uint64_t position) const;

  std::uint64_t full_groups(std::uint64_t tokens) const { return tokens / group_tokens; }
  std::uint64_t full_windows(std::uint64_t tokens) const { return component_major ? window_of(tokens) : 0; }
  /// Tokens in full windows. With `rewrites`, also the tokens of the next window that are written before it is full: it
  /// is written that often, at equal distances, rounded down to whole token groups.
  std::uint64_t windowed(std::uint64_t tokens, std::uint32_t rewrites = 0) const;

  /// Pages in flash once every full group and window is.
  KvPageCount pages(std::uint64_t tokens) const;
  std::uint32_t pages_per_group() const { return paired ? 1 : 2; }

  /// DRAM that tokens outside a full group take: K and V rows.
  Bytes group_buffer(std::uint64_t tokens) const;
  /// DRAM that keys outside a complete window take when the component-major tail is held in DRAM.
  Bytes component_tail(std::uint64_t tokens) const;

  Bytes row() const { return format.row(head_dim, kElementBytes); }
  /// Bytes of a component of `tokens` tokens in an embedding page, without scales.
  std::uint64_t run_bytes(std::uint64_t tokens) const { return integer_bytes(format.bits, tokens); }
  /// Groups of elements of which an embedding page of m components may hold the scales; 0 with fp16.
  std::uint32_t scale_runs(std::uint32_t m) const;
  /// What an embedding page of the window holds.
  Bytes embedding_bytes(const KvWindow& w) const {
    return {w.group * run_bytes(w.tokens) + std::uint64_t{scale_runs(w.group)} * w.tokens * sizeof(Half)};
  }
  std::size_t page_words() const { return page_size.value / sizeof(Half); }
  /// 16-bit words of all embedding pages of a window of `tokens` tokens.
  std::size_t window_words(std::uint32_t tokens) const {
    return page_words() * embedding_pages() * (tokens / window_tokens);
  }
  /// 16-bit words of a row: its halves, or its integers and scales.
  std::uint32_t row_words() const { return static_cast<std::uint32_t>(row().value / sizeof(Half)); }

 private:
  std::uint32_t least_group() const;
  std::uint32_t most_tokens(std::uint32_t m) const;
  void fit_windows(std::uint32_t rows);
  std::uint32_t stage_of(std::uint64_t token) const;
  std::uint64_t window_of(std::uint64_t token) const;
};

}  // namespace csdsim::ftl
