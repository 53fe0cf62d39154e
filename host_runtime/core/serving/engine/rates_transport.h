// Links and drives as a table of rates: no flash, no commands. For tests, and for runs where a simulation of the drives
// takes too long.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "host_runtime/core/serving/engine/kv_transport.h"

namespace csdsim::host {

struct TransportRates {
  Bandwidth copy{};  ///< rate per GPU and direction
  SimTime copy_latency{};
  Bandwidth read{}, write{};  ///< rates per drive
  SimTime read_latency{}, write_latency{};
};

/// Each link direction, and the reads and the writes of each drive, are a queue of their own: a transfer begins when
/// the one before has passed, and ends a latency after it has passed. A bandwidth of 0 takes no time. Drives have what
/// was written when the write has ended.
class RatesTransport : public KvTransport {
 public:
  explicit RatesTransport(const TransportRates& rates) : rates_(rates) {}

  SimTime now() const override { return now_; }
  void at(SimTime time, Done work) override { events_.emplace(std::pair{time, next_++}, std::move(work)); }
  void copy(std::uint32_t gpu, CopyDirection direction, Bytes bytes, Done done) override;
  void read(const DriveRange& from, Place to, std::span<std::byte> bytes, ReadDone done) override;
  void write(const DriveRange& to, Place from, std::span<const std::byte> bytes, Done done) override;
  /// Takes no time.
  void discard(const DriveRange&, Done done) override { at(now_, std::move(done)); }

  /// Runs until nothing is left to be done, or until stop().
  void run();
  void stop() { stopped_ = true; }

 private:
  enum class Queue : std::uint8_t { to_gpu, from_gpu, reads, writes };
  void pass(Queue queue, std::uint32_t index, Bytes bytes, Bandwidth rate, SimTime latency, Done done);

  TransportRates rates_;
  SimTime now_;
  bool stopped_ = false;
  std::uint64_t next_ = 0;
  std::map<std::pair<SimTime, std::uint64_t>, Done> events_;
  std::map<std::pair<Queue, std::uint32_t>, SimTime> free_at_;
  /// Calls `copy` with the pieces of a range: with bytes of a chunk of the drive, and their place in the range. Throws
  /// InternalError if a chunk was never written and is not written now.
  void in_chunks(const DriveRange& range, bool writes,
                 const std::function<void(std::span<std::byte>, std::size_t)>& copy);

  static constexpr std::uint64_t kChunk = 65'536;
  std::map<std::pair<DriveIndex, std::uint64_t>, std::vector<std::byte>> contents_;  ///< [drive, offset / kChunk]
};

}  // namespace csdsim::host
