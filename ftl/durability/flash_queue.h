// Runs the plans of a block FTL without time. Operations end in any order that the flash allows.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ftl/block/block_types.h"

namespace csdsim::ftl::durability {

/// Thrown where something does not hold that has to hold.
struct Broken {
  std::string what;
};

/// One operation of flash: a read of a unit, the program of a word line, the erase of a block.
struct FlashOp {
  PageOpKind kind = PageOpKind::read;
  PlaneId plane;
  std::vector<PhysicalPageAddress> units;  ///< read, or programmed: those that the plans have; of an erase, the first
  std::uint64_t number = 0;                ///< in the order of planning
  std::vector<BlockId> replaces;           ///< blocks with older versions of the units that the program writes
};

/// Runs plans as whoever runs them has to: the phases of a plan one after the other; on each plane in the order of the
/// plans; an erase after those programs of earlier plans that replace pages of its block (note_replaced()). A word line
/// is in DRAM until its last unit is planned. Checks that flash is not misused: Broken.
class FlashQueue {
 public:
  FlashQueue(const FlashGeometry& geometry, const BlockFtlConfig& config)
      : geometry_(geometry),
        line_(config.units_per_program),
        pads_(config.pads),
        programmed_(geometry.pages() / config.units_per_program) {}

  /// The plan that comes next programs the unit at `to`, which replaces the one at `old`.
  void note_replaced(PhysicalPageAddress to, PhysicalPageAddress old) { replaced_[to.value] = geometry_.block_of(old); }
  void add(const std::vector<Phase>& phases);

  /// The operations that are under way or may begin now, at most one a plane; in the order of planning.
  std::vector<const FlashOp*> ready() const;
  /// The operation is done; it is removed.
  void complete(std::uint64_t number);

  bool idle() const { return plans_.empty(); }
  /// Whether the page is in DRAM: its word line is not full, or its program has not completed.
  bool in_dram(PhysicalPageAddress page) const;
  /// The numbers of those operations that program these pages and are not complete.
  std::vector<std::uint64_t> programs_of(const std::vector<PhysicalPageAddress>& pages) const;
  std::vector<std::uint64_t> programs() const;
  /// A page of each word line that is not full.
  std::vector<PhysicalPageAddress> open_lines() const;

  /// All operations that have not completed, in the order of planning, and the units of word lines that are not full.
  std::vector<const FlashOp*> pending() const;
  std::vector<PhysicalPageAddress> open_units() const;

  /// Power fails: nothing is pending any more. `begun` had begun and not ended.
  void lose_power(const std::vector<FlashOp>& begun);

 private:
  using Ops = std::vector<FlashOp>;
  struct Plan {
    std::deque<Ops> phases;
  };

  std::uint64_t line_of(PhysicalPageAddress unit) const { return unit.value / line_; }
  void pack(const Phase& phase, Ops& ops);
  void take_replaced(FlashOp& program, PhysicalPageAddress unit);
  void add_program(std::uint64_t line, std::vector<PhysicalPageAddress> units, Ops& ops);
  void run(const FlashOp& op);
  template <class Visit>
  void visit(const Visit& visit) const {
    for (const Plan& plan : plans_)
      for (const Ops& ops : plan.phases)
        for (const FlashOp& op : ops) visit(op);
  }

  FlashGeometry geometry_;
  std::uint32_t line_;
  bool pads_;
  std::vector<bool> programmed_;  ///< by word line; also of those whose program was interrupted
  std::map<std::uint64_t, std::vector<PhysicalPageAddress>> open_;  ///< word lines that are not full
  std::map<std::uint64_t, BlockId> replaced_;  ///< by unit: the block of its older version, until its line is planned
  std::deque<Plan> plans_;
  std::uint64_t planned_ = 0;  ///< operations
};

}  // namespace csdsim::ftl::durability
