// The NVMe controller as a SystemC module: BAR0, DMA of queues and data, interrupts.
#pragma once

#include <tlm_utils/simple_target_socket.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <systemc>
#include <tlm>
#include <vector>

#include "base/ring_queue.h"
#include "base/work_observer.h"
#include "nvme_if/core/controller_core.h"
#include "nvme_if/core/controller_params.h"
#include "nvme_if/sysc/command.h"
#include "nvme_if/sysc/doorbell_port.h"
#include "nvme_if/sysc/interrupt_if.h"
#include "nvme_if/sysc/pcie_dma.h"
#include "simulation/event_loop.h"
#include "simulation/unit_pool.h"

namespace csdsim::nvme {

/// `bar` is BAR0: registers and doorbells, accessed in 4 or 8 bytes; the controller answers at once and ignores an
/// annotated delay. All other traffic goes through the DMA engine: submission entries and PRP lists come in,
/// completions go out, and the handler's data moves. Each completion raises its queue's vector; the host may let
/// completions of I/O queues share one interrupt (interrupt coalescing). The interrupt message takes no link time.
///
/// A controller reset (CC.EN to 0) keeps CSTS.RDY set until the last DMA is over; commands that the handler still holds
/// then fail their accesses with abort_sq_deletion, and completing them has no effect. A submission queue or completion
/// queue in memory that does not exist sets CSTS.CFS.
class NvmeController final : public sc_core::sc_module, private DoorbellPort, private DmaClient {
 public:
  tlm_utils::simple_target_socket<NvmeController> bar;
  sc_core::sc_port<InterruptIf, 0, sc_core::SC_ZERO_OR_MORE_BOUND> interrupt;

  /// `kind` of the pins of a core: one of these and the opcode of the command, of I/O and of administration.
  static constexpr std::uint32_t kIoKind = 1, kAdminKind = 257;

  /// UserError for parameters out of range. `dma` and `handler` must outlive the controller. With `cores`, and a
  /// firmware_time, each core of the firmware is a module that it makes, whose `amount` is the time in picoseconds.
  NvmeController(const sc_core::sc_module_name& name, const NvmeControllerParams& params, PcieDma& dma,
                 CommandHandler& handler, const UnitPool::Make& cores = nullptr);
  ~NvmeController() override;

  const ControllerCore& core() const { return core_; }
  /// Null without Flexible Data Placement.
  EnduranceGroup* endurance_group() { return core_.endurance_group(); }
  const NvmeControllerParams& params() const { return params_; }
  /// The power fails: all commands are gone, the registers read as all ones, and nothing is heard or signalled until
  /// power_on(). The handler and the DMA engine have forgotten the commands too. Not where cores are modules.
  void power_off();
  /// The controller answers again, as new.
  void power_on();

  /// Sets the observer of I/O commands, which must outlive the simulation; null removes it.
  void observe(CommandObserver* observer) { observer_ = observer; }
  /// Observers of the queues and of the firmware's cores; they must outlive the simulation. `queues`, by QueueId:
  /// commands from their fetch to their completion, with their identifier, and how many there are. `cores`: work on
  /// commands, of which as many overlap as there are cores.
  void observe_work(WorkObserver* queues, WorkObserver* cores) {
    queue_work_ = queues;
    core_work_ = cores;
  }
  /// Number of commands that are fetched and not completed.
  std::uint64_t commands_inside() const { return live_commands_; }
  /// Time that the firmware's cores worked on commands, summed over them, and that commands waited for a core.
  const SimTime& firmware_busy() const { return firmware_busy_; }
  /// The part of firmware_busy() for commands that it has finished.
  SimTime firmware_done() const { return firmware_done_; }
  SimTime firmware_waited() const { return firmware_waited_; }

  /// Adds the cores, where they are modules, to a waveform.
  void trace(sc_core::sc_trace_file* file) const override {
    if (pool_ != nullptr) pool_->trace(file);
  }

 private:
  friend class Command;

  struct Fetch {
    bool busy = false;
    std::uint32_t epoch = 0;
    QueueId queue;
    std::vector<SubmissionEntry> entries;
    std::uint32_t count = 0;
  };
  struct Deletion {
    QueueId queue;
    Command* command;
  };

  // BAR0
  void b_transport(tlm::tlm_generic_payload& trans, sc_core::sc_time& delay);
  unsigned transport_dbg(tlm::tlm_generic_payload& trans);
  tlm::tlm_response_status access_registers(tlm::tlm_generic_payload& trans);
  bool gone() const { return disappears_ && (!powered_ || sim_time_now() >= params_.disappears_at); }
  void ring_submission_queue(QueueId queue, std::uint32_t tail) override {
    if (gone()) return;
    if (const std::uint32_t entries = core_.ring_submission_queue(queue, tail); entries != 0)
      submitted(queue, entries);
    else
      deliver_events();
  }
  void ring_submission_queue_last(QueueId queue, std::uint32_t tail) override {
    dma_.read_last([=, this] { ring_submission_queue(queue, tail); });
  }
  void ring_completion_queue(QueueId queue, std::uint32_t head) override {
    if (!core_.ring_completion_queue(queue, head)) return deliver_events();
    if (!waiting_[queue.value].empty()) drain_waiting(queue);
  }
  void apply(const RegisterEffect& effect);

  // Fetching
  void submitted(QueueId queue, std::uint32_t entries);
  void pump_fetches() {
    if (unfetched_ != 0) start_fetches(nullptr);
  }
  void start_fetches(SubmissionQueue* only);
  SubmissionQueue* next_queue();
  /// The queue that is served after `id`.
  std::uint16_t after(QueueId id) const {
    return static_cast<std::uint16_t>(id.value + 1 == core_.queue_limit() ? 0 : id.value + 1);
  }
  template <class Accept>
  SubmissionQueue* next_in_turn(Accept accept);
  std::uint32_t arbitrate(SubmissionQueue*& queue);
  void start_fetch(Fetch& fetch, SubmissionQueue& queue, std::uint32_t most);
  void dma_done(std::uint64_t fetch, Status status) override;
  void fetched(Fetch& fetch, Status status);
  Command* accept(SubmissionQueue& queue, const SubmissionEntry& entry);

  // nvme_firmware.cpp
  void firmware_step();
  bool firmware_is_free() const {
    return in_work_.size() + in_cores_.size() + out_of_step_.size() < params_.firmware_cores;
  }
  void start_firmware();
  void push_firmware(Command& c);
  void count_waiting();
  void give_to_core(Command& c);
  void core_done(const UnitPool::End& end);

  // Executing
  [[gnu::noinline]] void end_shutdown();
  void execute(Command& c);
  void execute_inline(Command& c);
  void execute_admin(Command& c);
  void answer(Command& c, AdminResult result);
  void send_admin_data(Command& c, std::vector<std::byte> data, std::uint32_t dw0);
  void take_admin_data(Command& c, std::vector<std::byte> data);
  [[gnu::noinline]] void deliver_events();
  void end_event_request(Command* c, Status status, std::uint32_t dw0);
  [[gnu::noinline]] void note_error(const Command& c, Status status);
  bool try_abort(QueueId queue, CommandId cid);
  void start_deletion(QueueId queue, Command& c);
  void finish_deletions() {
    if (!deletions_.empty()) finish_ready_deletions();
  }
  [[gnu::noinline]] void finish_ready_deletions();

  // Completing
  void finish(Command& c, Status status, std::uint32_t dw0 = 0);
  void retire(Command& c);
  struct Queues {
    SubmissionQueue& submission;
    CompletionQueue& completion;
    RingQueue<Command*>& waiting;  ///< for room in the completion queue
    bool may_post() const { return waiting.empty() && !completion.full(); }
  };
  Queues queues_of(const Command& c) {
    SubmissionQueue& sq = core_.existing_sq(c.queue_);
    const QueueId cq = sq.completion_queue();
    return {sq, core_.existing_cq(cq), waiting_[cq.value]};
  }
  void post(Command& c, const Queues& queues);
  void post_behind_data(Command& c, const Queues& queues);
  [[noreturn]] static void refuse_completion();
  void data_sent(Command& c, Status status);
  void posted(Command& c, Status status);
  void tell_posted(const Command& c, const SubmissionQueue& queue);
  [[gnu::noinline]] void observe_posted(Command& c, const SubmissionQueue& queue);
  bool signals_now(InterruptVector vector);
  void signal_late();
  void drain_waiting(QueueId cq);
  void recycle(Command& c);

  // Reset
  void end_of_elaboration() override;
  void start_of_simulation() override;
  void begin_reset();
  void dma_finished() {
    --dma_in_flight_;
    if (core_.resetting() && dma_in_flight_ == 0) core_.finish_reset();
  }
  void defer(Callback<void()> work);
  void run_deferred();

  NvmeControllerParams params_;
  bool disappears_;  ///< at some time, or has no power
  bool powered_ = true;
  ControllerCore core_;
  PcieDma& dma_;
  CommandHandler& handler_;
  CommandObserver* observer_ = nullptr;
  WorkObserver* queue_work_ = nullptr;
  WorkObserver* core_work_ = nullptr;

  std::vector<std::unique_ptr<Command>> slots_;
  std::vector<Command*> free_;
  std::vector<Fetch> fetches_;
  std::uint32_t reserved_slots_ = 0;  ///< slots for entries that are being fetched
  QueueId last_served_;               ///< by the round robin
  WeightedArbiter arbiter_;
  std::uint32_t unfetched_ = 0;    ///< upper bound of the entries in queues whose fetch has not begun
  std::deque<Command*> firmware_;  ///< fetched, waiting for the firmware
  SimTime firmware_busy_;          ///< summed over its cores
  SimTime firmware_waited_;        ///< that commands waited for a core
  SimTime firmware_done_;
  SimTime counted_until_;  ///< in firmware_waited_
  struct InWork {
    SimTime due;
    Command* command = nullptr;
  };
  RingQueue<InWork>
      in_work_;  ///< commands in the firmware; all take the same time, so they leave in the order in which they came
  struct InCore {
    std::uint64_t id = 0;  ///< of its request to the pool
    Command* command = nullptr;
    bool ended = false;  ///< the core has finished; firmware_step() executes the command
  };
  std::unique_ptr<UnitPool> pool_;  ///< null: in_work_ takes the place of in_cores_
  std::vector<InCore> in_cores_;    ///< in the order of their requests, at most one per core
  std::uint64_t next_in_core_ = 0;
  std::vector<Command*> out_of_step_;  ///< commands that wait until the kernel's time is the current time
  std::vector<Command*> ready_;        ///< scratch: commands that the firmware has finished
  Alarm firmware_due_{AlarmRank::firmware, [this] { firmware_step(); }};
  std::vector<RingQueue<Command*>> waiting_;  ///< by completion queue: commands completed while the queue is full
  std::vector<Deletion> deletions_;
  std::deque<Command*> event_requests_;  ///< that wait for an event; not among live_commands_
  std::uint64_t live_commands_ = 0;
  std::uint64_t dma_in_flight_ = 0;
  std::uint32_t epoch_ = 0;
  std::vector<Callback<void()>> deferred_;
  Alarm deferred_due_{AlarmRank::firmware, [this] { run_deferred(); }};
  LoopHold hold_;
  std::vector<InterruptIf*> receivers_;   ///< bound to `interrupt`
  InterruptIf* only_receiver_ = nullptr;  ///< where one is bound
  /// Completions for which a vector has not been signalled, and the latest time for doing so.
  struct Unsignalled {
    std::uint32_t completions = 0;
    SimTime due;
  };
  std::vector<Unsignalled> unsignalled_;  ///< by vector
  Alarm signals_due_{AlarmRank::firmware, [this] { signal_late(); }};
};

[[gnu::always_inline]] inline void NvmeController::post(Command& c, const Queues& queues) {
  const ControllerCore::Post p = core_.post(queues.submission, queues.completion, c.cid(), c.status_, c.dw0_);
  if (!c.status_.ok()) note_error(c, c.status_);
  if (c.tracked_) queues.submission.end(c.cid());
  if (c.observed_) observe_posted(c, queues.submission);
  c.cqe_ = p.entry;
  ++dma_in_flight_;
  dma_.write({p.address, Bytes{sizeof c.cqe_}}, reinterpret_cast<const std::byte*>(&c.cqe_), c, Command::kCompletion);
}

/// Posts the completion of a command whose data is on the link. Precondition: may_post().
[[gnu::always_inline]] inline void NvmeController::post_behind_data(Command& c, const Queues& queues) {
  if (c.state_ != Command::State::executing) refuse_completion();
  c.state_ = Command::State::posted_behind_data;
  c.dw0_ = 0;
  post(c, queues);
}

[[gnu::always_inline]] inline void NvmeController::recycle(Command& c) {
  const bool current = c.epoch_ == epoch_;
  c.state_ = Command::State::idle;
  free_.push_back(&c);
  if (!current) return;
  --live_commands_;
  core_.existing_sq(c.queue_).end_work();
  finish_deletions();
  if (core_.shutting_down() && live_commands_ == 0) end_shutdown();
}

}  // namespace csdsim::nvme
