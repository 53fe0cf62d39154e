// What the backends of a drive's two namespaces share: command buffers, queues, and the time that an operation took.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "host_runtime/core/planner/executor.h"
#include "platform/buffer_pool.h"
#include "platform/platform.h"

namespace csdsim::host {

/// Buffers lie in GPU memory (peer to peer) or in host memory. One object serves all backends of a platform: they share
/// the memories.
class DriveCommands {
 public:
  using Completed = std::function<void(OperationId, SimTime, const DriveSplit&)>;
  using Failed = std::function<void(const std::string&)>;

  /// `completed` is called in simulated time; `failed` with a message when a drive refuses a command. The last
  /// `queues_of_others` I/O queues of each drive are left alone.
  DriveCommands(platform::Platform& platform, std::uint16_t queues_of_others, Completed completed, Failed failed);

  /// An operation that waits for its commands.
  class Running;
  /// Starts counting the commands of an operation; end_command() has to be called once more than there are commands,
  /// for the submission itself.
  std::shared_ptr<Running> begin(const Operation& op, SimTime now);
  void end_command(const std::shared_ptr<Running>& running);
  /// Keeps the operation running until one more end_command().
  static void hold(const std::shared_ptr<Running>& running);

  struct Buffer {
    nvme::Segment segment;
    std::byte* bytes = nullptr;
    BufferMemory memory = BufferMemory::gpu;
  };
  /// UserError when the memory is full.
  Buffer allocate(BufferMemory memory, Bytes size);
  void release(const Buffer& buffer);

  nvme::QueueId next_queue(std::uint32_t drive);

  /// Submits a command of a KV namespace. `done` is called when it succeeded.
  void submit(std::uint32_t drive, nvme::QueueId queue, const nvme::SubmissionEntry& command, nvme::Segment buffer,
              const std::string& what, std::function<void()> done);
  /// The same as a part of an operation.
  void submit(const std::shared_ptr<Running>& running, nvme::QueueId queue, const nvme::SubmissionEntry& command,
              const Buffer& buffer, const std::string& what, std::function<void()> done);
  /// Reads or writes an extent of the block namespace as a part of an operation.
  void submit_blocks(const std::shared_ptr<Running>& running, std::uint8_t opcode, const Extent& extent,
                     nvme::Segment buffer, const std::string& what, std::function<void()> done);

  platform::Platform& platform() { return platform_; }

 private:
  void report(std::uint32_t drive, const std::string& what, nvme::Status status);

  platform::Platform& platform_;
  std::uint16_t queues_of_others_;
  Completed completed_;
  Failed failed_;
  platform::BufferPool gpu_buffers_;
  platform::BufferPool host_buffers_;
  std::uint16_t next_queue_ = 0;
};

class DriveCommands::Running {
 public:
  std::uint32_t drive() const { return drive_; }

 private:
  friend class DriveCommands;
  OperationId id_;
  std::uint32_t drive_ = 0;
  std::size_t commands_ = 0;
  csd_model::ActivitySplit activity_;  ///< of the drive, when the operation started
  SimTime link_busy_;                  ///< both directions, when the operation started
};

}  // namespace csdsim::host
