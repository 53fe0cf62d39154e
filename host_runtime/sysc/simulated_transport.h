// Moves K and V of a serving engine over simulated links and drives.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <unordered_map>
#include <vector>

#include "host_runtime/core/serving/engine/kv_transport.h"
#include "host_runtime/sysc/copy_backend.h"
#include "host_runtime/sysc/drive_block_backend.h"
#include "host_runtime/sysc/drive_commands.h"

namespace csdsim::host {

struct SimulatedTransportConfig {
  LinkModel link;               ///< between host and each GPU
  Bytes request;                ///< largest request to a drive; 0: as large as a block of the tier
  std::uint32_t in_flight = 8;  ///< transfers that a drive has at a time, reads and writes each
};

/// Every copy, read and write is an operation of the backend that generations use, so that they contend for links,
/// channels and planes alike. Copies of a GPU and direction follow one another; a drive has `in_flight` reads and as
/// many writes at a time, in the order of the calls.
class SimulatedTransport final : public KvTransport {
 public:
  /// `failed` is called with a message when a drive rejects a command. `platform` must outlive this.
  SimulatedTransport(platform::Platform& platform, const SimulatedTransportConfig& config,
                     std::function<void(const std::string&)> failed);

  SimTime now() const override;
  void at(SimTime time, Done work) override;
  void copy(std::uint32_t gpu, CopyDirection direction, Bytes bytes, Done done) override;
  void read(const DriveRange& from, Place to, Done done) override;
  void write(const DriveRange& to, Place from, Done done) override;

  /// Calls `then` when nothing is under way: at once, or when the last transfer has ended.
  void when_idle(Done then);

 private:
  struct Lane {
    std::uint32_t running = 0;
    std::deque<std::pair<Operation, Done>> waiting;
  };
  struct Running {
    Operation op;
    Done done;
    Lane* lane = nullptr;
  };
  void submit(Lane& lane, Operation op, Done done);
  void start_next(Lane& lane);
  void start(Lane& lane, Operation op, Done done);
  void ended(OperationId id);
  void access(OpKind kind, const DriveRange& range, Place memory, Done done);

  platform::Platform& platform_;
  SimulatedTransportConfig config_;
  DriveCommands commands_;
  CopyBackend link_;
  DriveBlockBackend blocks_;
  std::map<std::pair<Resource, OpKind>, Lane> lanes_;
  std::unordered_map<std::uint64_t, Running> running_;  ///< by id; operations stay where they are
  std::uint64_t next_ = 0;
  Done when_idle_;
};

}  // namespace csdsim::host
