#include "ftl/policies/paired.h"

#include <fmt/format.h>

namespace csdsim::ftl {

KvLayout PairedPolicy::layout(const KvShape& shape, Bytes page_size, const KvLayoutOptions& options) const {
  KvLayoutOptions windows = options;
  if (windows.embedding_group == 0) windows.adaptive = true;
  KvLayout layout = SequenceBlockPolicy::layout(shape, page_size, windows);
  if (layout.group_tokens % 2 != 0) {
    throw UserError(
        fmt::format("{}: a page of {} bytes holds {} token rows of {} bytes, which K and V cannot share "
                    "evenly",
                    kName, page_size.value, layout.group_tokens, layout.row().value));
  }
  layout.group_tokens /= 2;
  layout.paired = true;
  return layout;
}

}  // namespace csdsim::ftl
