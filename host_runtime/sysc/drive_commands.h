// The part that the backends of the KV and the block namespace share: command buffers, queues, and operation times.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "csd_model/firmware/timed_work.h"
#include "host_runtime/core/plan/executor.h"
#include "platform/buffer_pool.h"
#include "platform/platform.h"

namespace csdsim::host {

/// Submits commands to the drives of a platform. Buffers are in the memory of a GPU (peer to peer) or of the host. All
/// backends of a platform share one object, because they share these memories.
class DriveCommands {
 public:
  using Completed = std::function<void(OperationId, SimTime, const DriveSplit&)>;
  using Failed = std::function<void(const std::string&)>;

  /// `completed` is called at the simulated time of the completion; `failed` is called with a message when a drive
  /// rejects a command. The last `queues_of_others` I/O queues of each drive are not used.
  DriveCommands(platform::Platform& platform, std::uint16_t queues_of_others, Completed completed, Failed failed);

  /// An operation that waits for its commands.
  class Running;
  /// Starts to count the commands of an operation. Call end_command() once per command, and once more after the last
  /// submission.
  std::shared_ptr<Running> begin(const Operation& op, SimTime now);
  void end_command(const std::shared_ptr<Running>& running);
  /// The same for an operation that submits all its commands before end_batch(), and no other operation of the drive
  /// does meanwhile. Time up to the end of the host's CPU work for them counts as DriveSplit::host where the drive is
  /// idle. If the platform does not overlap host and drive, the drive gets the commands when this work has ended.
  std::shared_ptr<Running> begin_batch(const Operation& op, SimTime now);
  /// Call it after the last submission, in place of the last end_command().
  void end_batch(const std::shared_ptr<Running>& running);
  /// Keeps the operation running until one more end_command().
  static void hold(const std::shared_ptr<Running>& running);

  struct Buffer {
    nvme::Segment segment;
    std::byte* bytes = nullptr;
    Place memory = Place::gpu();
  };
  /// Throws UserError when the memory is full.
  Buffer allocate(Place memory, Bytes size);
  void release(const Buffer& buffer);

  nvme::QueueId next_queue(std::uint32_t drive);

  /// Submits a command of a KV namespace that reads no pages. `done` is called when the command succeeds.
  void submit(std::uint32_t drive, nvme::QueueId queue, const nvme::SubmissionEntry& command, nvme::Segment buffer,
              const std::string& what, std::function<void()> done);
  /// Called in place of `done` with the number of pages that cannot be read back.
  using Lost = std::function<void(std::uint32_t pages)>;
  /// The same as a part of an operation. Without `lost`, lost pages are a failure.
  void submit(const std::shared_ptr<Running>& running, nvme::QueueId queue, const nvme::SubmissionEntry& command,
              const Buffer& buffer, const std::string& what, std::function<void()> done, const Lost& lost = {});
  /// Reports a command that has lost `pages` pages, whose first records are at `records`.
  void report_lost(const Running& running, const std::string& what, const std::byte* records, std::uint32_t pages);
  /// Calls back at a time.
  void at(SimTime time, csd_model::TimedWork::Work work) { host_work_.at(time, std::move(work)); }
  /// Reads or writes an extent of the block namespace as a part of an operation. `lost` is called in place of `done` if
  /// it cannot be read back; without it this is a failure.
  void submit_blocks(const std::shared_ptr<Running>& running, std::uint8_t opcode, const Extent& extent,
                     nvme::Segment buffer, const std::string& what, std::function<void()> done,
                     const std::function<void()>& lost = {});

  /// Writes an extent of the block namespace as a part of no operation. `what` is its name in messages.
  void write_in_background(std::uint32_t drive, const Extent& extent, nvme::Segment buffer, const std::string& what,
                           std::function<void()> done);

  platform::Platform& platform() { return platform_; }

 private:
  platform::BufferPool& pool(Place memory) { return memory.in_host() ? host_buffers_ : gpu_buffers_.at(memory.index); }
  /// Calls `done` if the command has succeeded, and reports it otherwise. `buffer`: of a command that puts records of
  /// lost pages there; null for others. With `lost`, lost pages are no failure.
  nvme::NvmeDriver::Callback completion(std::uint32_t drive, const std::string& what, std::function<void()> done,
                                        const std::byte* buffer = nullptr, const Lost& lost = {});
  void submit_extent(std::uint32_t drive, std::uint8_t opcode, const Extent& extent, nvme::Segment buffer,
                     nvme::NvmeDriver::Callback done);
  void report(std::uint32_t drive, const std::string& what, const nvme::CompletionEntry& cqe, const std::byte* buffer);
  void host_has_submitted(Running& running, SimTime now);

  platform::Platform& platform_;
  std::uint16_t queues_of_others_;
  Completed completed_;
  Failed failed_;
  std::vector<platform::BufferPool> gpu_buffers_;  ///< [gpu]
  platform::BufferPool host_buffers_;
  std::uint16_t next_queue_ = 0;
  csd_model::TimedWork host_work_;  ///< ends of the work of host and GPU
};

class DriveCommands::Running {
 public:
  std::uint32_t drive() const { return drive_; }
  /// The operation waits for so long for a GPU that computes lost K and V again.
  void waits_for_gpu(SimTime time) { gpu_ += time; }

 private:
  friend class DriveCommands;
  OperationId id_;
  SimTime began_;
  SimTime gpu_;
  std::uint32_t drive_ = 0;
  std::size_t commands_ = 0;
  csd_model::ActivitySplit activity_;  ///< activity of the drive when the operation started
  SimTime host_;                       ///< the drive was idle while the host worked on the operation's batch
  SimTime host_io_;                    ///< no station of the drive worked meanwhile
  SimTime link_busy_;                  ///< busy time of both link directions when this work had ended
};

}  // namespace csdsim::host
