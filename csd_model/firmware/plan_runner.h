// Runs plans of the block FTL on the flash.
#pragma once

#include <boost/container/small_vector.hpp>
#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/callback.h"
#include "base/fixed_divisor.h"
#include "base/slot_pool.h"
#include "csd_model/firmware/die_blocks.h"
#include "csd_model/firmware/flash_io.h"
#include "csd_model/firmware/flash_ledger.h"
#include "csd_model/firmware/open_lines.h"
#include "csd_model/firmware/pending_programs.h"
#include "csd_model/firmware/reclaim_layout.h"
#include "ftl/block/block_ftl.h"

namespace csdsim::csd_model {

/// Flash pages that hold several mapping units each, word lines of several pages, and blocks that span the planes of a
/// die.
struct PagePacking {
  std::uint32_t units = 1;  ///< mapping units of a page; plans address units
  std::uint32_t pages = 1;  ///< pages of a plane's word line, which is programmed as one
  /// Planes of a die that plans address as one: a block is one of each of them, and a word line goes over all.
  std::uint32_t planes = 1;
  Bytes page{};             ///< data bytes of a page
  bool reads_whole = true;  ///< a read moves the page; otherwise the codewords of its units
  bool pads = false;        ///< a plan programs the units of the host that it has, and leaves no word line open

  std::uint32_t line_pages() const { return pages * planes; }
  std::uint32_t line() const { return units * line_pages(); }  ///< units of a word line
};

/// Runs the phases of a plan one after the other, any number of plans at a time. On each plane, operations of plans
/// that program or erase are submitted in the order of the plans: NAND programs the pages of a block in order and only
/// after its erase. Plans that only read, in one phase, do not wait: their pages keep their content until the operation
/// of a later plan reaches the plane. A page that an earlier plan programs is read from controller DRAM, without a
/// flash operation, until that program has completed. (A later plan may erase the page and program it again.)
///
/// Reads of the host in the first phase of a plan do not wait either: they bring what a partial write keeps. With
/// reclaim units of several blocks those of collection do not, whose plans go over many planes.
///
/// With several mapping units in a page, reads of units of one page that follow one another in a phase are one read. A
/// word line is programmed when its last unit is written. Until then it is in controller DRAM. The units of a stream
/// are written in order, so that each plane has one such word line for each stream. With `pads`, one that the host
/// writes is programmed by the plan that begins it, with the units that it has.
///
/// Where blocks span the planes of a die, a word line is a page of each plane, then the next page of each; programs
/// and erases become one operation for each plane. Such word lines are always programmed as a whole (no `pads`).
///
/// With reclaim units of several blocks (ReclaimLayout), plans address pages of units. A line keeps its address until
/// it goes to the flash; its plane is that of the flash. The erase of a unit becomes one of each of its blocks.
///
/// An erase waits for those programs of earlier plans, on whatever plane, that replace pages of its block
/// (note_replaced()): until they are done, the block may hold the only copies in flash. Later operations on its plane
/// wait behind it.
class PlanRunner {
 public:
  using Done = Callback<void()>;

  /// What `done` waits for: the operations of the plan, or also the programs of word lines that it leaves open with
  /// units of the host.
  enum class Until : std::uint8_t { operations, programs };

  /// `geometry`: of the pages or units that plans address; `layout`: where their reclaim units of several blocks are.
  PlanRunner(const FlashGeometry& geometry, FlashIo& flash, const PagePacking& packing = {},
             const std::optional<ReclaimLayout>& layout = std::nullopt)
      : geometry_(geometry),
        flash_(flash),
        packing_(packing),
        by_units_(packing.units),
        layout_(layout),
        packs_(packing.line() > 1),
        spreads_(packing.planes > 1 || layout) {
    geometry_.pages_per_block /= packing.units;
    geometry_.page_size = geometry_.page_size * packing.units;
    in_flash_ = layout_ ? layout_->flash() : geometry_;
    if (packing.planes > 1) die_blocks_.emplace(in_flash_, packing.planes, packing.pages);
  }

  /// Adds the operations of each plan to `load` when it is planned, and removes them when it is done.
  void count_in(ftl::PlaneLoad& load) { load_ = &load; }

  /// Tells `ledger` of all programs and erases, so that lose_power() can say what becomes of them.
  void keep(FlashLedger& ledger) { ledger_ = &ledger; }
  /// The power fails: no plan goes on, and nobody is called back any more. Precondition: there is a ledger.
  FlashLedger::Found lose_power();

  /// Programs a word line of the firmware's reserved area in a plane, beside all plans. The area is not modelled but
  /// for the time that this takes.
  void program_reserved(PlaneId plane, Done done);

  /// The next plan programs the page at `to`, which replaces the one at `old`.
  void note_replaced(PhysicalPageAddress to, PhysicalPageAddress old) {
    follows_replacements_ = true;
    replaced_.emplace_back(to, old);
  }

  /// Starts a plan. Call it in the order of planning. `done` is called when the last phase is over, at once for a plan
  /// without operations.
  void run(std::vector<ftl::Phase> phases, Done done, Until until = Until::operations);

  /// Units of the host are written, without a plan, to the word line of this one, which they do not fill. `done` is
  /// called as for a plan with Until::programs that writes them. Not with `pads`, and not for units that replace pages
  /// (note_replaced()).
  /// Parts of writes may wait in the place of a callback: the second callback of on_written() gets them, together with
  /// those before and after them that joined likewise.
  void join_line(PhysicalPageAddress unit, OpenLines::Waiter waiter);

  /// Does what run() does, with Until::programs, for a plan that programs one page in `plane`; `replaced` is the block
  /// of its older version, if note_replaced() would have been told of it.
  void program(const PageOp& page, PlaneId plane, std::optional<BlockId> replaced, Done done);

  /// Holds a plan back until the next plan that programs or erases, or until release(); it then starts first. Its pages
  /// are read from DRAM until then.
  void hold(std::vector<ftl::Phase> phases, Done done, Until until = Until::operations);
  /// Starts the plans that are held back.
  void release();
  /// Whether a plan that is held back programs this page.
  bool holds(PhysicalPageAddress ppa) const { return held_pages_.contains(ppa.value); }

  /// Calls back the plans that wait for word lines to be filled. Controller DRAM keeps these word lines; they are "let
  /// go" until they are programmed. Returns false if no plan waited.
  bool leave_pages_open();
  /// A page of each word line that is let go, and of each that is being filled, in the order of their addresses.
  std::vector<PhysicalPageAddress> lines_let_go() const;
  std::vector<PhysicalPageAddress> open_lines() const;

  /// Calls back when these pages are programmed, at once for those that are. A page in a word line that is being filled
  /// counts as programmed: nothing says when it will be.
  void when_programmed(std::span<const PhysicalPageAddress> pages, Done done);

  /// Whether operations of a plan with Until::programs are under way.
  bool is_writing() const { return writing_ > 0; }
  /// Sets what is called when the last of them has ended, after the plan's `done`, and when parts of writes that joined
  /// a word line are programmed.
  void on_written(Done callback, Callback<void(const BufferedParts&)> parts = nullptr) {
    written_ = std::move(callback);
    parts_programmed_ = std::move(parts);
  }

  /// Turns reads of units or pages, which may run side by side, into those of the flash: a page once, and nothing that
  /// is still in DRAM.
  [[gnu::always_inline]] void resolve(ftl::Phase& reads) {
    if (packs_) pack_reads(reads);
    if (!pending_.empty()) leave_out_buffered(reads);
    if (spreads_) spread(reads);
  }

  /// Whether a page is still in DRAM, because its program has not completed.
  bool in_dram(PhysicalPageAddress ppa) const { return pending_.contains(ppa.value / packing_.line()); }
  /// Removes reads of pages that an earlier plan than `plan` still has to program: such a page is in DRAM. Without
  /// `plan`, the reads are planned now.
  void leave_out_buffered(ftl::Phase& ops, std::uint64_t plan = std::numeric_limits<std::uint64_t>::max());

  /// Pages read from DRAM because their program had not completed.
  std::uint64_t buffer_hits() const { return buffer_hits_; }

 private:
  struct Run {
    std::uint64_t number = 0;  ///< in the order of planning, from 1 on
    std::vector<ftl::Phase> phases;
    std::size_t phase = 0;
    Done done;                             ///< empty if it waits for word lines
    std::vector<OpenLines::Waiter> fills;  ///< who waited for the word lines that it fills
    std::uint32_t parts = 0;               ///< parts of the phase, submitted or waiting
    bool in_line = false;
    bool writes = false;                                                  ///< was started with Until::programs
    boost::container::small_vector<std::pair<PlaneId, SimTime>, 2> load;  ///< what it has in load_
    std::map<PlaneId, std::uint32_t> visits;                  ///< phases that have operations on a plane, still to come
    std::map<PlaneId, ftl::Phase> waiting;                    ///< operations of the phase that wait for their turn
    std::map<BlockId, std::vector<std::uint64_t>> replacing;  ///< word lines for whose programs its erases wait
  };
  using RunPtr = std::shared_ptr<Run>;
  /// A plan that is the program of one page, and went to the flash at once.
  struct PageProgram {
    std::uint64_t line = 0;
    PlaneId plane;
    Done done;
  };
  struct PagesDone final : nfc::FlashClient {
    PlanRunner& runner;
    explicit PagesDone(PlanRunner& owner) : runner(owner) {}
    void flash_done(std::uint64_t page, const FlashStages& stages) override;
  };
  /// That works on it; of blocks that span the planes of a die, all of its planes are one.
  PlaneId plane_of(const PageOp& op) const { return layout_ ? layout_->plane_of(op.ppa) : geometry_.plane_of(op.ppa); }
  RunPtr prepare(std::vector<ftl::Phase> phases, Done done, Until until);
  std::uint64_t line_of(PhysicalPageAddress page) const { return page.value / packing_.line_pages(); }
  /// The word lines of a plan's programs.
  struct Packed {
    std::vector<std::uint64_t> begun;   ///< word lines that it does not fill
    std::vector<std::uint64_t> host;    ///< those of them with units of the host
    std::vector<std::uint64_t> filled;  ///< word lines that it programs
  };
  void pack_reads(ftl::Phase& reads) const;
  void pack(ftl::Phase& ops, Packed& packed);
  std::vector<std::uint64_t> pack_plan(Run& run, Until until);
  void find_replacing(Run& run);
  std::vector<std::uint64_t> awaited_by(const Run& run, std::span<const PageOp> ops) const;
  bool wait_to_erase(const RunPtr& run, PlaneId plane);
  void take_turn(const RunPtr& run, PlaneId plane);
  void programmed(std::uint64_t line);
  void spread(ftl::Phase& ops) const;
  void begin(const RunPtr& run);
  bool must_queue(const Run& run) const;
  void queue(const RunPtr& run);
  void start_phase(const RunPtr& run);
  void add_load(Run& run);
  std::uint64_t place_of(const PageOp& op) const;
  void tell_planned(const Run& run);
  void tell_given(const PageOp& op, PlaneId plane, std::uint64_t place);
  void end(Run& run);
  void submit(const RunPtr& run, ftl::Phase ops);
  void visited(RunPtr run, PlaneId plane);
  void part_done(const RunPtr& run);

  FlashGeometry geometry_;  ///< as plans address it, but in pages; a plane is `packing_.planes` of the flash
  FlashGeometry in_flash_;  ///< likewise, of the blocks that reclaim units consist of
  FlashIo& flash_;
  PagePacking packing_;
  FixedDivisor by_units_;  ///< divides by the units of a page
  std::optional<ReclaimLayout> layout_;
  std::optional<DieBlocks> die_blocks_;  ///< where blocks span the planes of a die
  bool packs_;                           ///< a word line holds several units
  bool spreads_;                         ///< operations of plans have other addresses than those of the flash
  OpenLines open_;
  ftl::Phase packing_ops_;                       ///< scratch
  Packed packed_;                                ///< scratch
  std::map<PlaneId, std::deque<RunPtr>> lines_;  ///< plans with operations left for a plane, in order of planning
  PendingPrograms pending_;
  SlotPool<PageProgram> pages_;  ///< slots are tags of the flash
  PagesDone pages_done_{*this};
  std::vector<std::pair<PhysicalPageAddress, PhysicalPageAddress>> replaced_;  ///< by the plan that comes next
  bool follows_replacements_ = false;
  std::uint64_t planned_ = 0;                     ///< plans so far
  std::vector<RunPtr> held_;                      ///< in order of planning
  std::unordered_set<std::uint64_t> held_pages_;  ///< that they program; looked up only
  std::uint64_t writing_ = 0;                     ///< plans with Until::programs under way
  Done written_;
  Callback<void(const BufferedParts&)> parts_programmed_;
  std::uint64_t buffer_hits_ = 0;
  ftl::PlaneLoad* load_ = nullptr;
  FlashLedger* ledger_ = nullptr;
};

}  // namespace csdsim::csd_model
