// The host's side of the NVMe interface: brings the controller up, submits commands, reaps completions.
#pragma once

#include <tlm_utils/simple_initiator_socket.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <systemc>
#include <tlm>
#include <vector>

#include "base/work_observer.h"
#include "nvme_if/core/prp.h"
#include "nvme_if/core/queues.h"
#include "nvme_if/core/sgl.h"
#include "nvme_if/spec/identify.h"
#include "nvme_if/spec/registers.h"
#include "nvme_if/sysc/doorbell_port.h"
#include "nvme_if/sysc/interrupt_if.h"
#include "simulation/event_loop.h"

namespace csdsim::nvme {

/// The CPU cores of a host. Each works serially, first come first served.
class HostCores {
 public:
  /// UserError if there are no cores.
  explicit HostCores(std::uint32_t count);
  /// Gives `work` to core `index` (modulo the number of cores) at `now`; returns when the core has done it.
  SimTime run(std::size_t index, SimTime work, SimTime now);

  std::size_t count() const { return free_at_.size(); }
  /// By core; it must outlive the cores.
  void observe(WorkObserver* observer) { observer_ = observer; }
  /// Up to `now`, summed over the cores; and how long work waited for its core.
  SimTime busy_until(SimTime now) const {
    SimTime ahead;
    for (const SimTime free : free_at_) ahead += std::max(free - now, SimTime{});
    return busy_ - ahead;
  }
  SimTime waited() const { return waited_; }

 private:
  std::vector<SimTime> free_at_;
  SimTime busy_;
  SimTime waited_;
  WorkObserver* observer_ = nullptr;
};

/// For callers that submit without a callback, which is faster: moving a callable right after it was built is slow.
class CompletionClient {
 public:
  /// Called when the command submitted with `tag` has completed and the host sees it, at `at`, the current time.
  virtual void completed(std::uint64_t tag, const CompletionEntry& entry, SimTime at) = 0;

 protected:
  ~CompletionClient() = default;
};

struct NvmeDriverParams {
  Segment queue_memory;              ///< host DRAM set aside for queues and lists, page aligned
  std::uint16_t queues = 4;          ///< I/O queue pairs wanted; the controller may grant fewer
  std::uint32_t queue_depth = 1024;  ///< entries per queue; limited by CAP.MQES
  SimTime io_overhead{};             ///< host CPU time per command, on the core of its queue
  InterruptCoalescing coalescing{};  ///< what the host sets; `time` has an effect only if `completions` is more than 1
  DataPointer data_pointer = DataPointer::prp;  ///< kind of data pointer in I/O commands
  QueuePriorities priorities = {};              ///< what the host sets; a class for each queue that is wanted, or none
  /// Cores that the drivers of a host share: queue i of a driver whose `first_core` is c runs on core c + i. Null:
  /// every queue has a core of its own.
  std::shared_ptr<HostCores> cores = {};
  std::uint32_t first_core = 0;
  SimTime poll_interval = SimTime::microseconds(1);  ///< while waiting for CSTS.RDY
  /// Lets the event loop run ahead of the kernel (simulation/event_loop.h). Callbacks then may call the driver, read
  /// the time with sim_time_now() and set alarms; they must not use the kernel's time or notify its events.
  bool run_ahead = false;
  /// A command that is not complete so long after it was placed in its queue ends the simulation with a UserError.
  SimTime timeout = SimTime::max();
  std::string drive = "the drive";  ///< its name in that message
  /// Remembers the commands under way, so that lose_controller() can be called.
  bool may_lose_controller = false;
};

/// Binds `bar` to the controller, `memory` to physical memory (the queues live there; accessed by DMI, or by debug
/// transport where DMI is not granted, without simulated time), and the controller's interrupt port to the driver
/// itself. It brings the controller up when the simulation starts: reset, admin queue, Identify, number of queues, I/O
/// queue pairs with a vector each.
///
///   driver.on_ready([&] { driver.submit_block(QueueId{1}, nvm_opcode::read, Lba{0}, 8, {{buffer, Bytes::kib(32)}},
///   done); });
class NvmeDriver : public sc_core::sc_module, public InterruptIf {
 public:
  /// The completion entry and when the host sees it.
  using Callback = csdsim::Callback<void(const CompletionEntry&, SimTime)>;

  tlm_utils::simple_initiator_socket<NvmeDriver> bar;
  tlm_utils::simple_initiator_socket<NvmeDriver> memory;

  NvmeDriver(const sc_core::sc_module_name& name, const NvmeDriverParams& params);

  /// Calls `callback` once the I/O queues exist; at once if they do.
  void on_ready(std::function<void()> callback);
  bool ready() const { return state_ == State::ready; }
  /// The reason why bring-up failed; empty while it has not.
  const std::string& failure() const { return failure_; }

  /// I/O queues are 1..queues(); 0 is the admin queue.
  std::uint16_t queues() const { return static_cast<std::uint16_t>(queues_.size() - 1); }
  const IdentifyController& controller() const { return controller_; }
  const IdentifyNamespace& name_space() const { return namespace_; }
  Bytes block_size() const { return block_size_; }
  Bytes mdts() const { return {std::uint64_t{4096} << controller_.mdts}; }

  /// Submits one command: the driver fills the command identifier and the PRPs, or the SGL, for `segments` (rules of
  /// build_prps() and build_sgl(); nothing is split). Waits in the driver while the queue is full. Commands that reach
  /// a queue at the same time share one doorbell. UserError for a queue that does not exist, segments against the
  /// rules, or queue memory too small for the lists.
  void submit(QueueId queue, SubmissionEntry command, std::span<const Segment> segments, Callback&& done);

  /// Reads or writes `blocks` logical blocks of namespace 1, cut into commands of at most mdts. `done` gets the last
  /// completion, or the first that failed, when all are there. The segments hold blocks * block_size() bytes.
  void submit_block(QueueId queue, std::uint8_t opcode, Lba slba, std::uint64_t blocks,
                    std::span<const Segment> segments, Callback&& done,
                    std::optional<std::uint16_t> placement = std::nullopt);

  /// The same, but calls `client` instead. `placement`: placement identifier of a write.
  void submit_block(QueueId queue, std::uint8_t opcode, Lba slba, std::uint64_t blocks,
                    std::span<const Segment> segments, CompletionClient& client, std::uint64_t tag,
                    std::optional<std::uint16_t> placement = std::nullopt);

  /// Opens a batch: the commands that are submitted until end_batch(). `together`: none of them is placed in its queue
  /// before the host's cores have done their part of all of them; then all are placed, at one doorbell per queue, and
  /// those that a full queue has no room for follow as its commands complete. Otherwise a batch changes nothing.
  void begin_batch(bool together);
  /// Closes the batch. Returns when the host's cores have done their part of its commands: now if that took no time.
  SimTime end_batch();

  /// The controller has lost its power. Completions that have reached memory count; all other commands under way, and
  /// those that are submitted from now on, wait for restart(). Needs NvmeDriverParams::may_lose_controller; UserError
  /// otherwise, and if the controller has not been ready yet.
  void lose_controller();
  /// The controller answers again: brings it up as at the start. Then the commands under way at the loss are issued
  /// again in their order, however often that happens, and those that were submitted since follow.
  void restart();
  /// Commands that restart() has issued again.
  std::uint64_t reissued() const { return reissued_; }

  std::uint64_t issued() const { return issued_; }
  std::uint64_t completed() const { return completed_; }
  std::uint64_t doorbells() const { return doorbells_; }

  void raise(InterruptVector vector) override;
  void raise_last(InterruptVector vector) override;
  bool runs_ahead() const override { return true; }  // the driver itself holds the loop where it must

 private:
  SC_HAS_PROCESS(NvmeDriver);

  enum class State : std::uint8_t { starting, ready, failed, lost };
  struct Pending {
    SubmissionEntry command;
    std::vector<Segment> segments;
    Callback done;
    SimTime ready_at;  ///< when the host has done its part; kInOpenBatch until that is known
  };
  static constexpr SimTime kInOpenBatch = SimTime::max();
  struct Batch {
    bool together = false;
    SimTime ready;  ///< when the host has done its part of the commands so far
  };
  /// A command that is outstanding. Many are, and a cache line is all that is left of one.
  struct Slot {
    CompletionClient* client = nullptr;  ///< told with its tag; null: the callback is called
    std::uint64_t tag = 0;
    SimTime placed;  ///< with a timeout: when the host placed it in the queue
    std::uint8_t opcode = 0;
    bool busy = false;
    bool has_lists = false;
  };
  /// Data that only few commands need.
  struct Extra {
    std::vector<PhysicalAddress> lists;
    Callback done;
    SubmissionEntry
        command;  ///< kept by drivers that may lose their controller, with its number in the order of placing
    std::uint64_t number = 0;
  };
  /// A command that was under way when the controller was lost.
  struct Interrupted {
    Slot slot;
    Extra extra;
  };
  struct Queue {
    QueueId id;
    std::uint32_t depth = 0;
    PhysicalAddress sq;
    PhysicalAddress cq;
    SubmissionEntry* submissions = nullptr;        ///< entries at `sq`, if memory grants DMI; else null
    const CompletionEntry* completions = nullptr;  ///< the same at `cq`
    std::uint32_t sq_tail = 0;
    std::uint32_t cq_head = 0;
    bool phase = true;
    bool doorbell_due = false;
    bool reap_due = false;
    std::vector<Slot> slots;    ///< by command identifier
    std::vector<Extra> extras;  ///< likewise
    std::vector<std::uint16_t> free_cids;
    std::deque<Pending> pending;
    std::vector<Interrupted> interrupted;  ///< in the order of placing
  };

  // Bring-up.
  using Step = void (NvmeDriver::*)();
  void run_step(Step step);
  void fail(std::string why);
  void poll_method();
  void poll();
  void await_ready(bool ready);
  void admin(std::string_view what, const SubmissionEntry& command, PhysicalAddress page, Step next);
  void disable_controller();
  void map_queue_memory();
  void enable_controller();
  void identify();
  void controller_identified();
  void namespace_identified();
  void queues_granted();
  void set_coalescing();
  void create_completion_queue();
  void create_submission_queue();
  Queue& add_queue(std::uint32_t depth);
  void poll_again(SimTime after);
  void start_queue(Queue& q);
  void interrupt(Queue& q);
  void issue_again(Queue& q);
  static void free_commands(Queue& q);
  void keep_command(Queue& q, const SubmissionEntry& command);

  void occupy(Slot& slot, std::uint8_t opcode);
  void check_timeouts();
  [[noreturn]] void report_timeout(const Queue& q, std::uint16_t cid) const;
  void issue_pending(Queue& q);
  Queue& queue_of(QueueId queue) {
    if (queue.value >= queues_.size()) refuse_queue(queue);
    return *queues_[queue.value];
  }
  [[noreturn]] void refuse_queue(QueueId queue) const;
  /// PRPs, or the two words of SGL1.
  DataPointerField data_pointer_of(Queue& q, std::uint16_t cid, std::span<const Segment> segments, bool sgl);
  DataPointerField build_lists(std::vector<PhysicalAddress>& lists, std::span<const Segment> segments, bool sgl);
  bool uses_sgl(const Queue& q) const { return params_.data_pointer == DataPointer::sgl && q.id.value != 0; }
  void advance_tail(Queue& q);
  void place(Queue& q, SubmissionEntry& command, std::span<const Segment> segments, Callback&& done);
  void start_of_simulation() override;
  Queue* queue_of(InterruptVector vector);
  const CompletionEntry& head_of(const Queue& q, CompletionEntry& copy);
  void react();
  void finish_reaction();
  void ring_doorbells();
  void ring_doorbell(Queue& q);
  void reap(Queue& q);

  PhysicalAddress take_page();
  PhysicalAddress take_list();
  void write_memory(PhysicalAddress to, const void* from, std::size_t size);
  void read_memory(PhysicalAddress from, void* to, std::size_t size);
  void access_memory(tlm::tlm_command command, PhysicalAddress address, void* data, std::size_t size);
  std::uint64_t bar_access(tlm::tlm_command command, std::uint64_t offset, std::uint32_t size, std::uint64_t value);

  NvmeDriverParams params_;
  State state_ = State::starting;
  std::string failure_;
  std::vector<std::function<void()>> ready_callbacks_;
  bool awaited_ready_ = false;  ///< value of CSTS.RDY that bring-up waits for
  SimTime deadline_{-1};        ///< until when; -1 before the first step
  std::uint32_t depth_ = 0;
  std::uint32_t granted_queues_ = 0;
  std::uint32_t admin_dw0_ = 0;  ///< dword 0 of the last admin completion
  PhysicalAddress identify_page_;
  Cap cap_;
  IdentifyController controller_;
  IdentifyNamespace namespace_;
  Bytes block_size_;
  std::uint64_t blocks_a_command_ = 0;          ///< largest command of submit_block()
  std::vector<std::unique_ptr<Queue>> queues_;  ///< by identifier
  std::vector<Queue*> reaps_;                   ///< queues whose vector was raised
  std::vector<Queue*> rings_;                   ///< queues with entries for which no doorbell has been rung
  std::size_t pending_ = 0;                     ///< commands that wait in the driver, over all queues
  Batch batch_;                                 ///< the open one
  PhysicalAddress next_page_;
  std::vector<PhysicalAddress> free_lists_;
  std::byte* direct_ = nullptr;  ///< direct access to queue_memory
  tlm::tlm_generic_payload bar_payload_;
  Alarm reaction_due_{AlarmRank::host, [this] { react(); }};
  Alarm doorbells_due_{AlarmRank::doorbell, [this] { ring_doorbells(); }};
  Alarm timeout_due_{AlarmRank::host, [this] { check_timeouts(); }};
  bool watching_ = false;                                                     ///< timeout_due_ is set
  Alarm poll_due_{AlarmRank::host, [this] { run_step(&NvmeDriver::poll); }};  ///< in a restart
  bool restarted_ = false;
  std::size_t up_ = 0;  ///< queues that exist in the controller, or are being made
  std::uint64_t reissued_ = 0;
  std::uint64_t placed_ = 0;  ///< commands
  LoopHold hold_;
  DoorbellPort* bells_ = nullptr;  ///< doorbells of the controller if the driver is bound to it directly, else null
  bool reacting_ = false;          ///< react() is running: it rings the doorbells at its end
  std::uint64_t issued_ = 0;
  std::uint64_t completed_ = 0;
  std::uint64_t doorbells_ = 0;
};

}  // namespace csdsim::nvme
