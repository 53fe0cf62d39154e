#include "ftl/kv/kv_policy.h"

#include <fmt/format.h>

namespace csdsim::ftl {

KvLayout KvMappingPolicy::layout(const KvShape& shape, Bytes page_size, const KvLayoutOptions& options) const {
  // A context that grows without a known end starts with the windows of a short one.
  KvLayout layout = KvLayout::make(page_size, shape.head_dim, options.embedding_group,
                                   options.adaptive ? 0 : shape.max_tokens, shape.component_major, shape.format);
  if (options.adaptive && shape.component_major) {
    layout.let_windows_double();
  }
  return layout;
}

PhysicalPageAddress KvMappingPolicy::move(const KvPageId&, const KvSequenceInfo&, PhysicalPageAddress from,
                                          PageAllocator& pages) {
  return pages.take(pages.geometry().plane_of(from), kMovedPoint);
}

std::uint32_t KvMappingPolicy::groups_to_write(const KvSequenceInfo& sequence, std::uint32_t tokens,
                                               std::uint32_t written_groups) const {
  return tokens / sequence.layout.group_tokens - written_groups;
}

std::uint64_t KvMappingPolicy::lookups(const KvSequenceInfo&, std::uint64_t pages) const { return pages; }

Bytes KvMappingPolicy::table_bytes(const KvSequenceInfo&, std::uint64_t pages) const { return Bytes{8} * pages; }

void KvMappingPolicy::sequence_freed(const KvSequenceInfo&, PageAllocator&) {}

void KvMappingPolicy::page_restored(const KvPageId&, const KvSequenceInfo&, PhysicalPageAddress) {}

std::string to_string(const KvPageId& page) {
  const std::string key = fmt::format("sequence {}, layer {}, KV head {}", page.key.sequence.value,
                                      page.key.layer.value, page.key.head.value);
  switch (page.kind) {
    case PageKind::token_k:
      return fmt::format("{}, K of token group {}", key, page.group);
    case PageKind::token_v:
      return fmt::format("{}, V of token group {}", key, page.group);
    case PageKind::token_kv:
      return fmt::format("{}, K and V of token group {}", key, page.group);
    case PageKind::embedding:
      return fmt::format("{}, embedding group {} of window {}", key, page.group, page.window);
    case PageKind::host:
      break;
  }
  return key;
}

}  // namespace csdsim::ftl
