// Bringing the block namespace back after a power loss.
#include "ftl/block/block_recovery.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/error.h"
#include "ftl/block/block_parts.h"

namespace csdsim::ftl {
namespace {

void require_recoverable(const BlockParts& parts) {
  if (!parts.flash.store.carried())
    throw UserError("a power loss cannot be recovered from in timing mode: its flash keeps no out-of-band metadata");
}

/// The record of a block as the firmware has noted it last: erases that have not completed are not in it, and the
/// block still holds what it held before the first of them.
void undo_erase(BlockRecord& record, std::uint32_t pages_per_block) {
  if (record.state != BlockState::bad) --record.erases;  // an erase that fails is not counted
  record.state = BlockState::full;
  record.written = pages_per_block;
}

class Recovery {
 public:
  Recovery(BlockParts& parts, const BlockDump& dump) : p_(parts), dump_(dump), blocks_(dump.blocks) {
    std::erase_if(blocks_, [](const BlockRecord& record) { return record.ns != Namespace::block; });
  }

  BlockRecovery run(PlanBuilder& writes) {
    check();
    scan();
    hide_trimmed();
    leave_blocks_empty();
    make_room();
    restore_blocks();
    bind();
    erase_empty();
    write_images(writes);
    restore_map_pages(writes);
    return std::move(result_);
  }

 private:
  /// The newest copies of a page: equal in their bytes.
  struct Copies {
    std::uint64_t stamp = 0;
    bool damaged = false;
    std::vector<PhysicalPageAddress> at;
  };

  void check() const;
  void scan();
  bool scan_block(const BlockRecord& record);
  void note_copy(PhysicalPageAddress ppa, const OobRecord& oob);
  void hide_trimmed();
  void leave_blocks_empty();
  void make_room();
  void restore_blocks();
  void bind();
  void erase_empty();
  void write_images(PlanBuilder& writes);
  void restore_map_pages(PlanBuilder& writes);

  BlockParts& p_;
  const BlockDump& dump_;
  std::vector<BlockRecord> blocks_;
  std::map<LogicalPage, Copies> copies_;
  BlockRecovery result_;
};

void Recovery::check() const {
  require_recoverable(p_);
  if (p_.flash.blocks.valid_pages(Namespace::block) > 0)
    throw InternalError("the block namespace is recovered but in use");
}

/// Reads the out-of-band metadata of every page that was handed out. A block in which no program had begun is still
/// erased.
void Recovery::scan() {
  std::vector<std::uint64_t> of_plane(p_.flash.geometry.planes());
  for (BlockRecord& record : blocks_) {
    if (record.state == BlockState::free) continue;
    of_plane[p_.flash.blocks.plane_of(record.block).value] += record.written;
    result_.oob_reads += record.written;
    const bool in_service = record.state != BlockState::retired && record.state != BlockState::bad;
    if (!scan_block(record) && in_service) record.state = BlockState::free;
  }
  result_.oob_reads_of_busiest_plane = *std::ranges::max_element(of_plane);
}

/// Whether a program had begun in the block.
bool Recovery::scan_block(const BlockRecord& record) {
  bool programmed = false;
  for (std::uint32_t page = 0; page < record.written; ++page) {
    const PhysicalPageAddress ppa{p_.flash.blocks.first_page(record.block).value + page};
    programmed = programmed || p_.flash.store.written(ppa);
    const auto oob = p_.flash.store.oob(ppa);
    if (!oob) {
      ++result_.unreadable_pages;
    } else if (oob->tag.kind != PageKind::host || oob->tag.index >= p_.flash.exported + translation_pages(p_.flash)) {
      throw InternalError(fmt::format("page {} of the block namespace holds {}", ppa.value, to_string(oob->tag)));
    } else {
      note_copy(ppa, *oob);
    }
  }
  return programmed;
}

/// The newest stamp wins.
void Recovery::note_copy(PhysicalPageAddress ppa, const OobRecord& oob) {
  ++result_.stale_pages;
  Copies& copies = copies_[LogicalPage{oob.tag.index}];
  if (oob.stamp < copies.stamp) return;
  if (oob.stamp > copies.stamp) copies = {oob.stamp, oob.damaged, {}};
  copies.at.push_back(ppa);
  copies.damaged = copies.damaged || oob.damaged;
}

/// A trim hides what was written before it.
void Recovery::hide_trimmed() {
  TrimLog::Stamps trims = dump_.trims;
  std::erase_if(trims, [&](const auto& trim) {
    const auto at = copies_.find(trim.first);
    if (at == copies_.end() || at->second.stamp > trim.second) return at != copies_.end();
    copies_.erase(at);
    ++result_.trimmed_pages;
    return false;
  });
  p_.trims.restore(std::move(trims));
}

/// A move that was interrupted leaves two copies of a page. Of blocks whose pages are all elsewhere, too, none is kept:
/// such a block is erased, so that collection finds the room that it had before.
void Recovery::leave_blocks_empty() {
  std::map<BlockId, std::vector<Copies*>> of_block;
  for (auto& [page, copies] : copies_)
    for (const PhysicalPageAddress ppa : copies.at) of_block[p_.flash.blocks.block_of(ppa)].push_back(&copies);
  for (const auto& [block, pages] : of_block) {
    if (std::ranges::any_of(pages, [](const Copies* copies) { return copies->at.size() == 1; })) continue;
    for (Copies* const copies : pages)
      std::erase_if(copies->at, [&](PhysicalPageAddress ppa) { return p_.flash.blocks.block_of(ppa) == block; });
  }
}

/// Collection may have taken the last free block of a plane for translation pages that it moved. The recovery closes
/// all open blocks, so that such a plane has no page left to move anything to. Translation pages can be made from the
/// map: in a plane without a free block, the block of translation pages with the fewest of them is emptied, and
/// restore_map_pages() writes its pages again.
void Recovery::make_room() {
  std::map<BlockId, std::vector<LogicalPage>> pages_of;
  for (const auto& [page, copies] : copies_)
    for (const PhysicalPageAddress ppa : copies.at) pages_of[p_.flash.blocks.block_of(ppa)].push_back(page);
  struct PlaneUse {
    std::uint32_t used = 0;  // blocks in service with pages
    const std::vector<LogicalPage>* fewest = nullptr;
  };
  std::map<PlaneId, PlaneUse> of_plane;
  for (const BlockRecord& record : blocks_) {
    const auto pages = pages_of.find(record.block);
    if (pages == pages_of.end() || record.state == BlockState::retired || record.state == BlockState::bad) continue;
    PlaneUse& plane = of_plane[p_.flash.blocks.plane_of(record.block)];
    ++plane.used;
    const bool of_map =
        std::ranges::all_of(pages->second, [&](LogicalPage page) { return page.value >= p_.flash.exported; });
    if (of_map && (plane.fewest == nullptr || pages->second.size() < plane.fewest->size()))
      plane.fewest = &pages->second;
  }
  for (const auto& [id, plane] : of_plane)
    if (plane.used >= p_.flash.blocks.quota(Namespace::block) && plane.fewest != nullptr)
      for (const LogicalPage page : *plane.fewest) copies_.erase(page);
}

void Recovery::restore_blocks() {
  std::vector<PhysicalPageAddress> live;
  for (const auto& [page, copies] : copies_) live.push_back(copies.at.front());
  std::ranges::sort(live);
  result_.pages = live.size();
  result_.stale_pages -= live.size();
  const auto page_before = [&](BlockId block) {
    return std::ranges::lower_bound(live, p_.flash.blocks.first_page(block));
  };
  for (const BlockRecord& record : blocks_) {
    p_.flash.blocks.restore(record, {page_before(record.block), page_before(BlockId{record.block.value + 1})});
    if (p_.flash.blocks.state(record.block) == BlockState::retired) p_.appender.put_back(record.block);
  }
}

void Recovery::bind() {
  for (const auto& [page, copies] : copies_) {
    p_.map.bind(page, copies.at.front());
    if (copies.damaged) p_.page_reader.lose(page);
  }
}

void Recovery::erase_empty() {
  Phase erases;
  std::vector<Phase> phases;
  for (const BlockRecord& record : blocks_) {
    if (p_.flash.blocks.state(record.block) != BlockState::full || p_.flash.blocks.valid_pages(record.block) > 0)
      continue;
    phases.clear();
    p_.mover.erase(record.block, &phases);
    erases.push_back(phases.back().front());
  }
  if (!erases.empty()) result_.plan.phases.push_back(std::move(erases));
}

void Recovery::write_images(PlanBuilder& writes) {
  for (const SavedImage& image : dump_.images) {
    const auto found = copies_.find(image.page);
    if (found != copies_.end() && found->second.stamp >= image.stamp) continue;  // its program had completed
    if (p_.writer.write_page(image.page, 0, image.bytes.size(), image.bytes, nullptr, {}, writes) == IoStatus::ok) {
      ++result_.saved_pages;
    } else {
      p_.flash.invalidate(p_.map.unbind(image.page));
      p_.unwritten.emplace(image.page, image);
      ++result_.unwritten_pages;
    }
    if (image.damaged) p_.page_reader.lose(image.page);
  }
  p_.placer.pad(writes);
}

void Recovery::restore_map_pages(PlanBuilder& writes) {
  const std::uint64_t before = p_.flash.stats.map_pages_written;
  p_.map_pages.restore(writes);
  result_.map_pages_written = p_.flash.stats.map_pages_written - before;
}

}  // namespace

Bytes SavedImage::saved() const { return Bytes{sizeof page + sizeof stamp + sizeof damaged + bytes.size()}; }

Bytes BlockDump::saved() const {
  Bytes saved{trims.size() * (sizeof(LogicalPage) + sizeof(std::uint64_t))};
  for (const SavedImage& image : images) saved += image.saved();
  return saved;
}

BlockDump save_block(const BlockParts& parts, const PowerCut& cut) {
  require_recoverable(parts);
  const BlockFlash& flash = parts.flash;
  BlockDump dump{.blocks = flash.blocks.records(), .trims = parts.trims.stamps(cut.capacitors), .images = {}};
  std::map<BlockId, std::uint32_t> unerased;
  for (const BlockId block : cut.unerased) ++unerased[block];
  for (BlockRecord& record : dump.blocks) {
    const auto at = unerased.find(record.block);
    if (at == unerased.end()) continue;
    record.erases -= at->second - 1;
    undo_erase(record, flash.geometry.pages_per_block);
  }
  for (const PhysicalPageAddress ppa : std::set(cut.in_dram.begin(), cut.in_dram.end())) {
    const auto page = parts.map.owner(ppa);
    const auto oob = flash.store.oob(ppa);
    // No version of a page any more; an empty unit; a translation page, which the recovery makes from the map.
    if (!page || !oob || page->value >= flash.exported) continue;
    ++dump.in_dram;
    if (!cut.capacitors) continue;
    const std::span<const std::byte> bytes = flash.store.read(ppa);
    dump.images.push_back({*page, oob->stamp, oob->damaged, {bytes.begin(), bytes.end()}});
  }
  for (const auto& [page, image] : parts.unwritten) dump.images.push_back(image);
  return dump;
}

BlockRecovery recover_block(BlockParts& parts, const BlockDump& dump, PlanBuilder& writes) {
  return Recovery(parts, dump).run(writes);
}

}  // namespace csdsim::ftl
