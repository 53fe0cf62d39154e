// The bytes of embedding pages: some components of K of the tokens of a window.
//
// A page holds m runs of T elements, one per component. With few bits a run has the integers of the tokens' rows, and
// behind all runs come the scales of these rows, T for each group of elements of which the page has components: the
// values are those of the rows (docs/adr/0020-components-of-few-bits.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/fp16.h"
#include "base/touched_blocks.h"
#include "ftl/kv/kv_layout.h"

namespace csdsim::ftl {

/// What a read of some components of an embedding page moves. The components ascend.
class ComponentReads {
 public:
  ComponentReads(const KvLayout& layout, const KvWindow& window, std::uint32_t ge);
  /// Components [first, first + count) of the page.
  void add(std::uint32_t first, std::uint32_t count);
  /// Bytes of the codewords that hold their runs, and of few bits their scales; of the page without codewords.
  std::uint64_t channel_bytes() const;
  /// Bytes of `runs` of these components for the first `tokens` tokens, and of their scales.
  std::uint64_t wanted(std::uint64_t runs, std::uint32_t tokens) const;

 private:
  const KvLayout& layout_;
  KvWindow window_;
  std::uint32_t page_;
  TouchedBlocks codewords_;
  std::vector<std::uint32_t> groups_;  ///< groups of elements whose scales are read; ascending
};

/// Copies the components of embedding page `ge` of tokens [first, first + rows.size() / w) of the window, counted from
/// its first one, from their rows [tokens][w] into the image of the page, [P / 2]; w is KvLayout::row_words().
void put_components(const KvLayout& layout, const KvWindow& window, std::uint32_t ge, std::uint32_t first,
                    std::span<const Half> rows, std::span<Half> page);

/// The same for all pages of the window, one image behind the other.
void put_window(const KvLayout& layout, const KvWindow& window, std::uint32_t first, std::span<const Half> rows,
                std::span<Half> pages);

/// The values of the first `tokens` tokens of a page of few bits, which `page` begins: run i is [i * T, i * T + tokens)
/// of `to`, [m][T].
void dequantise_components(const KvLayout& layout, const KvWindow& window, std::uint32_t ge, std::uint32_t tokens,
                           const Half* page, std::span<Half> to);

}  // namespace csdsim::ftl
