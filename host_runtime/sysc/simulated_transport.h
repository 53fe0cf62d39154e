// Moves K and V of a serving engine over simulated links and drives.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <unordered_map>
#include <vector>

#include "host_runtime/core/carried/operation_data.h"
#include "host_runtime/core/serving/engine/kv_transport.h"
#include "host_runtime/sysc/copy_backend.h"
#include "host_runtime/sysc/drive_block_backend.h"
#include "host_runtime/sysc/drive_commands.h"

namespace csdsim::host {

struct SimulatedTransportConfig {
  LinkModel link;               ///< between host and each GPU
  Bytes request;                ///< largest request to a drive; 0: as large as a block of the tier
  std::uint32_t in_flight = 8;  ///< transfers that a drive has at a time, reads and writes each
  bool carries_data = false;    ///< as the drives do
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
  void read(const DriveRange& from, Place to, std::span<std::byte> bytes, ReadDone done) override;
  void write(const DriveRange& to, Place from, std::span<const std::byte> bytes, Done done) override;
  void discard(const DriveRange& range, Done done) override;

  /// Calls `then` when nothing is under way: at once, or when the last transfer has ended.
  void when_idle(Done then);

 private:
  struct Lane;
  struct Transfer {
    Operation op;
    ReadDone done;
    std::span<const std::byte> written = {};  ///< empty where nothing is carried
    std::span<std::byte> read = {};
    Lane* lane = nullptr;
    bool lost = false;
  };
  struct Lane {
    std::uint32_t running = 0;
    std::deque<Transfer> waiting = {};
  };
  /// The bytes of transfers, for the backend of the drives.
  class Contents final : public OperationData {
   public:
    explicit Contents(SimulatedTransport& transport) : transport_(transport) {}
    void perform(const Operation&) override {}
    void load_blocks(const Operation& op, std::size_t index, std::span<std::byte> bytes) override;
    void store_blocks(const Operation& op, std::size_t index, std::span<const std::byte> bytes) override;

   private:
    SimulatedTransport& transport_;
  };

  void submit(Transfer transfer);
  void start_next(Lane& lane);
  void start(Lane& lane, Transfer transfer);
  void ended(OperationId id);
  bool idle() const { return running_.empty() && discards_ == 0; }
  void tell_if_idle();
  Operation access(OpKind kind, const DriveRange& range, Place memory) const;

  platform::Platform& platform_;
  SimulatedTransportConfig config_;
  DriveCommands commands_;
  CopyBackend link_;
  Contents contents_{*this};
  DriveBlockBackend blocks_;
  std::map<std::pair<Resource, OpKind>, Lane> lanes_;
  std::unordered_map<std::uint64_t, Transfer> running_;  ///< by id; operations stay where they are
  std::uint64_t next_ = 0;
  std::uint64_t discards_ = 0;  ///< that have not ended
  Done when_idle_;
};

}  // namespace csdsim::host
