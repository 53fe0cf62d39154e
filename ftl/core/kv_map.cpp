#include "ftl/core/kv_map.h"

namespace csdsim::ftl {

void HeadMap::reserve(const KvLayout& layout, std::uint64_t tokens) {
  tokens_.reserve(2 * layout.full_groups(tokens));
  embedding_.reserve(layout.full_windows(tokens) * layout.embedding_pages());
}

void HeadMap::push_group(KvMapEntry key, KvMapEntry value) {
  tokens_.push_back(key);
  tokens_.push_back(value);
}

}  // namespace csdsim::ftl
