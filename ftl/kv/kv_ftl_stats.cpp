#include "ftl/kv/kv_ftl_stats.h"

#include <iterator>
#include <string_view>

#include "base/statistics.h"

namespace csdsim::ftl {

namespace {

struct Counter {
  std::uint64_t KvFtlStats::*value;
  std::string_view name, unit, doc;
  bool skip_zero;  ///< it is left out of the dump while it is 0
};
constexpr Counter kCounters[] = {
    {&KvFtlStats::lookups, "lookups", "entries", "Map entries looked up.", false},
    {&KvFtlStats::token_pages_programmed, "token_pages_programmed", "pages", "Pages of full token groups.", false},
    {&KvFtlStats::embedding_pages_programmed, "embedding_pages_programmed", "pages", "Pages of full embedding windows.",
     false},
    {&KvFtlStats::read_back_pages, "read_back_pages", "pages", "Token pages of K read back to be transposed.", false},
    {&KvFtlStats::misplaced_pages, "misplaced_pages", "pages", "Pages that did not go where the placement wanted them.",
     false},
    {&KvFtlStats::partial_pages_programmed, "partial_pages_programmed", "pages",
     "Embedding pages of windows that were not full.", true},
    {&KvFtlStats::parked_pages_programmed, "parked_pages_programmed", "pages",
     "Pages that a recovery after a power loss held in DRAM.", true},
    {&KvFtlStats::erases, "erases", "blocks", "Erases that were begun.", true},
    {&KvFtlStats::reclaim_pages_moved, "reclaim_pages_moved", "pages",
     "Valid pages moved out of blocks read too often.", true},
    {&KvFtlStats::gc_blocks, "gc_blocks", "blocks", "Blocks that were emptied, for any reason.", true},
    {&KvFtlStats::reclaimed_blocks, "reclaimed_blocks", "blocks", "Of these, blocks that were read too often.", true},
    {&KvFtlStats::refreshed_blocks, "refreshed_blocks", "blocks", "Of these, blocks whose pages were old.", true},
    {&KvFtlStats::levelled_blocks, "levelled_blocks", "blocks", "Of these, blocks that static wear levelling moved.",
     true},
    {&KvFtlStats::pages_rewritten, "pages_rewritten", "pages", "Lost pages whose content the host has written again.",
     true},
    {&KvFtlStats::rows_dropped, "rows_dropped", "rows",
     "Tokens of a head that were taken out of attention: lost pages.", true},
};
static_assert(sizeof(KvFtlStats) == sizeof(MaintenanceStats) + std::size(kCounters) * sizeof(std::uint64_t),
              "the table has every counter");

}  // namespace

KvFtlStats& KvFtlStats::operator+=(const KvFtlStats& other) {
  MaintenanceStats::operator+=(other);
  for (const Counter& counter : kCounters) this->*counter.value += other.*counter.value;
  return *this;
}

void register_statistics(Statistics& statistics, const KvFtlStats& stats) {
  for (const Counter& c : kCounters)
    statistics.counter(c.name, stats.*c.value, c.unit, c.doc, c.skip_zero ? skip_zero() : StatOptions{});
  register_statistics(statistics, static_cast<const MaintenanceStats&>(stats));
}

}  // namespace csdsim::ftl
