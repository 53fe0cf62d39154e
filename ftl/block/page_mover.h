// Moving the valid pages of a block, and erasing it.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "ftl/block/line_filler.h"
#include "ftl/block/map_entries.h"
#include "ftl/block/page_appender.h"
#include "ftl/block/page_reader.h"
#include "ftl/block/trim_log.h"

namespace csdsim::ftl {

/// Functions append their operations to `phases`, unless that is null.
class PageMover {
 public:
  PageMover(BlockFlash& flash, PageMap& map, MapEntries& entries, PageAppender& appender, LineFiller& lines,
            PageReader& reader, TrimLog& trims)
      : flash_(flash),
        map_(map),
        entries_(entries),
        appender_(appender),
        lines_(lines),
        reader_(reader),
        trims_(trims) {}

  /// The stream that the pages of a block move to. Translation pages have one of their own.
  Stream stream_for(BlockId victim) const;
  /// Moves up to `limit` valid pages of `from` within its plane, in two phases, and adds their number to `moved`.
  /// False: there was no room for a page.
  /// No page of it before `next` is valid; `next` is then the first that may be.
  bool move_pages(BlockId from, Stream to, std::uint32_t limit, std::vector<Phase>* phases, std::uint64_t& moved,
                  std::uint32_t& next);
  /// The same for all of its pages.
  bool move_all(BlockId from, Stream to, std::vector<Phase>* phases, std::uint64_t& moved) {
    std::uint32_t next = 0;
    return move_pages(from, to, flash_.geometry.pages_per_block, phases, moved, next);
  }
  /// Closes an open block of the host, after the program of its last word line.
  void close(BlockId block, std::vector<Phase>* phases);

  /// Sets who is told where a page is moved to and where it was; see BlockFtl::on_replaced.
  void on_moved(std::function<void(PhysicalPageAddress, PhysicalPageAddress)> told) { moved_ = std::move(told); }

  /// BlockFtl::observe_placement; null: nobody
  void observe(PlacementObserver* observer) { observer_ = observer; }

  /// BlockFtl::count_moves
  void count_moves(std::uint64_t pages_of_part);
  const std::vector<std::uint64_t>& moves() const { return moves_; }

  /// The erase of an empty block, after the programs of what would be lost with it (volatile_lines). The
  /// firmware notes the erase in its reserved area, and the trims that were not saved with it: a page's last copy may
  /// go, and an older one be left in another block.
  void erase(BlockId block, std::vector<Phase>* phases);

 private:
  bool move_runs(BlockId from, Stream to, std::uint32_t limit, std::uint64_t& moved, std::uint32_t& next);
  [[gnu::noinline]] void tell_moved(BlockId from, std::uint32_t pages, LogicalPage first);
  void count_move(LogicalPage page) {
    if (!moves_.empty() && page.value < flash_.exported) ++moves_[page.value >> part_bits_];
  }

  BlockFlash& flash_;
  PageMap& map_;
  MapEntries& entries_;
  PageAppender& appender_;
  LineFiller& lines_;
  PageReader& reader_;
  TrimLog& trims_;
  int part_bits_ = 0;                 ///< bits of a page's number within its part
  std::vector<std::uint64_t> moves_;  ///< by part; empty: nobody asks
  std::function<void(PhysicalPageAddress, PhysicalPageAddress)> moved_;
  PlacementObserver* observer_ = nullptr;
};

}  // namespace csdsim::ftl
