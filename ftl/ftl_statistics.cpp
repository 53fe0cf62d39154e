// The counters of both FTLs, of the blocks and of controller DRAM, as named figures.
#include <fmt/format.h>

#include <limits>

#include "base/statistics.h"
#include "ftl/block/block_ftl.h"
#include "ftl/core/block_manager.h"
#include "ftl/core/dram_budget.h"
#include "ftl/kv/kv_ftl.h"

namespace csdsim::ftl {

void register_statistics(Statistics& s, const KvFtlStats& kv) {
  s.counter("lookups", kv.lookups, "entries", "Map entries looked up.");
  s.counter("token_pages_programmed", kv.token_pages_programmed, "pages", "Pages of full token groups.");
  s.counter("embedding_pages_programmed", kv.embedding_pages_programmed, "pages", "Pages of full embedding windows.");
  s.counter("read_back_pages", kv.read_back_pages, "pages", "Token pages of K read back to be transposed.");
  s.counter("misplaced_pages", kv.misplaced_pages, "pages", "Pages that did not go where the placement wanted them.");
  const auto count = [&s](std::string_view name, const std::uint64_t& value, std::string_view unit,
                          std::string_view doc) { s.counter(name, value, unit, doc, skip_zero()); };
  count("partial_pages_programmed", kv.partial_pages_programmed, "pages",
        "Embedding pages of windows that were not full.");
  count("parked_pages_programmed", kv.parked_pages_programmed, "pages",
        "Pages that a recovery after a power loss held in DRAM.");
  count("erases", kv.erases, "blocks", "Erases that were begun.");
  count("gc_pages_moved", kv.gc_pages_moved, "pages", "Valid pages that garbage collection moved.");
  count("gc_blocks", kv.gc_blocks, "blocks", "Blocks that garbage collection emptied.");
  count("reclaimed_blocks", kv.reclaimed_blocks, "blocks", "Of these, blocks that were read too often.");
  count("refreshed_blocks", kv.refreshed_blocks, "blocks", "Of these, blocks whose pages were old.");
  count("levelled_blocks", kv.levelled_blocks, "blocks", "Of these, blocks that static wear levelling moved.");
  count("program_failures", kv.program_failures, "programs", "Programs that failed; their blocks were retired.");
  count("erase_failures", kv.erase_failures, "erases", "Erases that failed; their blocks were retired.");
  count("read_retries", kv.read_retries, "reads", "Senses of pages after their first.");
  count("uncorrectable_reads", kv.uncorrectable_reads, "reads", "Reads of pages that could not be corrected.");
  count("pages_rewritten", kv.pages_rewritten, "pages", "Lost pages whose content the host has written again.");
  count("rows_dropped", kv.rows_dropped, "rows", "Tokens of a head that were taken out of attention: lost pages.");
}

void register_statistics(Statistics& s, const BlockFtlStats& block) {
  const auto count = [&s](std::string_view name, const std::uint64_t& value, std::string_view unit,
                          std::string_view doc) { s.counter(name, value, unit, doc, skip_zero()); };
  count("host_pages_read", block.host_pages_read, "pages", "Pages read from flash for reads of the host.");
  count("unwritten_reads", block.unwritten_reads, "pages", "Logical pages read as zeros, without flash.");
  count("host_pages_written", block.host_pages_written, "pages", "Pages programmed for writes of the host.");
  count("coalesced_pages", block.coalesced_pages, "pages", "Pages written again before their program had begun.");
  count("merge_reads", block.merge_reads, "pages", "Pages read to complete partial writes.");
  count("gc_pages_moved", block.gc_pages_moved, "pages", "Valid pages that garbage collection moved.");
  count("gc_erases", block.gc_erases, "blocks", "Blocks that garbage collection erased.");
  count("background_steps", block.background_steps, "steps", "Pieces of background collection.");
  count("wear_pages_moved", block.wear_pages_moved, "pages", "Valid pages that static wear levelling moved.");
  count("wear_erases", block.wear_erases, "blocks", "Blocks that static wear levelling erased.");
  count("refresh_pages_moved", block.refresh_pages_moved, "pages", "Valid pages that moved because of their age.");
  count("refreshed_blocks", block.refreshed_blocks, "blocks", "Blocks that were erased because of their age.");
  count("retired_pages_moved", block.retired_pages_moved, "pages", "Valid pages moved out of blocks that failed.");
  count("program_failures", block.program_failures, "programs", "Programs that failed; their blocks were retired.");
  count("erase_failures", block.erase_failures, "erases", "Erases that failed; their blocks were retired.");
  count("read_retries", block.read_retries, "reads", "Senses of pages after their first.");
  count("uncorrectable_reads", block.uncorrectable_reads, "reads", "Pages that could not be corrected.");
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

void BlockManager::register_statistics(Statistics& s) const {
  s.counter("grown_bad_blocks", grown_bad_, "blocks", "Blocks of either namespace that failed in use.", skip_zero());
  const auto worn = [this] { return wear().max > 0; };
  s.value(
      "erases_min", [this] { return static_cast<double>(wear().min); }, "erases",
      "Fewest erases of a block in service.", written_if(worn));
  s.value(
      "erases_mean", [this] { return wear().mean; }, "erases", "Their mean.", written_if(worn));
  s.value(
      "erases_max", [this] { return static_cast<double>(wear().max); }, "erases", "Most erases of a block in service.",
      written_if(worn));
}

void DramBudget::register_statistics(Statistics& s) const {
  s.value(
      "capacity", [this] { return static_cast<double>(capacity_.value); }, "B", "Controller DRAM.");
  s.value(
      "peak", [this] { return static_cast<double>(total_peak_.value); }, "B", "Most of it in use.");
  for (std::size_t use = 0; use < kDramUses; ++use) {
    const bool engine = static_cast<DramUse>(use) == DramUse::engine_buffer;
    s.value(
        fmt::format("peak_{}", kDramUseNames[use]), [this, use] { return static_cast<double>(peak_[use].value); }, "B",
        "Most of it in use for this purpose.",
        engine ? skip_zero() : StatOptions());  // an engine with memory of its own takes none
  }
}

}  // namespace csdsim::ftl
