#include "ftl/kv/flash_reader.h"

namespace csdsim::ftl {

PlannedRead FlashReader::plan(PhysicalPageAddress ppa, OpClass op_class) {
  PlannedRead read{flash_.op(ppa, PageOpKind::read, op_class)};
  if (flash_.faults == nullptr) return read;
  const BlockId block = flash_.blocks.block_of(ppa);
  const std::uint32_t reads = flash_.blocks.count_read(block);
  const ReadOutcome outcome = flash_.faults->read(ppa, flash_.blocks.erase_count(block), reads);
  reclaim_.note_reads(block, reads + 1);
  read.op.retries = outcome.retries;
  read.lost = outcome.uncorrectable || losses_.lost(ppa);
  flash_.stats.read_retries += outcome.retries;
  flash_.stats.uncorrectable_reads += read.lost ? 1 : 0;
  return read;
}

bool FlashReader::read_back(const KvLayout& l, const KvTile& tile, const KvWindow& window, std::uint32_t end,
                            FlushJob& job) {
  bool lost = false;
  for (std::uint32_t token = window.first; token < end; token += l.group_tokens) {
    const std::uint32_t group = token / l.group_tokens;
    if (group >= tile.written_groups()) break;
    const KvMapEntry& e = tile.token(KvKind::key, group);
    if (e.in_dram()) {
      lost = lost || losses_.lost(e.ppa());
      continue;
    }
    const PlannedRead read = plan(e.ppa(), OpClass::flush);
    job.reads.push_back(read.op);
    lost = lost || read.lost;
  }
  flash_.stats.read_back_pages += job.reads.size();
  return lost;
}

std::span<const std::byte> FlashReader::bytes(const KvPageId& page, const MapSegment& segment, PhysicalPageAddress ppa,
                                              std::uint32_t partial_tokens) const {
  if (parked_.holds(ppa)) return parked_.at(ppa).image;
  KvPageId written = page;
  written.key = segment.key;
  return flash_.store.read_verified(ppa, oob_tag(written, segment.layout, segment.number, partial_tokens),
                                    flash_.config.check);
}

}  // namespace csdsim::ftl
