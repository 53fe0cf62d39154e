#include "host_runtime/core/features/head_rows/head_rows.h"

#include "base/error.h"

namespace csdsim::host {

FileRange component_range(const HeadRows& rows, const HeadRows::Sequence& of, std::uint32_t head,
                          std::uint32_t component, std::uint32_t first, std::uint32_t count) {
  const std::uint64_t d = rows.head_dim;
  const std::uint64_t element = of.tokens_before * rows.heads.count * d + (head * d + component) * of.room + first;
  return {Bytes{element * rows.element_bytes}, Bytes{std::uint64_t{count} * rows.element_bytes}};
}

FileRange token_range(const HeadRows& rows, const HeadRows::Sequence& of, std::uint32_t head, KvKind kind,
                      std::uint32_t first, std::uint32_t count) {
  const std::uint64_t row_bytes = std::uint64_t{rows.head_dim} * rows.element_bytes;
  const std::uint64_t half = kind == KvKind::value ? 1 : 0;
  const std::uint64_t row =
      2 * of.tokens_before * rows.heads.count + (2 * std::uint64_t{head} + half) * of.room + first;
  return {Bytes{row * row_bytes}, Bytes{count * row_bytes}};
}

TensorName choice_name(const OpTag& tag, const HeadRows& rows) {
  return TensorName::of(TensorClass::token_choice, tag, rows.heads, static_cast<std::uint32_t>(rows.kind));
}

std::vector<FileRange> written_ranges(const HeadRows& rows) {
  std::vector<FileRange> ranges;
  for (const HeadRows::Sequence& of : rows.sequences) {
    const std::uint32_t count = of.stored - of.first;
    for (std::uint32_t head = 0; count > 0 && head < rows.heads.count; ++head) {
      if (rows.kind == HeadRows::Kind::tokens) {
        for (const KvKind kind : {KvKind::key, KvKind::value})
          ranges.push_back(token_range(rows, of, head, kind, of.first, count));
        continue;
      }
      for (std::uint32_t c = 0; c < rows.head_dim; ++c)
        ranges.push_back(component_range(rows, of, head, c, of.first, count));
    }
  }
  return ranges;
}

namespace {

void add_tokens(const HeadRows& rows, const HeadRows::Sequence& of, std::uint32_t head,
                std::span<const std::uint32_t> tokens, std::vector<FileRange>& ranges) {
  for (const KvKind kind : {KvKind::key, KvKind::value})
    for (std::size_t i = 0; i < tokens.size();) {
      std::size_t end = i + 1;
      while (end < tokens.size() && tokens[end] == tokens[end - 1] + 1) ++end;
      if (tokens[end - 1] >= of.stored) throw InternalError("a chosen token is not in the file");
      ranges.push_back(token_range(rows, of, head, kind, tokens[i], static_cast<std::uint32_t>(end - i)));
      i = end;
    }
}

}  // namespace

std::vector<FileRange> chosen_ranges(const HeadRows& rows, const RowChoice& chosen) {
  std::vector<FileRange> ranges;
  const bool tokens = rows.kind == HeadRows::Kind::tokens;
  for (const HeadRows::Sequence& of : rows.sequences)
    for (std::uint32_t head = 0; of.stored > 0 && head < rows.heads.count; ++head) {
      if (tokens && of.sparse()) {
        add_tokens(rows, of, head, chosen(of, head), ranges);
      } else if (tokens) {
        for (const KvKind kind : {KvKind::key, KvKind::value})
          ranges.push_back(token_range(rows, of, head, kind, 0, of.stored));
      } else if (of.sparse()) {
        for (const std::uint32_t c : chosen(of, head))
          ranges.push_back(component_range(rows, of, head, c, 0, of.stored));
      }
    }
  return ranges;
}

}  // namespace csdsim::host
