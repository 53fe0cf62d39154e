// The counters of the block namespace as named figures.
#include <string_view>

#include "base/statistics.h"
#include "ftl/block/block_ftl_stats.h"

namespace csdsim::ftl {

void register_statistics(Statistics& s, const BlockFtlStats& block) {
  const auto count = [&s](std::string_view name, const std::uint64_t& value, std::string_view unit,
                          std::string_view doc) { s.counter(name, value, unit, doc, skip_zero()); };
  count("host_pages_read", block.host_pages_read, "pages", "Pages read from flash for reads of the host.");
  count("unwritten_reads", block.unwritten_reads, "pages", "Logical pages read as zeros, without flash.");
  count("host_pages_written", block.host_pages_written, "pages", "Pages programmed for writes of the host.");
  count("host_bytes_written", block.host_bytes_written, "B", "Bytes that the host has written.");
  count("abandoned_pages", block.abandoned_pages, "pages", "Pages programmed for partial writes that failed.");
  count("padded_pages", block.padded_pages, "pages", "Pages left empty in the word line of a request.");
  count("coalesced_pages", block.coalesced_pages, "pages", "Pages written again before their program had begun.");
  count("merge_reads", block.merge_reads, "pages", "Pages read to complete partial writes.");
  count("gc_erases", block.gc_erases, "blocks", "Blocks that garbage collection erased.");
  count("closed_blocks", block.closed_blocks, "blocks", "Blocks of placement handles that were collected half full.");
  count("background_steps", block.background_steps, "steps", "Pieces of background collection.");
  count("wear_erases", block.wear_erases, "blocks", "Blocks that static wear levelling erased.");
  count("refreshed_blocks", block.refreshed_blocks, "blocks", "Blocks that were erased because of their age.");
  register_statistics(s, static_cast<const MaintenanceStats&>(block));
  count("trimmed_pages", block.trimmed_pages, "pages", "Pages that were deallocated.");
  const auto cached = [&block] { return block.map_hits + block.map_misses > 0; };
  s.counter("map_hits", block.map_hits, "entries", "Map entries of host pages that were cached.", written_if(cached));
  s.counter("map_misses", block.map_misses, "entries", "Map entries of host pages that were not.", written_if(cached));
  s.value(
      "map_hit_rate",
      [&block] { return static_cast<double>(block.map_hits) / static_cast<double>(block.map_hits + block.map_misses); },
      "ratio", "Share of map entries that were cached.");
  count("map_pages_read", block.map_pages_read, "pages", "Translation pages read.");
  count("map_pages_written", block.map_pages_written, "pages",
        "Translation pages written, those that were moved aside.");
}

}  // namespace csdsim::ftl
