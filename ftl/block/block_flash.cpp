#include "ftl/block/block_flash.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "ftl/block/block_reserve.h"

namespace csdsim::ftl {
namespace {

std::uint64_t exported_pages(const BlockFtlConfig& config, const BlockManager& blocks) {
  const FlashGeometry& g = blocks.geometry();
  const std::uint32_t quota = blocks.quota(Namespace::block);
  if (!(config.over_provisioning >= 0 && config.over_provisioning < 1)) {
    throw UserError(fmt::format("over_provisioning is {}, it must be in [0, 1)", config.over_provisioning));
  }
  if (config.gc_free_blocks < 1) throw UserError("gc_free_blocks is 0, it must be at least 1");
  if (config.gc_step_pages < 1) throw UserError("gc_step_pages is 0, it must be at least 1");
  const std::uint32_t reserved = reserved_blocks(config);
  require_collectable(config, quota);
  // A block that has lost fewer pages than this is not worth an erase, which may leave as many of a word line empty.
  const std::uint32_t wasted = config.volatile_lines ? config.units_per_program - 1 : 0;
  const std::uint64_t per_plane_cap = std::uint64_t{quota - reserved} * (g.pages_per_block - wasted);
  const double raw = static_cast<double>(std::uint64_t{quota} * g.pages_per_block * g.planes());
  const std::uint64_t pages =
      std::min(static_cast<std::uint64_t>(raw * (1 - config.over_provisioning)), per_plane_cap * g.planes());
  if (!config.map_cache_entries) return pages;
  if (*config.map_cache_entries == 0) throw UserError("the map cache holds no entry, it must hold at least 1");
  // Translation pages take their share; two pages a plane are lost to uneven shares.
  const std::uint64_t even = pages - std::min<std::uint64_t>(pages, 2 * std::uint64_t{g.planes()});
  const std::uint64_t entries = g.page_size.value / kMapEntryBytes;
  return even * entries / (entries + 1);
}

}  // namespace

BlockFlash::BlockFlash(const BlockFtlConfig& c, BlockManager& b, BackingStore& s, MediaFaults* f, BlockFtlStats& n)
    : config(c),
      blocks(b),
      store(s),
      faults(f),
      geometry(b.geometry()),
      page_size(geometry.page_size),
      codeword(c.codeword.value == 0 ? page_size : c.codeword),
      entries_per_page(page_size.value / kMapEntryBytes),
      exported(exported_pages(c, b)),
      stats(n) {
  if (c.volatile_lines) b.want_gain(c.units_per_program);
}

}  // namespace csdsim::ftl
