#include "ftl/core/kv_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

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
                        std::uint32_t max_tokens, bool component_major) {
  if (head_dim == 0) throw UserError("the head dimension is 0");
  const std::uint64_t row = std::uint64_t{head_dim} * kElementBytes;
  if (page_size.value < row) {
    throw UserError(fmt::format("a page of {} bytes is smaller than a token row: {} elements of {} bytes are {} bytes",
                                page_size.value, head_dim, kElementBytes, row));
  }
  if (page_size.value % row != 0) {
    throw UserError(
        fmt::format("a page of {} bytes does not hold a whole number of token rows: {} elements of {} bytes are {} "
                    "bytes, {} bytes would be left over",
                    page_size.value, head_dim, kElementBytes, row, page_size.value % row));
  }
  const std::uint64_t elements = page_size.value / kElementBytes;
  if (embedding_group == 0) {
    const std::uint32_t largest = std::uint32_t{1} << std::countr_zero(head_dim);
    const std::uint64_t longest = std::max<std::uint64_t>(256, max_tokens / 2);
    for (embedding_group = 1; embedding_group < largest && elements / embedding_group > longest;) embedding_group *= 2;
  } else if (!std::has_single_bit(embedding_group) || head_dim % embedding_group != 0) {
    throw UserError(fmt::format("embedding_group is {}, it must be a power of two that divides the head dimension {}",
                                embedding_group, head_dim));
  }
  KvLayout layout;
  layout.page_size = page_size;
  layout.head_dim = head_dim;
  layout.embedding_group = embedding_group;
  layout.group_tokens = static_cast<std::uint32_t>(page_size.value / row);
  layout.window_tokens = static_cast<std::uint32_t>(elements / embedding_group);
  layout.component_major = component_major;
  return layout;
}

KvPageCount KvLayout::pages(std::uint64_t tokens) const {
  return {full_groups(tokens), full_groups(tokens), full_windows(tokens) * embedding_pages()};
}

Bytes KvLayout::group_buffer(std::uint64_t tokens) const { return row() * (2 * (tokens % group_tokens)); }

Bytes KvLayout::component_tail(std::uint64_t tokens) const {
  return component_major ? row() * (tokens % window_tokens) : Bytes{};
}

Bytes KvLayout::worst_tail(const KvShape& shape, TailPolicy tail) const {
  const std::uint64_t heads = std::uint64_t{shape.layers} * shape.kv_heads;
  Bytes worst = group_buffer(group_tokens - 1) * heads;
  if (tail == TailPolicy::dram) worst += component_tail(window_tokens - 1) * heads;
  return worst;
}

}  // namespace csdsim::ftl
