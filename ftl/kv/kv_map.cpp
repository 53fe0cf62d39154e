#include "ftl/kv/kv_map.h"

namespace csdsim::ftl {

void HeadMap::reserve(const KvLayout& layout, std::uint64_t tokens) {
  const KvPageCount pages = layout.pages(tokens);
  tokens_.reserve(pages.key + pages.value);
  embedding_.reserve(pages.embedding);
}

void HeadMap::assign_nowhere(std::uint32_t end_group, std::uint32_t end_position) {
  tokens_.assign(std::size_t{end_group - first_group_} * pages_per_group_, KvMapEntry::nowhere());
  embedding_.assign(end_position - first_position_, KvMapEntry::nowhere());
}

}  // namespace csdsim::ftl
