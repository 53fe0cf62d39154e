// Firmware of the block namespace: read, write, flush and deallocate commands over the block FTL.
#pragma once

#include <boost/container/small_vector.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "base/slot_pool.h"
#include "csd_model/firmware/controller_dram.h"
#include "csd_model/firmware/dram_port.h"
#include "csd_model/firmware/internal_link.h"
#include "csd_model/firmware/long_reads.h"
#include "csd_model/firmware/map_lookups.h"
#include "csd_model/firmware/plan_runner.h"
#include "csd_model/firmware/waiting_parts.h"
#include "csd_model/firmware/write_buffer.h"
#include "csd_model/firmware/write_parts.h"
#include "ftl/block/block_ftl.h"
#include "ftl/core/dram_budget.h"
#include "nvme_if/sysc/command.h"
#include "simulation/event_loop.h"

namespace csdsim::csd_model {

/// The planes of a plan, which programs in one or in a few.
using PlaneIds = boost::container::small_vector<PlaneId, 8>;

struct BlockServiceConfig {
  Bytes block_size;        ///< size of a logical block
  FlashGeometry geometry;  ///< as the FTL addresses it
  PagePacking packing;
  std::optional<ReclaimLayout> layout;  ///< set for reclaim units of several blocks
  FlushConfig flush;                    ///< when buffered writes are flushed
  ftl::ArrayTimes times;
  bool shared_arrays = false;  ///< the planes of a die have one array, for programs at least
  /// Capacitors write the buffer to flash when the power fails: what is in it need not be in flash.
  bool protected_buffer = false;
};

/// Data goes on as it comes; that of reads which take several pages by LongReads. A write is cut into parts, what it
/// covers of each page of the flash, and each part is planned when its data has come. It is complete when its last part
/// is, and fails when one does; parts that come later are not written. Where a word line is programmed with the units
/// that a command has (PagePacking::pads), writes are cut into word lines.
///
/// State changes when a read or a part of a write is planned; its page operations follow. A part is done when it is in
/// the write buffer, for whose room parts wait in the order in which they come. What the buffer or controller DRAM
/// cannot hold is done when it is in flash; what it keeps of pages that it covers partly is read before it is planned.
/// A part leaves the buffer when all word lines that hold its units are programmed. Where the buffer has no room and
/// nothing on its way to flash will make some, word lines that are not full leave it: the controller has room of its
/// own for one of each open block, from which nothing is lost as long as the drive has power.
///
/// Where capacitors protect the buffer, a flush has nothing to do, and FUA changes nothing (docs/durability.md). Where
/// none do, a flush fills the word lines that are not full, and waits for everything that was written before it; a
/// write with FUA is complete when its pages are programmed, with what it left of their word lines empty, and a read
/// with FUA has its pages programmed first. A part that fits neither buffer nor DRAM makes its write wait likewise.
class BlockService : private nvme::AccessClient {
 public:
  BlockService(const BlockServiceConfig& config, ftl::BlockFtl& ftl, ftl::DramBudget& dram, FlashIo& flash,
               MapLookups& lookups, DramPort& port, InternalLink& link, ControllerDram& buffers,
               WriteBuffer& write_buffer, bool carried);

  void read(nvme::Command& command, const nvme::BlockRead& op);
  void write(nvme::Command& command, const nvme::BlockWrite& op);
  void flush(nvme::Command& command);
  /// Calls back when all that was acknowledged so far, of both namespaces, is in flash.
  void drain(std::function<void()> done);
  void deallocate(nvme::Command& command, const nvme::DatasetManagement& op);

  /// The power fails: nothing is under way any more. What has become of programs and erases. Precondition: the plans
  /// keep a ledger.
  FlashLedger::Found lose_power();
  /// Tells the FTL, which has forgotten all (BlockFtl::forget()), what it has to know of this service.
  void connect();

  /// What the other commands of the namespace need of this service.
  PlanRunner& plans() { return plans_; }
  /// The status of a command whose plan ended so.
  static nvme::Status to_status(ftl::IoStatus status);
  /// A command has arrived: restarts the time after which buffered writes are flushed, and starts moving what is old.
  void note_command() {
    if (refreshes_ || idle_) note_time();
  }
  /// Runs a plan, with the background collection that follows from what it programs.
  void run_plan(ftl::IoPlan plan, std::function<void()> done);

  /// A block of the plane was erased: starts static wear levelling there if the erase counts differ too much.
  void level_wear(PlaneId plane);

  /// Calls back whenever the write buffer has given back controller DRAM. `awaited` says whether anybody waits for it.
  void on_dram_released(std::function<void()> callback, std::function<bool()> awaited) {
    dram_released_ = std::move(callback);
    dram_awaited_ = std::move(awaited);
  }

 private:
  using Done = std::function<void()>;
  struct Write {
    nvme::Command* command = nullptr;
    Bytes offset;             ///< offset in the namespace
    std::uint32_t parts = 0;  ///< that have not ended
    nvme::Status status;      ///< the first error
    ftl::PlacementHandle handle;
    std::optional<PlaneId> plane;            ///< the reclaim group that it names
    bool durable = false;                    ///< is complete when its pages are programmed
    std::vector<PhysicalPageAddress> pages;  ///< pages of a durable write that are planned so far
    DramBuffer data;                         ///< carried runs only
  };
  using Part = WritePart;  ///< `write` is a slot of writing_
  /// Reads of one page without data or error need no state but the command, whose address is their tag: of many
  /// commands under way, nothing else has to stay cached.
  struct TimedReads final : nfc::FlashClient {
    BlockService& service;
    explicit TimedReads(BlockService& owner) : service(owner) {}
    static std::uint64_t tag_of(nvme::Command& command) { return reinterpret_cast<std::uint64_t>(&command); }
    static nvme::Command& command_of(std::uint64_t tag) { return *reinterpret_cast<nvme::Command*>(tag); }
    void flash_done(std::uint64_t tag, const FlashStages& stages) override;
    void flash_soon(std::uint64_t tag) override { command_of(tag).prefetch(); }
  };

  void note_time();
  void read_durable(nvme::Command& command, Bytes offset, Bytes length);
  void plan_read(nvme::Command& command, Bytes offset, Bytes length);
  void plan_mapped_read(nvme::Command& command, Bytes offset, Bytes length);
  void plan_long_read(nvme::Command& command, Bytes offset, Bytes length);
  void send_read(nvme::Command& command);

  Bytes position(const Part& part) { return writing_[part.write].offset + part.begin; }
  std::span<std::byte> bytes_of(const Part& part);
  void access_done(std::uint32_t part, nvme::Status status) override { part_arrived(arriving_.release(part), status); }
  void part_arrived(const Part& part, nvme::Status status);
  void await_room(const Part& part);
  void take_turn();
  void plan_write(const Part& part, bool through, const ftl::KeptPages* kept);
  bool write_in_line(const Part& part, bool through);
  void parts_programmed(const BufferedParts& parts);
  void write_through(const Part& part, std::vector<ftl::Phase> phases, std::vector<ftl::Phase> behind);
  void end_through(const Part& part);
  void end_part(const Part& part, nvme::Status status, std::uint32_t parts = 1);
  void program(const std::vector<PhysicalPageAddress>& pages, std::function<void()> done);
  void fill_lines(const std::vector<PhysicalPageAddress>& pages);
  /// A write may complete before it is in flash, and is lost then with the power.
  bool is_volatile() const { return write_buffer_.capacity().value > 0 && !config_.protected_buffer; }
  void save_trims(const std::function<void()>& done);
  void make_room();
  void write_back(std::vector<ftl::Phase> phases, PlanRunner::Done done);
  /// Calls `work` when firmware has looked up the pages in the map; at once where lookups are free.
  template <class Work>
  void look_up(nvme::Command& command, Bytes offset, Bytes length, Work work);
  void run_then_collect(std::vector<ftl::Phase> phases, std::vector<ftl::Phase> behind, PlanRunner::Done done,
                        PlanRunner::Until until);
  /// Starts background collection, one step per plane at a time, in the planes that a plan programs.
  void collect_behind(const PlaneIds& planes);
  using Step = std::optional<ftl::IoPlan> (ftl::BlockFtl::*)(PlaneId);
  void step_in_background(PlaneId plane, Step step, bool again);
  void mark_plan(nvme::Command& command) const;

  BlockServiceConfig config_;
  ftl::BlockFtl& ftl_;
  ftl::DramBudget& dram_;
  FlashIo& flash_;
  ftl::PlaneLoad load_;
  PlanRunner plans_;
  std::set<PlaneId> collecting_;  ///< planes with a step of background collection in flight
  MapLookups& lookups_;
  DramPort& port_;
  InternalLink& internal_link_;
  ControllerDram& dram_buffers_;
  bool carried_;
  bool refreshes_, map_is_cached_;  ///< properties of the FTL, asked once: commands ask often
  WriteParts write_parts_;
  ftl::Phase reads_;  ///< scratch: of the command that is being planned
  LongReads long_reads_;
  SlotPool<Write> writing_;
  SlotPool<Part> arriving_;  ///< parts whose data is on the link, where it is not carried
  TimedReads timed_reads_{*this};
  WriteBuffer& write_buffer_;
  WaitingParts waiting_;       ///< parts that wait for room in the write buffer
  std::uint64_t through_ = 0;  ///< parts that are done when they are in flash
  bool making_room_ = false;
  std::uint32_t reserved_programs_ = 0;
  std::optional<Alarm> idle_;  ///< FlushPolicy::idle: flushes when no command has arrived for the idle time
  std::function<void()> dram_released_;
  std::function<bool()> dram_awaited_;
};

}  // namespace csdsim::csd_model
