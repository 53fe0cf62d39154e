#include "host_runtime/core/serving/engine/rates_transport.h"

#include <algorithm>

#include "base/error.h"

namespace csdsim::host {

void RatesTransport::pass(Queue queue, std::uint32_t index, Bytes bytes, Bandwidth rate, SimTime latency, Done done) {
  SimTime& free = free_at_[{queue, index}];
  free = std::max(free, now_) + (rate.bytes_per_second > 0 ? transfer_time(bytes, rate) : SimTime{});
  at(free + latency, std::move(done));
}

void RatesTransport::copy(std::uint32_t gpu, CopyDirection direction, Bytes bytes, Done done) {
  pass(direction == CopyDirection::to_gpu ? Queue::to_gpu : Queue::from_gpu, gpu, bytes, rates_.copy,
       rates_.copy_latency, std::move(done));
}

void RatesTransport::read(const DriveRange& from, Place, std::span<std::byte> bytes, ReadDone done) {
  pass(Queue::reads, from.drive.value, from.size, rates_.read, rates_.read_latency,
       [this, from, bytes, done = std::move(done)] {
         const std::vector<std::byte>& drive = contents_[from.drive];
         if (!bytes.empty() && drive.size() < from.offset.value + from.size.value)
           throw InternalError("a read of what was never written");
         if (!bytes.empty())
           std::copy_n(drive.begin() + static_cast<std::ptrdiff_t>(from.offset.value), from.size.value, bytes.begin());
         done(true);
       });
}

void RatesTransport::write(const DriveRange& to, Place, std::span<const std::byte> bytes, Done done) {
  pass(Queue::writes, to.drive.value, to.size, rates_.write, rates_.write_latency,
       [this, to, bytes, done = std::move(done)] {
         std::vector<std::byte>& drive = contents_[to.drive];
         if (!bytes.empty()) {
           drive.resize(std::max<std::size_t>(drive.size(), to.offset.value + to.size.value));
           std::ranges::copy(bytes, drive.begin() + static_cast<std::ptrdiff_t>(to.offset.value));
         }
         done();
       });
}

void RatesTransport::run() {
  while (!events_.empty() && !stopped_) {
    auto event = events_.extract(events_.begin());
    now_ = event.key().first;
    event.mapped()();
  }
}

}  // namespace csdsim::host
