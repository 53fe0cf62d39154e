// Garbage collection of the block namespace.
#pragma once

#include <vector>

#include "ftl/block/plan_builder.h"
#include "ftl/block/wear_leveller.h"

namespace csdsim::ftl {

/// Moves the valid pages of victims and erases them. It works in three ways: each write moves a few pages (GcPace), a
/// write that needs a free block waits for whole victims, and steps run in the background.
class BlockCollector {
 public:
  BlockCollector(BlockFlash& flash, Victims& victims, PageMover& mover, WearLeveller& leveller)
      : flash_(flash), victims_(victims), mover_(mover), leveller_(leveller) {}

  /// Collects whole victims until the plane has enough free blocks for a write of `plan` to open one.
  void collect(PlaneId plane, PlanBuilder& plan);
  /// Moves what is left of the plane's victim and erases it.
  bool finish_victim(PlaneId plane, std::vector<Phase>* phases);

  /// A request whose collection keeps to the configured pace has taken pages of `plane`, and has to do a share of its
  /// collection: see pay().
  void owe(PlaneId plane, std::uint32_t pages);
  /// The same for a page that `plan` takes.
  void owe(PlaneId plane, const PlanBuilder& plan) {
    if (plan.paced()) owe(plane, 1);
  }
  bool is_owed() const { return !owed_.empty(); }
  /// Pages that are taken of the plane's open blocks owe nothing, and start nothing.
  bool is_idle(PlaneId plane) const { return !wants_share(plane) && !wants_background_step(plane); }
  /// Adds the pages that requests have to move for the pages that they took.
  void pay(PlanBuilder& steps);

  /// BlockFtl::observe_placement; null: nobody
  void observe(PlacementObserver* observer) { observer_ = observer; }

  bool wants_background_step(PlaneId plane) const;
  /// A piece of background collection; no phases if there is nothing to collect.
  std::vector<Phase> background_step(PlaneId plane);

 private:
  /// Counts of all planes.
  struct Done {
    std::uint64_t moved = 0;
    std::uint64_t erased = 0;
  };
  Done done() const { return {flash_.stats.gc_pages_moved, flash_.stats.gc_erases}; }
  void load(PlaneId plane, Done before, const PlanBuilder& plan) const;
  bool pay_page(PlaneId plane, PlanBuilder& steps);
  std::uint32_t pay_quietly(PlaneId plane, std::uint32_t pages);
  bool in_steps(const PlanBuilder& plan) const;
  std::uint32_t urgent_free_blocks(const PlanBuilder& plan) const;
  bool wants_share(PlaneId plane) const {
    return flash_.config.gc_pace == GcPace::steps && flash_.free_blocks(plane) <= flash_.config.gc_free_blocks;
  }
  bool time_to_collect(PlaneId plane);
  bool is_late(PlaneId plane) const;
  bool choose_victim(PlaneId plane);
  bool choose_open_block(PlaneId plane, std::vector<Phase>* phases);
  void add(PlaneId plane, std::vector<Phase> phases, PlanBuilder& plan) const;
  void collect_pages(PlaneId plane, std::uint32_t limit, std::vector<Phase>* phases);

  BlockFlash& flash_;
  Victims& victims_;
  PageMover& mover_;
  WearLeveller& leveller_;
  /// Pages of a plane that were taken one after the other.
  struct Owed {
    PlaneId plane;
    std::uint32_t pages = 0;
  };
  std::vector<Owed> owed_;  ///< since the last pay()
  PlacementObserver* observer_ = nullptr;
};

}  // namespace csdsim::ftl
