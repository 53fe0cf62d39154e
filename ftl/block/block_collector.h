// Garbage collection of the block namespace.
#pragma once

#include <vector>

#include "ftl/block/plan_builder.h"
#include "ftl/block/wear_leveller.h"

namespace csdsim::ftl {

/// Moves the valid pages of victims and erases them: in steps that the writes of a plane pay for, whole before a write
/// that needs a block, or in the background.
class BlockCollector {
 public:
  BlockCollector(BlockFlash& flash, Victims& victims, PageMover& mover, WearLeveller& leveller)
      : flash_(flash), victims_(victims), mover_(mover), leveller_(leveller) {}

  /// Collects whole victims while the plane has no more free blocks than a write of `plan` may find.
  void collect(PlaneId plane, PlanBuilder& plan);
  /// Moves what is left of the plane's victim and erases it.
  bool finish_victim(PlaneId plane, std::vector<Phase>* phases);

  /// A page of `plane` was taken: the request of `plan` pays for collection.
  void owe(PlaneId plane, const PlanBuilder& plan);
  bool is_owed() const { return !owed_.empty(); }
  /// Adds the steps of collection that the written pages owe.
  void pay(PlanBuilder& steps);

  bool wants_background_step(PlaneId plane) const;
  /// A piece of background collection; no phases if there is nothing to collect.
  std::vector<Phase> background_step(PlaneId plane);

 private:
  bool in_steps(const PlanBuilder& plan) const;
  std::uint32_t urgent_free_blocks(const PlanBuilder& plan) const;
  bool time_to_collect(PlaneId plane);
  bool is_late(PlaneId plane) const;
  bool choose_victim(PlaneId plane);
  void collect_pages(PlaneId plane, std::uint32_t limit, std::vector<Phase>& phases);

  BlockFlash& flash_;
  Victims& victims_;
  PageMover& mover_;
  WearLeveller& leveller_;
  std::vector<PlaneId> owed_;  ///< planes of pages that were written and have not paid for collection
};

}  // namespace csdsim::ftl
