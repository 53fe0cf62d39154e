// The NVMe controller without time: registers, queues, admin commands. It makes the decisions; the SystemC adapter
// moves the bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "nvme_if/core/admin_result.h"
#include "nvme_if/core/arbitration.h"
#include "nvme_if/core/controller_params.h"
#include "nvme_if/core/event_log.h"
#include "nvme_if/core/fdp_admin.h"
#include "nvme_if/core/io_command.h"
#include "nvme_if/core/queues.h"
#include "nvme_if/spec/registers.h"

namespace csdsim::nvme {

/// The action that a register write asks of the adapter.
struct RegisterEffect {
  enum class Kind : std::uint8_t {
    none,
    refused,   ///< width or alignment is not allowed for this register; nothing changed
    enabled,   ///< CSTS.RDY is set, the admin queue is there
    reset,     ///< stop all commands, then call finish_reset()
    shutdown,  ///< fetch no more; call finish_shutdown() when all commands are done and, unless shuts_down_abruptly(),
               ///< all that was written survives a loss of power
    sq_tail,   ///< the submission queue `queue` has new entries
    cq_head,   ///< the completion queue `queue` has free entries again
  };
  Kind kind = Kind::none;
  QueueId queue = {};
  std::uint32_t entries = 0;  ///< sq_tail: number of new entries
};

struct ControllerStats {
  std::uint64_t invalid_doorbell_register = 0;  ///< writes to the doorbell of a queue that does not exist
  std::uint64_t invalid_doorbell_value =
      0;  ///< writes of a value outside the queue, of the old value, or beyond the other end
  std::uint64_t admin_commands = 0;
  std::uint64_t io_commands = 0;
  std::uint64_t error_completions = 0;
};

/// Subset of NVMe 1.4: one controller, one namespace, the NVM command set and the KV commands; both round-robin
/// arbitrations; PRPs; physically contiguous queues; the mandatory log pages, and asynchronous events for invalid
/// doorbell writes and for the health of the drive. With ControllerParams::fdp it is one of NVMe 2.0, with Flexible
/// Data Placement and what that needs (FdpAdmin).
class ControllerCore {
 public:
  /// UserError for parameters out of range.
  explicit ControllerCore(ControllerParams params);

  const ControllerParams& params() const { return params_; }
  Bytes bar_size() const { return bar_size_; }

  /// Register reads of 4 or 8 bytes, naturally aligned; reserved registers and doorbells read 0. nullopt: not allowed.
  std::optional<std::uint64_t> read(std::uint64_t offset, std::uint32_t size) const;
  /// Register writes of 4 bytes, or of 8 bytes to ASQ and ACQ. Read-only and reserved registers ignore them.
  RegisterEffect write(std::uint64_t offset, std::uint32_t size, std::uint64_t value);
  /// Writes the tail doorbell of a submission queue, which need not exist. Returns the number of new entries, 0 if the
  /// write is refused.
  std::uint32_t ring_submission_queue(QueueId id, std::uint32_t tail);
  /// Writes the head doorbell of a completion queue, which need not exist. False if the write is refused.
  bool ring_completion_queue(QueueId id, std::uint32_t head);

  [[gnu::noinline]] void finish_reset();
  [[gnu::noinline]] void finish_shutdown();
  /// The power fails: queues and registers are as after the next power-on. Log pages stay.
  [[gnu::noinline]] void lose_power();
  /// Sets CSTS.CFS: the controller cannot continue because its queues cannot be read or written; the host must reset
  /// it.
  void set_fatal() { csts_.cfs = true; }

  bool ready() const { return csts_.rdy; }
  /// Whether commands may be fetched: the controller is ready, and no reset or shutdown is in progress.
  bool running() const { return accepts_doorbells() && !csts_.cfs && csts_.shst == ShutdownStatus::normal; }
  bool resetting() const { return resetting_; }
  bool shutting_down() const { return csts_.shst == ShutdownStatus::processing; }
  /// The host waits for no data: what was not written before may be lost with the power.
  bool shuts_down_abruptly() const { return cc_.shn == kAbruptShutdown; }
  /// Writes may complete in the volatile cache. False: the host has switched it off, or there is none.
  bool write_cache_enabled() const { return (features_[feature::volatile_write_cache] & kWriteCacheEnabled) != 0; }
  /// As set by the host.
  InterruptCoalescing interrupt_coalescing() const {
    const std::uint32_t set = features_[feature::interrupt_coalescing];
    return {(set & 0xFF) + 1, InterruptCoalescing::kUnit * ((set >> 8) & 0xFF)};
  }
  /// Whether queues have priorities, and the weights of their classes, as set by the host.
  bool weighted() const { return cc_.ams == 1; }
  PriorityWeights priority_weights() const { return PriorityWeights::decode(features_[feature::arbitration]); }
  /// CC.MPS, valid while ready.
  Bytes memory_page() const { return {std::uint64_t{4096} << cc_.mps}; }

  /// The queue, or null.
  SubmissionQueue* sq(QueueId id) { return id.value < sqs_.size() ? sqs_[id.value].get() : nullptr; }
  CompletionQueue* cq(QueueId id) { return id.value < cqs_.size() ? cqs_[id.value].get() : nullptr; }
  /// The same for a queue that is known to exist.
  SubmissionQueue& existing_sq(QueueId id) { return *sqs_[id.value]; }
  CompletionQueue& existing_cq(QueueId id) { return *cqs_[id.value]; }
  /// One past the largest queue identifier that may exist.
  std::uint16_t queue_limit() const { return static_cast<std::uint16_t>(params_.io_queues + 1); }

  AdminResult execute_admin(const SubmissionEntry& sqe);
  /// Goes on with a command whose result was take_data.
  AdminResult execute_with_data(const SubmissionEntry& sqe, std::span<const std::byte> data);
  /// Null without Flexible Data Placement.
  EnduranceGroup* endurance_group() { return fdp_ == nullptr ? nullptr : &fdp_->group(); }
  void finish_sq_deletion(QueueId id);
  EventLog& events() { return events_; }
  const EventLog& events() const { return events_; }
  /// The page that a Get Log Page asks for, whose AdminResult was log_page; nothing if it does not exist.
  std::optional<std::vector<std::byte>> read_log(const SubmissionEntry& sqe, const DriveHealth& health, SimTime now);
  /// Queues events of the health that the host has enabled.
  void note_health(const DriveHealth& health) {
    events_.note_health(health, static_cast<std::uint8_t>(features_[feature::async_event_configuration]));
  }
  /// As decode_io(). While the volatile cache is switched off, every write has FUA.
  Status decode(const SubmissionEntry& sqe, IoCommand& command);

  /// Builds a completion and takes the next entry of `cq` for it. Precondition: `cq` is not full.
  struct Post {
    PhysicalAddress address;
    CompletionEntry entry;
  };
  Post post(SubmissionQueue& sq, CompletionQueue& cq, CommandId cid, Status status, std::uint32_t dw0);
  /// Changes the status of `entry`, which says success, to `status`.
  void turn_to_error(CompletionEntry& entry, Status status);

  const ControllerStats& stats() const { return stats_; }

 private:
  bool accepts_doorbells() const { return csts_.rdy && cc_.en && !resetting_; }
  std::uint32_t read_dword(std::uint64_t offset) const;
  RegisterEffect write_cc(std::uint32_t value);
  RegisterEffect enable();
  RegisterEffect ring_doorbell(std::uint64_t offset, std::uint32_t value);
  [[gnu::noinline]] void refuse_doorbell(bool known);

  Status place(const SubmissionEntry& sqe, IoCommand& command);
  std::optional<std::vector<std::byte>> read_fdp_log(const SubmissionEntry& sqe, const DriveHealth& health,
                                                     SimTime now);
  AdminResult identify(const SubmissionEntry& sqe) const;
  AdminResult get_log_page(const SubmissionEntry& sqe) const;
  Status create_io_cq(const SubmissionEntry& sqe);
  Status create_io_sq(const SubmissionEntry& sqe);
  Status delete_io_cq(const SubmissionEntry& sqe);
  AdminResult delete_io_sq(const SubmissionEntry& sqe);
  AdminResult get_features(const SubmissionEntry& sqe) const;
  AdminResult set_features(const SubmissionEntry& sqe);
  Status check_new_queue(const SubmissionEntry& sqe, bool exists) const;
  bool any_io_queue() const;
  void clear();

  ControllerParams params_;
  Bytes bar_size_;
  Cap cap_;
  Cc cc_;
  Csts csts_;
  bool resetting_ = false;
  std::uint32_t aqa_ = 0;
  std::uint64_t asq_ = 0;
  std::uint64_t acq_ = 0;
  std::vector<std::unique_ptr<SubmissionQueue>> sqs_;  ///< by identifier
  std::vector<std::unique_ptr<CompletionQueue>> cqs_;
  std::uint16_t granted_queues_ = 0;          ///< pairs, by Set Features
  std::array<std::uint32_t, 12> features_{};  ///< by feature identifier
  ControllerStats stats_;
  EventLog events_{params_.firmware};
  std::unique_ptr<FdpAdmin> fdp_;  ///< null without Flexible Data Placement
};

inline std::uint32_t ControllerCore::ring_submission_queue(QueueId id, std::uint32_t tail) {
  SubmissionQueue* const queue = accepts_doorbells() ? sq(id) : nullptr;
  const bool known = queue != nullptr && !queue->deleting();
  const std::uint32_t entries = known ? queue->ring(tail) : 0;
  if (entries == 0) refuse_doorbell(known);
  return entries;
}

inline bool ControllerCore::ring_completion_queue(QueueId id, std::uint32_t head) {
  CompletionQueue* const queue = accepts_doorbells() ? cq(id) : nullptr;
  if (queue != nullptr && queue->ring(head)) return true;
  refuse_doorbell(queue != nullptr);
  return false;
}

inline Status ControllerCore::decode(const SubmissionEntry& sqe, IoCommand& command) {
  ++stats_.io_commands;
  const Status decoded = decode_io(sqe, params_, command);
  if (params_.volatile_cache && !write_cache_enabled()) [[unlikely]]
    if (auto* const write = std::get_if<BlockWrite>(&command.operation)) write->fua = true;
  if (fdp_ != nullptr && decoded.ok()) [[unlikely]]
    return place(sqe, command);
  return decoded;
}

inline void ControllerCore::turn_to_error(CompletionEntry& entry, Status status) {
  ++stats_.error_completions;
  entry.status = encode_status(status, entry.phase());
}

inline ControllerCore::Post ControllerCore::post(SubmissionQueue& sq, CompletionQueue& cq, CommandId cid, Status status,
                                                 std::uint32_t dw0) {
  if (!status.ok()) ++stats_.error_completions;
  const CompletionQueue::Slot slot = cq.take();
  return {slot.address,
          {.dw0 = dw0,
           .sqhd = static_cast<std::uint16_t>(sq.head()),
           .sqid = sq.id().value,
           .cid = cid.value,
           .status = encode_status(status, slot.phase)}};
}

}  // namespace csdsim::nvme
