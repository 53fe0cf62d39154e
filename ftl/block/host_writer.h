// Writes of the host, page by page.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/fixed_divisor.h"
#include "ftl/block/failed_blocks.h"
#include "ftl/block/page_placer.h"

namespace csdsim::ftl {

class HostWriter {
 public:
  HostWriter(BlockFlash& flash, PageMap& map, PageReader& reader, PageAppender& appender, LineFiller& lines,
             PagePlacer& placer, FailedBlocks& failed, TrimLog& trims)
      : flash_(flash),
        map_(map),
        reader_(reader),
        appender_(appender),
        lines_(lines),
        placer_(placer),
        failed_(failed),
        trims_(trims),
        by_page_(flash.page_size.value),
        image_(flash.store.carried() ? flash.page_size.value : 0) {}

  /// BlockFtl::coalesce
  void coalesce(std::function<bool(PhysicalPageAddress)> held) { held_ = std::move(held); }
  /// BlockFtl::on_replaced
  void on_replaced(std::function<void(PhysicalPageAddress, PhysicalPageAddress)> told) { replaced_ = std::move(told); }

  /// BlockFtl::keep. Within the namespace, not empty.
  KeptPages keep(Bytes offset, Bytes length);
  /// Writes the pages of a request, up to the first that fails. Within the namespace.
  IoStatus write(Bytes offset, Bytes length, std::span<const std::byte> data, const KeptPages* kept,
                 PlacementHandle handle, PlanBuilder& plan);
  /// Writes `count` bytes of a page, from byte `first` on.
  IoStatus write_page(LogicalPage page, std::uint64_t first, std::uint64_t count, std::span<const std::byte> bytes,
                      const KeptPages* kept, PlacementHandle handle, PlanBuilder& plan);
  /// BlockFtl::write_in_line, for lines of several pages.
  BlockManager::PageRun join_line(Bytes offset, Bytes length, std::uint32_t most, PlacementHandle handle,
                                  const PlaneLoad* load);
  /// BlockFtl::write_in_line, for lines of one page. `old`: where the page was; both invalid() where it needs a plan.
  struct Moved {
    PhysicalPageAddress to = PhysicalPageAddress::invalid(), old = PhysicalPageAddress::invalid();
  };
  Moved write_alone(Bytes offset, Bytes length, PlacementHandle handle, const PlaneLoad* load);
  /// Somebody is told of the older versions of pages.
  bool tells_replaced() const { return replaced_ != nullptr; }
  /// BlockFtl::prefetch_write
  void prefetch(Bytes offset, Bytes length);
  /// Removes a page from the map: it reads as zeros.
  void trim(LogicalPage page);

 private:
  bool writes_runs() const {
    return !held_ && !replaced_ && flash_.only_places() && !flash_.config.pads && !flash_.config.volatile_lines;
  }
  std::uint32_t write_run(LogicalPage page, std::uint32_t most, PlacementHandle handle, PlanBuilder& plan);
  void bind_run(LogicalPage page, BlockManager::PageRun to);
  bool is_held(PhysicalPageAddress ppa) const { return held_ && ppa.valid() && held_(ppa); }
  void change_held_page(LogicalPage page, std::uint64_t first, std::span<const std::byte> data);
  bool read_rest(LogicalPage page, PhysicalPageAddress ppa, std::uint64_t first, std::uint64_t count, PageOp& read);
  bool merge(LogicalPage page, std::uint64_t first, std::uint64_t count, std::span<const std::byte> data,
             const KeptPages* kept, PlanBuilder& plan);

  BlockFlash& flash_;
  PageMap& map_;
  PageReader& reader_;
  PageAppender& appender_;
  LineFiller& lines_;
  PagePlacer& placer_;
  FailedBlocks& failed_;
  TrimLog& trims_;
  FixedDivisor by_page_;
  std::function<bool(PhysicalPageAddress)> held_;
  std::function<void(PhysicalPageAddress, PhysicalPageAddress)> replaced_;
  std::vector<std::byte> image_;  ///< scratch: the page being written
};

}  // namespace csdsim::ftl
