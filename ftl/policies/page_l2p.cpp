#include "ftl/policies/page_l2p.h"

#include <algorithm>

namespace csdsim::ftl {

KvLayout PageL2pPolicy::layout(const KvShape& shape, Bytes page_size, const KvLayoutOptions&) const {
  KvLayout layout = KvLayout::make(page_size, shape.head_dim, 0, shape.max_tokens, false, shape.format);
  layout.page_heads = std::min(layout.group_tokens, shape.kv_heads);
  layout.group_tokens /= layout.page_heads;
  return layout;
}

}  // namespace csdsim::ftl
