// State of the KV namespace behind KvFtl; not a public header.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "ftl/core/kv_ftl.h"

namespace csdsim::ftl {

/// One KV head of one layer of one sequence.
struct KvFtl::Head {
  std::uint32_t tokens = 0;
  std::uint32_t readable_windows = 0;  ///< windows [0, it) have readable embedding pages
  std::uint32_t slot = 0;              ///< among the heads that have pages
  HeadMap map;
  std::unique_ptr<Half[]> group_buffer;    ///< [K, V][n][d]: the unfinished group. Carried mode
  std::unique_ptr<Half[]> component_tail;  ///< [d][T]: the unfinished window. Carried mode, tail policy `dram`
  std::vector<float> value_mean;           ///< [d]. Carried mode
};

struct KvFtl::Layer {
  std::vector<Head> heads;
};

struct KvFtl::Sequence {
  KvShape shape;
  KvLayout layout;
  std::uint32_t pins = 0;
  bool closing = false;                        ///< freed, waiting for its pins
  std::vector<std::unique_ptr<Layer>> layers;  ///< allocated when first appended to
  std::array<Bytes, kDramUses> dram{};         ///< what it holds; flush_pending is booked by the flushes
};

/// One append call after its arguments were found good.
struct KvFtl::Append {
  Sequence& sequence;
  SequenceId id;
  LayerId layer;
  std::uint32_t first;
  std::uint32_t count;
  HeadRange heads;
  std::span<const Half> keys;
  std::span<const Half> values;

  std::uint32_t end() const { return first + count; }
  std::span<const Half> rows(KvKind kind, KvHead head) const {
    const std::size_t size = std::size_t{count} * sequence.layout.head_dim;
    return (kind == KvKind::key ? keys : values).subspan((head.value - heads.first.value) * size, size);
  }
};

constexpr PageKind token_page_kind(KvKind kind) { return kind == KvKind::key ? PageKind::token_k : PageKind::token_v; }

inline OobTag oob_tag(const KvPageId& page, const KvLayout& layout) {
  const std::uint64_t index = std::uint64_t{page.window} * layout.embedding_pages() + page.group;
  return {page.kind, page.key.layer, page.key.head, page.key.sequence, index};
}

/// Where the rows of `kind` start in a group buffer.
constexpr std::size_t group_buffer_offset(const KvLayout& layout, KvKind kind) {
  return kind == KvKind::key ? 0 : std::size_t{layout.group_tokens} * layout.head_dim;
}

inline const Half* as_halves(std::span<const std::byte> bytes) { return reinterpret_cast<const Half*>(bytes.data()); }

}  // namespace csdsim::ftl
