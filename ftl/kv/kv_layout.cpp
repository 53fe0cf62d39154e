#include "ftl/kv/kv_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <numeric>
#include <string>

#include "base/error.h"

namespace csdsim::ftl {

std::string_view to_string(KvStatus status) {
  switch (status) {
    case KvStatus::ok:
      return "ok";
    case KvStatus::busy:
      return "busy";
    case KvStatus::out_of_dram:
      return "out of controller DRAM";
    case KvStatus::out_of_space:
      return "out of flash";
    case KvStatus::read_only:
      return "read-only";
    case KvStatus::bad_sequence:
      return "bad sequence";
    case KvStatus::bad_shape:
      return "bad shape";
    case KvStatus::bad_layer:
      return "bad layer";
    case KvStatus::bad_head:
      return "bad head";
    case KvStatus::bad_token:
      return "bad token";
    case KvStatus::bad_data:
      return "bad data";
  }
  return "unknown";
}

KvLayout KvLayout::make(Bytes page_size, std::uint32_t head_dim, std::uint32_t embedding_group,
                        std::uint32_t max_tokens, bool component_major, const RowQuantisation& format) {
  if (head_dim == 0) throw UserError("the head dimension is 0");
  const std::uint64_t row = format.row(head_dim, kElementBytes).value;
  if (page_size.value < row) {
    throw UserError(fmt::format("a page of {} bytes is smaller than a token row: {} elements of {} bits are {} bytes",
                                page_size.value, head_dim, format.bits, row));
  }
  KvLayout layout;
  layout.page_size = page_size;
  layout.head_dim = head_dim;
  layout.component_major = component_major;
  layout.format = format;
  if (embedding_group == 0) {
    const std::uint32_t largest = std::uint32_t{1} << std::countr_zero(head_dim);
    const std::uint64_t longest = std::max<std::uint64_t>(256, max_tokens / 2);
    embedding_group = std::min(largest, layout.least_group());
    while (embedding_group < largest && layout.most_tokens(embedding_group) > longest) embedding_group *= 2;
  } else if (!std::has_single_bit(embedding_group) || head_dim % embedding_group != 0) {
    throw UserError(fmt::format("embedding_group is {}, it must be a power of two that divides the head dimension {}",
                                embedding_group, head_dim));
  }
  layout.embedding_group = embedding_group;
  const auto rows = static_cast<std::uint32_t>(page_size.value / row);
  layout.group_tokens = rows;
  layout.window_tokens = layout.most_tokens(embedding_group);
  if (!component_major) return layout;
  if (format.quantised()) {
    layout.fit_windows(rows);
  } else if (page_size.value % row != 0) {
    layout.group_tokens = std::bit_floor(rows);
  }
  return layout;
}

/// Scales have 16 bits.
std::uint32_t KvLayout::least_group() const { return 16 / format.bits; }

std::uint32_t KvLayout::scale_runs(std::uint32_t m) const {
  if (!format.quantised()) return 0;
  const std::uint32_t g = std::max(1U, format.group);
  if (g % m == 0 || m % g == 0) return std::max(1U, m / g);
  return std::min((m + g - 2) / g + 1, (head_dim + g - 1) / g);  // wherever a page begins in a group
}

/// Tokens of an embedding page of m components, at most.
std::uint32_t KvLayout::most_tokens(std::uint32_t m) const {
  const std::uint64_t bits = std::uint64_t{m} * format.bits + std::uint64_t{scale_runs(m)} * 8 * sizeof(Half);
  return static_cast<std::uint32_t>(page_size.value * 8 / bits);
}

/// Cuts windows to whole groups of at most `rows` tokens, and to what pages hold after every doubling.
void KvLayout::fit_windows(std::uint32_t rows) {
  std::uint32_t most = most_tokens(embedding_group);
  for (std::uint32_t stage = 1; stage <= doublings; ++stage)
    most = std::min(most, most_tokens(embedding_group >> stage) >> stage);
  group_tokens = std::max(1U, std::min(rows, most));
  window_tokens = most / group_tokens * group_tokens;
  // Runs of 4 bits end with half a byte where T is odd.
  const auto fits = [&] { return embedding_bytes(window(0)) <= page_size; };
  while (window_tokens > group_tokens && !fits()) window_tokens -= group_tokens;
  if (window_tokens > 0 && !fits()) group_tokens = --window_tokens;
}

void KvLayout::let_windows_double() {
  const int most = std::countr_zero(embedding_group) - std::countr_zero(least_group());
  doublings = static_cast<std::uint32_t>(std::max(0, most));
  if (!format.quantised()) return;
  const std::uint32_t rows = group_tokens;
  for (fit_windows(rows); window_tokens == 0 && doublings > 0; fit_windows(rows)) --doublings;
}

void KvLayout::validate() const {
  const auto require = [](bool good, const std::string& what) {
    if (!good) throw UserError("the layout cannot be: " + what);
  };
  require(head_dim > 0 && group_tokens > 0 && page_heads > 0,
          fmt::format("head dimension {}, {} tokens and {} heads a page: none may be 0", head_dim, group_tokens,
                      page_heads));
  require(!format.quantised() || (format.group > 0 && head_dim % format.group == 0 && row().value % sizeof(Half) == 0),
          fmt::format("groups of {} elements do not divide heads of {}, or rows are no whole words", format.group,
                      head_dim));
  const std::uint64_t rows = std::uint64_t{group_tokens} * page_heads * (paired ? 2 : 1);
  require(rows * row().value <= page_size.value,
          fmt::format("{} rows of {} bytes do not fit into a page of {} bytes", rows, row().value, page_size.value));
  if (!component_major) return;
  require(page_heads == 1, fmt::format("{} heads share a token page, and embedding pages exist", page_heads));
  require(
      std::has_single_bit(embedding_group) && head_dim % embedding_group == 0,
      fmt::format("m is {}, which is no power of two that divides the head dimension {}", embedding_group, head_dim));
  require(embedding_group >> doublings > 0, fmt::format("m is {} and halves {} times", embedding_group, doublings));
  require(window_tokens > 0, fmt::format("a page of {} bytes holds no window", page_size.value));
  for (const std::uint32_t stage : {0U, doublings}) {
    const KvWindow longest{0, window_tokens << stage, embedding_group >> stage};
    const Bytes held = embedding_bytes(longest);
    require(format.quantised() ? held <= page_size : held == page_size,
            fmt::format("{} runs of {} tokens, {} bytes, do not {} a page of {} bytes", longest.group, longest.tokens,
                        held.value, format.quantised() ? "fit into" : "fill", page_size.value));
  }
  require(window_tokens % group_tokens == 0,
          fmt::format("a window of {} tokens is no whole number of groups of {}", window_tokens, group_tokens));
}

namespace {

/// As many of `rows` of `row` bytes as `codeword` bytes hold, one at least, and so that they divide `rows`.
std::uint32_t rows_of_codeword(std::uint32_t rows, std::uint64_t row, Bytes codeword) {
  if (codeword.value == 0) return rows;
  if (row >= codeword.value) return 1;
  return std::gcd(rows, static_cast<std::uint32_t>(codeword.value / row));
}

}  // namespace

std::uint32_t KvLayout::fetch_tokens() const {
  return rows_of_codeword(group_tokens, row().value, codeword * group_codewords);
}

std::uint32_t KvLayout::fetch_components() const {
  return rows_of_codeword(finest_group(), std::max<std::uint64_t>(1, run_bytes(window_tokens << doublings)), codeword);
}

// Stage i of windows holds tokens [c T_i, 2 c T_i) with T_i = T 2^i and c windows a stage, the first one [0, 2 c T),
// the last one all that follow. Before token t, stages 0 .. i - 1 have c windows more than t / T_i counts.
std::uint32_t KvLayout::stage_of(std::uint64_t token) const {
  const std::uint64_t rounds = token / (std::uint64_t{kWindowsPerStage} * window_tokens);
  return rounds < 2 ? 0 : std::min(doublings, static_cast<std::uint32_t>(std::bit_width(rounds)) - 1);
}

std::uint64_t KvLayout::window_of(std::uint64_t token) const {
  const std::uint32_t stage = doublings == 0 ? 0 : stage_of(token);
  return std::uint64_t{kWindowsPerStage} * stage + token / (std::uint64_t{window_tokens} << stage);
}

KvWindow KvLayout::window(std::uint32_t w) const {
  const std::uint32_t stage = w < 2 * kWindowsPerStage ? 0 : std::min(doublings, w / kWindowsPerStage - 1);
  const std::uint32_t tokens = window_tokens << stage;
  return {(w - kWindowsPerStage * stage) * tokens, tokens, embedding_group >> stage};
}

std::uint32_t KvLayout::window_at(std::uint64_t position) const {
  return static_cast<std::uint32_t>(window_of(position / embedding_pages() * window_tokens));
}

std::uint64_t KvLayout::windowed(std::uint64_t tokens, std::uint32_t rewrites) const {
  if (!component_major) return 0;
  const KvWindow next = window(static_cast<std::uint32_t>(window_of(tokens)));
  if (rewrites == 0) return next.first;
  const std::uint32_t step = next.tokens / (rewrites + 1) / group_tokens * group_tokens;
  const std::uint32_t distance = std::max(step, group_tokens);
  return next.first + (tokens - next.first) / distance * distance;
}

KvPageCount KvLayout::pages(std::uint64_t tokens) const {
  const std::uint64_t groups = full_groups(tokens);
  return {groups, paired ? 0 : groups, component_major ? windowed(tokens) / window_tokens * embedding_pages() : 0};
}

Bytes KvLayout::group_buffer(std::uint64_t tokens) const { return row() * (2 * (tokens % group_tokens)); }

Bytes KvLayout::component_tail(std::uint64_t tokens) const {
  return component_major ? row() * (tokens - windowed(tokens)) : Bytes{};
}

}  // namespace csdsim::ftl
