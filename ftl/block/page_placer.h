// Chooses the plane of a page that is written, and its place there.
#pragma once

#include <optional>
#include <vector>

#include "ftl/block/block_collector.h"

namespace csdsim::ftl {

class PagePlacer {
 public:
  PagePlacer(BlockFlash& flash, PageAppender& appender, LineFiller& lines, BlockCollector& collector)
      : flash_(flash),
        appender_(appender),
        lines_(lines),
        collector_(collector),
        stripe_(flash.geometry, flash.config.stripe_order),
        cursors_(flash.config.handles) {}

  const Stripe& stripe() const { return stripe_; }
  /// Sets the plane, by its rank, that the next page of the host's first handle goes to.
  void continue_at(std::uint32_t rank) { cursors_.front() = rank; }

  /// Pages of the host go to this plane from now on, and to others only where it has no room; nothing: to any. Not with
  /// PageAllocation::fixed.
  void go_to(std::optional<PlaneId> plane) { wanted_ = plane; }

  /// A place for a page of the host or a translation page, once garbage has been collected; its program is in the plan.
  /// Empty: no plane that it may go to has room.
  std::optional<PhysicalPageAddress> place(LogicalPage page, Stream stream, PlanBuilder& plan);
  /// Places for up to `most` consecutive pages of the host from `page` on in the open block of `stream`; their programs
  /// are in the plan. They do not fill the block; their number is 0 where place() has to decide.
  BlockManager::PageRun place_run(LogicalPage page, Stream stream, std::uint32_t most, PlanBuilder& plan);
  /// Places for `count` consecutive pages of the host in one word line that they do not fill, nor the block: nothing is
  /// programmed for them, so that no plan is needed. Also places for the same number of pages behind them, up to `most`
  /// times, where each time takes as little. None where place_run() has to take them. `load` as in PlanBuilder::load().
  BlockManager::PageRun place_in_line(LogicalPage page, Stream stream, std::uint32_t count, std::uint32_t most,
                                      const PlaneLoad* load);
  /// A place for one page of the host, where word lines have one: no plan is needed. invalid() where place() has to
  /// take it.
  PhysicalPageAddress place_alone(LogicalPage page, Stream stream, const PlaneLoad* load);
  /// Leaves the rest of the last word line of a request empty.
  void pad(const PlanBuilder& plan);
  /// If `ppa` is in a word line of the host that is not full, the rest of the line is programmed without data.
  void fill_line(PhysicalPageAddress ppa, PlanBuilder& plan);

 private:
  struct Filling {
    PlaneId plane;
    Stream stream;
    bool operator==(const Filling&) const = default;
  };

  std::optional<PhysicalPageAddress> place_in(PlaneId plane, Stream stream, PlanBuilder& plan);
  /// Where the next page of the host goes.
  struct Spot {
    PlaneId plane;
    bool chosen = false;         ///< by its load
    std::uint32_t in_block = 0;  ///< pages left in the open block; 0: none is open
    std::uint32_t in_line = 0;   ///< pages left in the open word line
    std::uint32_t in_turn = 0;   ///< pages from this one on that go to the plane before the next one has its turn
  };
  Spot next_spot(LogicalPage page, Stream stream, const PlaneLoad* load);
  bool choose_plane(std::uint32_t& cursor, Stream stream, const PlaneLoad* load) const;
  void fill_from(PlaneId plane, Stream stream, const PlanBuilder& plan);
  void fill_open_line(PlaneId plane, Stream stream, Phase* ops, const PlanBuilder& plan);

  BlockFlash& flash_;
  PageAppender& appender_;
  LineFiller& lines_;
  BlockCollector& collector_;
  Stripe stripe_;
  std::uint32_t map_cursor_ = 0;        ///< stripe rank of the next translation page
  std::vector<std::uint32_t> cursors_;  ///< likewise of the next host page, by handle
  std::optional<PlaneId> wanted_;
  std::optional<Filling> filling_;  ///< where the last unit of a request that pads went
};

}  // namespace csdsim::ftl
