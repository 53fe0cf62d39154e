// The timeline of a flash with everything that FlashTiming can switch on.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/nearly_sorted_queue.h"
#include "nfc/core/timeline_base.h"

namespace csdsim::nfc {

/// A unit has one array: it is a plane or, with PlaneMode::multi_plane, a die. Operations queue per plane. A unit works
/// on a group of operations of one kind, with at most one operation per plane.
///
/// Planes that read on their own. With PlaneMode::independent_reads, a plane is a unit for reads, and its die is one
/// for programs and erases. The rules hold for each of them, and besides: a plane takes a read while its die has no
/// program or erase, or has suspended it; the die takes a program or an erase, or resumes one, when all its planes are
/// empty. Among what the planes of a die offer, operations go by their rank in the queue of their plane, then in the
/// order of submission: no read starts that comes after a program or an erase, and no program or erase that comes after
/// a read. While the die has suspended something, this order does not count.
///
/// Order at one time. All ends, arrivals and submissions at a time t come first. Then planes and units request the bus;
/// a request stands until it is granted or the plane or unit no longer wants the same thing for the same operation.
/// Then the bus, if it is free, is granted to one request: BusArbitration decides between data-outs and all others;
/// then come the more urgent class, the earlier request, the operation submitted first.
///
/// Choice. A plane offers one operation: the most urgent one that has arrived and may overtake those submitted before
/// it. X may overtake Y if its class is strictly more urgent, X is no erase, and not (X is a program and Y an erase);
/// with PlaneOrder::reads_first a read also overtakes programs and erases of its own class.
///
/// Groups. The plane that is granted the bus for a command leads; with multi_plane, the other planes of the unit that
/// ask for a command of the same kind at that moment, and for a page of the same number in its block if it is no erase,
/// join in the order of planes. Their commands (a program's with its data) follow each other on the bus without a gap.
/// From the end of the last one the array works for all of them, for the longest of their times.
///
///   read     then the pages go to the registers of the output, where each asks for its data-out. When the last is out
///            (and decoded, where its attempt fails) those that failed are read again, as a group; else the output is
///            empty. A unit takes a read when its array is idle and its output empty; with cache_read also when nothing
///            in its output is going to fail. Pages go to the output when it is empty; with cache_read in
///            cache_busy_time
///   program  then, with status_time, the unit asks for a status poll; when it is over (without: when the array is
///            done) the group is done. A unit takes a program when array and output are empty; with cache_program one
///            more group while the array programs or its status is due, which starts cache_busy_time after the first is
///            done, or when its data is in if that is later (cache_busy_time after it if the first was done before)
///   erase    likewise, without data, cached by nothing
///
/// Suspension. While a program or erase (by Suspend) works, and no group is cached behind it, and it was suspended less
/// than max_suspends times: if a plane of the unit offers a read, which must be strictly more urgent than the group if
/// there are classes, the unit asks for a suspend (with class and sequence of the most urgent such read). It occupies
/// the bus for command_time, and comes too late if the array is done by then. Else the array stops, suspend_latency
/// later the unit takes such reads, and when it has none and none is offered it asks for a resume: command_time on the
/// bus, resume_latency, then the rest of the array's time.
///
/// Packages. A grant to another package than that of the last grant on the channel first occupies the bus for
/// package_select_time.
///
/// Page register. With reuse_register, the first attempt of a read of the page that its plane sensed last takes no time
/// of the array, unless the plane has taken a program or an erase since, or resumed one.
///
/// Decoding. A page occupies the decoder of its channel for bytes / ecc_bandwidth, first in, first out, and is decoded
/// ecc_latency later; reads are done when decoded.
///
/// Filter. With a filter_bandwidth, a corrected page of class attend then passes the filter of its channel, first in,
/// first out, for its data bytes / filter_bandwidth; its read is done when it has.
///
/// Page buffers. A data-out takes one of the page_buffers of its channel, until its page is decoded and filtered, or,
/// if its batch holds and it is the last attempt, until the batch is released. Without a free buffer it waits, unless
/// no buffer would ever come free by itself: no page of the channel is in transfer or being decoded, and no complete
/// batch holds one. Then it starts without a buffer. So a batch always completes, however large it is and whatever
/// other batches hold, provided that complete batches are released without waiting for others.
///
/// Reads ahead. What a read does next follows from the decisions that concern it, unless a program or an erase of its
/// die holds it back, its class is passed by others, or pages wait for buffers. Where nothing of this can be, and
/// nobody observes arrays, planes ask for the bus in the future: for a data-out with the command, and for the next
/// command with the data-out. Bus decisions are then the only steps. A die leaves this mode when a program or an erase
/// is submitted to it, with what was asked for the future as events, and returns to it when it has done the last one.
/// Results are those of single steps.
///
/// Stages. Waiting at a plane that does not ask for the operation, or for the array behind another group, is
/// plane_wait; from asking to the operation's own command, and from there to the group's last command, bus_wait, as is
/// waiting for the output, a status poll, a page buffer or a data-out. Switching to another package counts towards the
/// stage that follows it.
class GeneralTimeline : public TimelineBase {
 public:
  GeneralTimeline(const FlashGeometry& geometry, const FlashTiming& timing);

  FlashTicket submit(std::span<const PageOp> ops, SimTime at, bool hold, bool staged, bool each);
  /// No decision depends on what is submitted after its time, nor takes back a completion.
  bool decides_late() const { return dies_in_steps_ == 0; }
  void release(FlashTicket ticket, SimTime at);
  SimTime run(SimTime horizon);

 private:
  /// Whether the stages of an operation are kept, and whether its `stages_` have any yet.
  enum class Kept : std::uint8_t { no, none_yet, some };
  struct alignas(64) Op {
    SimTime at;
    SimTime since;  ///< the time before it is charged to a stage already
    std::uint64_t sequence;
    std::uint32_t batch;
    std::uint32_t next;        ///< in its queue, or in the free list
    std::uint32_t next_erase;  ///< in its queue
    std::uint32_t bytes;
    std::uint32_t page;  ///< in its block
    PhysicalPageAddress ppa;
    PageOpKind kind;
    OpClass op_class;
    std::uint8_t rank;     ///< rank of its class
    std::uint8_t queue;    ///< rank in the queue of its plane
    std::uint8_t retries;  ///< left
    std::uint8_t attempt;
    bool in_register;  ///< its plane holds the page: the array has nothing to do
    Kept stages;
  };
  /// Operations of one rank that wait at a plane, and the erases among them.
  struct Queue {
    std::uint32_t head = kNone;
    std::uint32_t tail = kNone;
    std::uint32_t first_erase = kNone;
    std::uint32_t last_erase = kNone;
  };

  enum class Want : std::uint8_t { nothing, command, data_out, status, suspend, resume };
  /// A request for the bus. All requests in a queue are due.
  struct Ask {
    SimTime at;
    std::uint64_t sequence = 0;
    std::uint32_t index = 0;  ///< index of the plane for command and data_out, else of the unit
    std::uint8_t rank = 0;
    Want want = Want::nothing;
    constexpr bool before(const Ask& o) const {
      if (rank != o.rank) return rank < o.rank;
      return at != o.at ? at < o.at : sequence < o.sequence;
    }
  };

  /// What a read ahead needs comes first.
  struct alignas(64) Plane {
    Ask command;
    std::uint32_t channel = 0;
    std::uint32_t package = 0;
    std::uint32_t die = 0;          ///< unit that takes its programs and erases
    std::uint32_t offered = kNone;  ///< what `command` asks for
    std::uint32_t array = kNone;    ///< operation that the array works on, or its command is on the bus
    std::uint32_t output = kNone;   ///< read in the output
    std::uint32_t occupants = 0;
    bool ahead = false;         ///< its die reads ahead
    bool stale = false;         ///< offer() may return something else now
    bool first_writes = false;  ///< `first` is a program or an erase
    SimTime until;              ///< reading ahead: when the page in the array is sensed, or the plane is free
    SimTime sensing;            ///< reading ahead: time of the array for that page
    SimTime granted;            ///< reading ahead: when its command was
    SimTime occupied_since;
    SimTime latest{-1};                                           ///< latest arrival of all
    PhysicalPageAddress sensed = PhysicalPageAddress::invalid();  ///< page in the page register
    std::uint32_t unit = 0;                                       ///< takes its reads
    std::uint32_t first = kNone;                                  ///< what offer() returned last
    std::uint32_t held = kNone;                                   ///< suspended operation
    std::uint32_t cached = kNone;                                 ///< program behind the one in the array
    SimTime arrival{-1};                                          ///< latest arrival for which an event is scheduled
  };
  enum class Phase : std::uint8_t {
    idle,
    command,  ///< on the bus
    working,
    stopping,  ///< suspend granted
    resuming,  ///< resume granted
    sensed,    ///< waits for the output
    moving,    ///< between the registers
    status,    ///< asks for its status
    polling,   ///< status on the bus
  };
  /// Operations that the array handles together.
  struct Group {
    PageOpKind kind = PageOpKind::read;
    std::uint8_t rank = 0;       ///< rank of the most urgent
    std::uint64_t sequence = 0;  ///< sequence number of the first submitted
    std::uint32_t suspends = 0;
  };
  enum class Cached : std::uint8_t { none, on_bus, ready };
  struct Unit {
    std::uint32_t first = 0;  ///< plane
    std::uint32_t planes = 0;
    std::uint32_t writer = 0;  ///< unit that takes programs and erases of its planes: itself, or the die
    std::uint32_t channel = 0;
    std::uint32_t package = 0;
    Phase phase = Phase::idle;
    Cached cached = Cached::none;
    bool suspend_sent = false;  ///< a suspend was sent but came too late
    bool suspended = false;
    // For units that take programs and erases only.
    bool dirty = false;
    std::uint64_t dirty_planes = 0;   ///< planes whose requests may have changed (plane_bit())
    std::uint32_t writes = 0;         ///< planes with `first_writes`
    std::uint32_t queued_writes = 0;  ///< programs and erases that wait at its planes
    bool output_fails = false;        ///< some page in the output needs another attempt
    std::uint32_t outputs = 0;        ///< pages in the output whose attempt is not over
    std::uint32_t failures = 0;       ///< pages in the output that are to be read again, once `outputs` is 0
    Group array, held, behind;
    SimTime work_end;
    SimTime work_since;  ///< start of the part of the work that no observer has been told
    SimTime remaining;   ///< remaining time of the suspended group
    Ask ask;             ///< status, suspend or resume
  };

  enum class Event : std::uint8_t {
    arrival,      ///< event of a plane
    commands_in,  ///< event of a unit
    work_end,
    moved,
    stopped,
    resumed,
    status_end,
    page_out,  ///< event of a plane
    left,      ///< event of a plane: page_out of a page that was read ahead
    decoded,   ///< event of a plane
  };
  struct Entry {
    SimTime at;
    std::uint64_t order;
    std::uint32_t index;
    Event event;
    constexpr bool before(const Entry& o) const { return at != o.at ? at < o.at : order < o.order; }
  };
  struct Channel {
    SimTime bus_free;
    SimTime decoder_free;
    std::uint32_t package = kNone;  ///< package of the last grant
    std::uint64_t entries = 0;      ///< ever made
    NearlySortedQueue<Entry> agenda;
    NearlySortedQueue<Ask> commands;  ///< all but data-outs
    NearlySortedQueue<Ask> data_outs;
    std::uint32_t dies_in_steps = 0;   ///< units for programs and erases that do not read ahead
    std::vector<std::uint32_t> dirty;  ///< units whose requests may have changed, or those of units that read for them
  };

  // Operations and queues.
  void enqueue(const PageOp& op, SimTime at, std::uint32_t batch);
  void unqueue(std::uint32_t plane, std::uint32_t op);
  void free_op(std::uint32_t op);
  std::uint32_t offer(std::uint32_t plane, SimTime now) const;
  /// offer(), kept until something may change it.
  std::uint32_t first(std::uint32_t plane, SimTime now) {
    return planes_[plane].stale ? find_first(plane, now) : planes_[plane].first;
  }
  std::uint32_t find_first(std::uint32_t plane, SimTime now);
  void account(std::uint32_t op, FlashStage stage, SimTime now) {
    if (ops_[op].stages != Kept::no) add_stage(op, stage, now);
  }
  void add_stage(std::uint32_t op, FlashStage stage, SimTime now);

  // Events at a time, which come before its decisions.
  SimTime step(std::size_t channel, SimTime now);
  SimTime next_step(std::size_t channel) const;
  /// When the bus is asked for next, if it is free by then.
  SimTime next_ask(std::size_t channel) const {
    const Channel& c = channels_[channel];
    const SimTime command = c.commands.front_time();
    return has_buffer(channel) ? std::min(command, c.data_outs.front_time()) : command;
  }
  void schedule(Channel& channel, SimTime at, Event event, std::uint32_t index);
  void happen(const Entry& entry);
  void touch(std::uint32_t unit);
  void commands_in(std::uint32_t unit, SimTime now);
  SimTime array_time(const Op& op) const;
  SimTime sensing_time(const Op& op) const {
    return op.in_register ? SimTime{} : read_time(timing_, op.page, op.attempt, op.sequence);
  }
  void start_work(std::uint32_t unit, SimTime now);
  void work_end(std::uint32_t unit, SimTime now);
  void to_output(std::uint32_t unit, SimTime now);
  void moved(std::uint32_t unit, SimTime now);
  void stopped(std::uint32_t unit);
  void leave_array(std::uint32_t unit, SimTime now);
  void start_cached(std::uint32_t unit, SimTime now);
  void page_out(std::uint32_t plane, SimTime now);
  void page_over(std::uint32_t unit, SimTime now);
  void tell_work(const Unit& unit, SimTime end);
  using Change = void (ChangeObserver::*)(std::uint32_t, OpClass, PageOpKind, SimTime);
  void tell_change(const Unit& unit, Change change, SimTime at);
  void publish(std::uint32_t unit, SimTime done);
  void occupy(Plane& plane, SimTime now);
  void vacate(std::uint32_t plane, SimTime now);

  // Reads ahead.
  SimTime run_ahead(std::size_t channel, SimTime bound);
  void ask_ahead(Channel& channel, Plane& plane, std::uint32_t p);
  void grant_read_ahead(std::size_t channel, std::uint32_t plane, SimTime now);
  void grant_data_out_ahead(std::size_t channel, std::uint32_t plane, SimTime now);
  void account_ahead(const Plane& plane);
  void leave_ahead(std::uint32_t die);
  void leave_ahead(std::uint32_t plane, Unit& reader, Channel& channel);
  void try_ahead(std::uint32_t die, SimTime now);

  // Requests and grants.
  bool takes(const Unit& unit, const Op& op) const;
  /// What the planes of a die offer that read on their own, and whether any of them is reading.
  struct DieOffers {
    const Op* read = nullptr;   ///< the first one
    const Op* write = nullptr;  ///< the first program or erase
    bool reading = false;
  };
  DieOffers die_offers(const Unit& die, SimTime now);
  bool goes_before(const Op& a, const Op& b) const;
  bool may_start(const Unit& die, const DieOffers& offers, const Unit& reader, const Op& op) const;
  bool urgent_read(const Group& group, const Op& op) const;
  bool suspendable(const Unit& unit) const;
  /// Nothing holds back or stops the reads of a die whose planes read on their own: each of them goes by itself.
  bool only_reads(const Unit& die) const {
    return planes_read_ && die.writes == 0 && die.phase == Phase::idle && die.cached == Cached::none && !die.suspended;
  }
  /// Planes of a unit by their bits; those of a unit with more share them.
  static std::uint64_t plane_bit(std::uint32_t in_unit) { return std::uint64_t{1} << in_unit % 64; }
  void refresh(std::uint32_t unit, SimTime now);
  bool refresh_reads(Unit& die, std::uint64_t planes, SimTime now);
  void refresh_all(std::uint32_t unit, SimTime now);
  void ask_for_command(std::uint32_t plane, std::uint32_t op, SimTime now);
  void set_ask(Ask& ask, const Ask& wanted, Channel& channel, SimTime now);
  void withdraw(Ask& ask, Channel& channel);
  bool has_buffer(std::size_t channel) const;
  bool serves_command(const Channel& channel, SimTime now) const;
  void decide(std::size_t channel, SimTime now);
  SimTime select(std::size_t channel, std::uint32_t package);
  void grant_command(std::size_t channel, std::uint32_t plane, SimTime now);
  void grant_data_out(std::size_t channel, const Ask& ask, SimTime now);
  SimTime move_out(std::size_t channel, std::uint32_t package, const Op& op, SimTime sensing, SimTime now);
  bool fails_again(Op& op);
  SimTime pass_filter(std::size_t channel, const Op& op, SimTime decoded);
  void grant_status(std::size_t channel, std::uint32_t unit, SimTime now);
  /// The bus carries a command without data for `unit`; `what` names it for observers.
  void send_command(std::size_t channel, const Unit& unit, SimTime now, const char* what);
  void grant_suspend(std::size_t channel, std::uint32_t unit, SimTime now);
  void grant_resume(std::size_t channel, std::uint32_t unit, SimTime now);

  template <class Each>
  void each_plane(const Unit& unit, Each&& each) {
    for (std::uint32_t p = unit.first; p < unit.first + unit.planes; ++p) each(p, planes_[p]);
  }

  FixedDivisor by_block_;
  std::uint32_t unit_planes_;  ///< planes of a unit that takes programs and erases
  bool planes_read_;           ///< planes read on their own, dies program and erase
  std::size_t ranks_;          ///< queues of a plane
  bool classes_;               ///< some classes are more urgent than others
  std::array<std::uint8_t, kOpClasses> rank_of_;
  std::vector<Queue> queues_;  ///< [PlaneId][rank]
  std::vector<Plane> planes_;
  std::vector<Unit> units_;
  std::vector<Channel> channels_;
  std::vector<Op> ops_;
  std::vector<FlashStages> stages_;  ///< by operation, of those that have some
  std::uint32_t free_op_ = kNone;
  bool may_read_ahead_;
  std::uint32_t dies_in_steps_;  ///< units for programs and erases that do not read ahead
};

}  // namespace csdsim::nfc
