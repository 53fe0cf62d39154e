// A command inside the controller, and the interface of the firmware that executes it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/prefetch.h"
#include "contracts/request_stages.h"
#include "nvme_if/core/data_pointer_walker.h"
#include "nvme_if/core/endurance_group.h"
#include "nvme_if/core/event_log.h"
#include "nvme_if/core/io_command.h"
#include "nvme_if/sysc/pcie_dma.h"

namespace csdsim::nvme {

class NvmeController;

/// Told of the end of a command's accesses to its data, by the tags that they were started with.
class AccessClient {
 public:
  virtual void access_done(std::uint32_t tag, Status status) = 0;

 protected:
  ~AccessClient() = default;
};

/// One command between its fetch and its completion. The controller owns it; a handler may use it until it has called
/// complete(), which it does once.
class alignas(64) Command final : private DmaClient {
 public:
  using Done = Callback<void(Status)>;

  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;

  const SubmissionEntry& entry() const { return sqe_; }
  const IoCommand& io() const { return io_; }
  /// The operation as T, or null if the command is of another type.
  template <class Operation>
  const Operation* as() const {
    return std::get_if<Operation>(&io_.operation);
  }
  QueueId queue() const { return queue_; }
  CommandId cid() const { return cid_; }
  /// The stages of its time since its fetch, which the handler marks; null without an observer.
  RequestStages* stages() { return observed_ ? &stages_ : nullptr; }

  /// Prefetches the memory that completing it needs.
  void prefetch() const {
    constexpr std::size_t kLine = 64;
    for (std::size_t line = 0; line < kEnd; line += kLine)
      prefetch_line(reinterpret_cast<const std::byte*>(this) + line);
  }

  /// Moves bytes from the command's buffer (its data pointer) at `offset` into `into`, which stays valid until `done`
  /// is called. Several accesses may be in progress; each direction keeps their order. `done` gets success, an error of
  /// the data pointer, data_transfer_error, or abort_sq_deletion after a controller reset. InternalError for a range
  /// outside the buffer.
  void read_host(Bytes offset, std::span<std::byte> into, Done done);
  /// The same in time, without bytes.
  void read_host_timing(Bytes offset, Bytes length, Done done);
  /// The same with a client, one for all accesses of the command, in place of a callback.
  void read_host_timing(Bytes offset, Bytes length, AccessClient& client, std::uint32_t tag);
  /// Moves bytes from `from` into the command's buffer, under the same rules.
  void write_host(Bytes offset, std::span<const std::byte> from, Done done);
  void write_host_timing(Bytes offset, Bytes length, Done done);

  /// Moves bytes from `from` into the command's buffer and completes the command with the status of that transfer. The
  /// completion follows the data on the link without waiting for its arrival: both are posted writes, which keep their
  /// order (PCIe Base 3.0, 2.4.1). `from` stays valid until `sent` is called.
  void complete_with_data(Bytes offset, std::span<const std::byte> from, Done sent);
  /// The same in time, without bytes.
  void complete_with_data_timing(Bytes offset, Bytes length);

  /// Moves a part of the data ahead of the part that complete_with_data() moves, whose `sent` is called after it. If
  /// the transfer fails, the command completes with its error.
  void send_part(Bytes offset, std::span<const std::byte> from);
  /// The same in time, without bytes.
  void send_part_timing(Bytes offset, Bytes length);
  /// The same for a part that goes at `at`, which may be ahead of the current time: nothing else uses the link before.
  /// Returns false and does nothing if the part has to be sent when it is `at`.
  bool send_part_ahead(Bytes offset, Bytes length, SimTime at);

  /// Ends the command: posts its completion. All accesses must have called back (InternalError).
  void complete(Status status, std::uint32_t dw0 = 0);

 private:
  friend class NvmeController;
  explicit Command(NvmeController& controller) : controller_(controller) {}

  enum class State : std::uint8_t {
    idle,
    queued,
    executing,
    completed,
    posted_behind_data,  ///< the completion has been sent behind its data
  };
  struct Access {
    LinkDirection direction;
    Bytes offset;
    Bytes length;
    std::byte* local;
    Done done;
  };

  /// Tokens of transfers; others are slots of active_.
  static constexpr std::uint64_t kCompletion = ~std::uint64_t{0};
  static constexpr std::uint64_t kResult = kCompletion - 1;
  static constexpr std::uint64_t kList = kCompletion - 2;
  static constexpr std::uint64_t kTagged = std::uint64_t{1} << 32;  ///< of an access of client_, with its tag below it

  /// Bytes that completing a command touches, without its stages.
  static constexpr std::size_t kEnd = 192;

  void forget();
  void dma_done(std::uint64_t token, Status status) override;
  void count_access(Bytes offset, Bytes length);
  void access(Access&& a);
  void start_access(Access&& a);
  /// Starts the transfer of bytes of the command's buffer.
  void move(LinkDirection direction, Bytes offset, Bytes length, std::byte* local, std::uint64_t token);
  void finish_access(std::uint32_t slot, Status s);
  void end_access(Status s);
  bool is_resolved() const;
  bool write_ahead(Bytes offset, Bytes length, SimTime at);
  void part_sent(Status status);
  template <class Send>
  bool complete_behind(Send&& send);
  [[gnu::always_inline]] void walk_data_pointer(Bytes page_size) {
    walk_.start(sqe_, io_.data, page_size);
    walking_ = walk_.state() == WalkState::needs_list;
    if (walking_) fetch_list();
  }
  void fetch_list();
  void resolved();

  // The fields that ending a command needs stand together: with many commands in the controller, one cache line per
  // command is all that stays cached.
  NvmeController& controller_;
  State state_ = State::idle;
  bool tracked_ = false;   ///< its identifier is marked outstanding in its queue
  bool walking_ = false;   ///< PRP lists or SGL segments are being fetched
  bool observed_ = false;  ///< stages_ are kept
  QueueId queue_;
  CommandId cid_;
  std::uint32_t epoch_ = 0;     ///< epoch of the controller in which it was fetched; a reset starts a new epoch
  std::uint32_t accesses_ = 0;  ///< under way
  std::uint32_t dw0_ = 0;
  Status status_;  ///< until it completes: the first error of its parts
  AccessClient* client_ = nullptr;
  CompletionEntry cqe_;
  DataPointerWalker walk_;
  IoCommand io_;  ///< begins with its size, which belongs to these fields
  RequestStages stages_;
  SubmissionEntry sqe_;
  std::vector<std::uint64_t> list_;  ///< entries of the list piece that is being fetched
  Segment list_segment_;
  Status list_status_;
  std::vector<Access> waiting_;            ///< for the walk
  std::vector<Done> active_;               ///< callbacks of accesses under way, by slot
  std::vector<std::uint32_t> free_slots_;  ///< free slots of active_
  std::vector<std::byte> data_;            ///< result of an admin command
};

using CommandPtr = Command*;

/// Observes where the time of commands goes.
class CommandObserver {
 public:
  virtual ~CommandObserver() = default;
  /// Called when the completion of a command is about to be posted: the time after `stages` belongs to the link.
  virtual void completed(QueueId queue, CommandId cid, const RequestStages& stages) = 0;
};

/// The drive's firmware. execute() is called once for each I/O command that passed decoding, in fetch order, from an
/// SC_METHOD: execute() must not wait; it may complete the command at once or later.
class CommandHandler {
 public:
  virtual ~CommandHandler() = default;
  /// Whether the event loop (simulation/event_loop.h) may run ahead of the kernel between the execution of this command
  /// and its completion. At the first command that answers false the controller stops running ahead, until the end of
  /// the simulation.
  virtual bool runs_ahead(const IoCommand& /*command*/) const { return false; }
  virtual void execute(CommandPtr command) = 0;
  /// Calls back when all that has completed so far survives a loss of power without the help of capacitors: a normal
  /// shutdown, and the end of the volatile write cache.
  virtual void drain(Callback<void()> done) { done(); }
  /// Wear of the flash, for the SMART log page.
  virtual DriveHealth health() const { return {}; }
  /// The data written and erased, for the log pages of Flexible Data Placement.
  virtual FdpCounts placement_counts() const { return {}; }
  /// The namespace is deleted: nothing of its data is left when it calls back.
  virtual void erase_namespace(Callback<void()> done) { done(); }
};

}  // namespace csdsim::nvme
