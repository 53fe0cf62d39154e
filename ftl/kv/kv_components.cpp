#include "ftl/kv/kv_components.h"

#include <cstring>
#include <vector>

#include "contracts/quantised_integers.h"

namespace csdsim::ftl {

namespace {

/// Where a page of few bits has what, in bytes.
class PageOfFewBits {
 public:
  PageOfFewBits(const KvLayout& l, const KvWindow& window, std::uint32_t ge)
      : run_(l.run_bytes(window.tokens)),
        scales_(run_ * window.group),
        tokens_(window.tokens),
        first_(ge * window.group / l.format.group),
        end_(((ge + 1) * window.group - 1) / l.format.group + 1) {}

  std::size_t run(std::uint32_t component) const { return component * run_; }
  /// Groups of elements of rows.
  std::uint32_t first_group() const { return first_; }
  std::uint32_t end_group() const { return end_; }
  std::size_t scale(std::uint32_t group, std::uint32_t token) const {
    return scales_ + (std::size_t{group - first_} * tokens_ + token) * sizeof(Half);
  }

 private:
  std::size_t run_, scales_, tokens_;
  std::uint32_t first_, end_;
};

}  // namespace

ComponentReads::ComponentReads(const KvLayout& layout, const KvWindow& window, std::uint32_t ge)
    : layout_(layout),
      window_(window),
      page_(ge),
      codewords_((layout.codeword.value > 0 ? layout.codeword : layout.page_size).value) {}

void ComponentReads::add(std::uint32_t first, std::uint32_t count) {
  const std::uint64_t run = layout_.run_bytes(window_.tokens);
  codewords_.add(first * run, count * run);
  if (!layout_.format.quantised()) return;
  const std::uint32_t component = page_ * window_.group + first, of_group = layout_.format.group;
  for (std::uint32_t g = component / of_group; g <= (component + count - 1) / of_group; ++g)
    if (groups_.empty() || groups_.back() < g) groups_.push_back(g);
}

std::uint64_t ComponentReads::channel_bytes() const {
  TouchedBlocks touched = codewords_;
  for (const std::uint32_t group : groups_)
    touched.add(PageOfFewBits(layout_, window_, page_).scale(group, 0), window_.tokens * sizeof(Half));
  return touched.size();
}

std::uint64_t ComponentReads::wanted(std::uint64_t runs, std::uint32_t tokens) const {
  return runs * layout_.run_bytes(tokens) + groups_.size() * tokens * sizeof(Half);
}

void put_components(const KvLayout& l, const KvWindow& window, std::uint32_t ge, std::uint32_t first,
                    std::span<const Half> rows, std::span<Half> page) {
  const std::size_t words = l.row_words(), count = rows.size() / words;
  const std::uint32_t m = window.group;
  if (!l.format.quantised()) {
    for (std::size_t t = 0; t < count; ++t)
      for (std::size_t i = 0; i < m; ++i)
        page[i * window.tokens + first + t] = rows[t * words + std::size_t{ge} * m + i];
    return;
  }
  const PageOfFewBits at(l, window, ge);
  const std::uint32_t bits = l.format.bits;
  const std::size_t scales = integer_bytes(bits, l.head_dim);
  const std::span<std::byte> to = std::as_writable_bytes(page);
  for (std::uint32_t t = 0; t < count; ++t) {
    const std::span<const std::byte> row = std::as_bytes(rows.subspan(t * words, words));
    for (std::uint32_t i = 0; i < m; ++i)
      set_integer(to.subspan(at.run(i)), bits, first + t, integer_at(row, bits, std::size_t{ge} * m + i));
    for (std::uint32_t g = at.first_group(); g < at.end_group(); ++g)
      std::memcpy(&to[at.scale(g, first + t)], &row[scales + g * sizeof(Half)], sizeof(Half));
  }
}

void put_window(const KvLayout& l, const KvWindow& window, std::uint32_t first, std::span<const Half> rows,
                std::span<Half> pages) {
  const std::size_t size = l.page_words();
  for (std::uint32_t ge = 0; ge < l.embedding_pages(window); ++ge)
    put_components(l, window, ge, first, rows, pages.subspan(ge * size, size));
}

void dequantise_components(const KvLayout& l, const KvWindow& window, std::uint32_t ge, std::uint32_t tokens,
                           const Half* page, std::span<Half> to) {
  const PageOfFewBits at(l, window, ge);
  const std::span<const std::byte> from = std::as_bytes(std::span(page, l.page_words()));
  std::vector<float> values(tokens);
  for (std::uint32_t i = 0; i < window.group; ++i) {
    const std::uint32_t group = (ge * window.group + i) / l.format.group;
    const std::span<const std::byte> run = from.subspan(at.run(i));
    for (std::uint32_t t = 0; t < tokens; ++t) {
      Half scale = 0;
      std::memcpy(&scale, &from[at.scale(group, t)], sizeof scale);
      values[t] = static_cast<float>(integer_at(run, l.format.bits, t)) * half_to_float(scale);
    }
    floats_to_halves(values, to.subspan(std::size_t{i} * window.tokens, tokens));
  }
}

}  // namespace csdsim::ftl
