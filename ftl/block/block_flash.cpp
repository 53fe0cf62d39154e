#include "ftl/block/block_flash.h"

#include <fmt/format.h>

#include "base/error.h"
#include "ftl/block/block_reserve.h"

namespace csdsim::ftl {

BlockFlash::BlockFlash(const BlockFtlConfig& c, BlockManager& b, BackingStore& s, MediaFaults* f, BlockFtlStats& n)
    : config(c),
      blocks(b),
      store(s),
      faults(f),
      geometry(b.geometry()),
      page_size(geometry.page_size),
      codeword(c.codeword.value == 0 ? page_size : c.codeword),
      entries_per_page(page_size.value / kMapEntryBytes),
      exported(exported_pages(c, geometry, b.quota(Namespace::block))),
      stats(n) {
  if (c.handles != b.handles())
    throw InternalError(fmt::format("{} placement handles, and blocks for {}", c.handles, b.handles()));
  if (c.volatile_lines) b.want_gain(c.units_per_program);
}

}  // namespace csdsim::ftl
