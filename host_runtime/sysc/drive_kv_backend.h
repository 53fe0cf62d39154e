// Drive operations of a plan as NVMe commands.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "host_runtime/core/carried/operation_data.h"
#include "host_runtime/core/planner/executor.h"
#include "platform/buffer_pool.h"
#include "platform/platform.h"

namespace csdsim::host {

/// How much of a drive operation one command covers at most; mdts may cut it further.
enum class Granularity : std::uint8_t { layer_mini_batch, sequence, head };

/// Encodes append_kv and attend operations as vendor commands whose buffers lie in GPU memory (peer to peer) or in host
/// memory, cut to the drive's mdts: an append by heads, then by tokens; an attend by sequences, then by heads. An
/// operation ends with its last command.
class DriveBackend final : public host::OperationBackend {
 public:
  using Completed = std::function<void(host::OperationId, SimTime, const host::DriveSplit&)>;
  using Failed = std::function<void(const std::string&)>;

  struct Shape {
    std::uint32_t kv_heads = 0;
    std::uint32_t group = 1;  ///< query heads a KV head
    std::uint32_t head_dim = 0;
    std::uint32_t layers = 0;
    std::uint32_t max_tokens = 0;  ///< longest sequence: a hint for the drive's layout
    bool component_major = true;   ///< keys are wanted in embedding pages too (SparF)
    Granularity granularity = Granularity::layer_mini_batch;
    std::uint16_t queues_of_others = 0;  ///< last I/O queues of a drive, which others use
    bool through_host = false;           ///< buffers lie in host memory
  };

  /// `data` is null in timing runs. `completed` is called in simulated time; `failed` with a message when a drive
  /// refuses a command.
  DriveBackend(platform::Platform& platform, const Shape& shape, OperationData* data, Completed completed,
               Failed failed);

  /// Creates sequences 0..count-1 on every drive, each with the drive's share of the heads; `done` when all are there.
  void create_sequences(std::uint32_t count, std::function<void()> done);

  /// Frees them again.
  void free_sequences(std::uint32_t count, std::function<void()> done);

  std::optional<SimTime> start(const host::Operation& op, SimTime now) override;

  /// KV heads that a drive holds.
  host::HeadRange shard(std::uint32_t drive) const { return shards_.at(drive); }

 private:
  struct Running;
  struct AttendPart;

  void start_append(const host::Operation& op, const std::shared_ptr<Running>& running);
  void start_attend(const host::Operation& op, const std::shared_ptr<Running>& running);
  void submit_attend(const host::Operation& op, const std::shared_ptr<Running>& running,
                     const std::vector<AttendPart>& parts);
  nvme::QueueId next_queue(std::uint32_t drive);
  void submit(std::uint32_t drive, nvme::QueueId queue, const nvme::SubmissionEntry& command, nvme::Segment buffer,
              const std::string& what, std::function<void()> done);
  void command_done(const std::shared_ptr<Running>& running);
  void for_all_sequences(
      std::uint32_t count, const std::string& what,
      const std::function<nvme::SubmissionEntry(std::uint32_t drive, std::uint32_t sequence)>& encode,
      std::function<void()> done);
  std::byte* bytes(nvme::Segment buffer);

  platform::Platform& platform_;
  Shape shape_;
  nvme::Segment memory_;  ///< where the buffers are
  std::byte* base_;       ///< its bytes
  OperationData* data_;
  Completed completed_;
  Failed failed_;
  std::vector<host::HeadRange> shards_;
  platform::BufferPool buffers_;
  std::uint16_t next_queue_ = 0;
};

}  // namespace csdsim::host
