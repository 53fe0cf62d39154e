#include "ftl/core/kv_map.h"

namespace csdsim::ftl {

void HeadMap::reserve(const KvLayout& layout, std::uint64_t tokens) {
  const KvPageCount pages = layout.pages(tokens);
  tokens_.reserve(pages.key + pages.value);
  embedding_.reserve(pages.embedding);
}

}  // namespace csdsim::ftl
