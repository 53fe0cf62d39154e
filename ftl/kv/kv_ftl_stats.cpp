#include "ftl/kv/kv_ftl_stats.h"

#include <string_view>

#include "base/statistics.h"

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
  count("reclaim_pages_moved", kv.reclaim_pages_moved, "pages", "Valid pages moved out of blocks read too often.");
  count("refresh_pages_moved", kv.refresh_pages_moved, "pages", "Valid pages that moved because of their age.");
  count("wear_pages_moved", kv.wear_pages_moved, "pages", "Valid pages that static wear levelling moved.");
  count("retired_pages_moved", kv.retired_pages_moved, "pages", "Valid pages moved out of blocks that failed.");
  count("gc_blocks", kv.gc_blocks, "blocks", "Blocks that were emptied, whatever for.");
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

}  // namespace csdsim::ftl
