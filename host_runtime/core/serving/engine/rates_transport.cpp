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

void RatesTransport::in_chunks(const DriveRange& range, bool writes,
                               const std::function<void(std::span<std::byte>, std::size_t)>& copy) {
  for (std::uint64_t done = 0; done < range.size.value;) {
    const std::uint64_t at = range.offset.value + done, skip = at % kChunk;
    const std::uint64_t size = std::min(kChunk - skip, range.size.value - done);
    const auto [chunk, made] = contents_.try_emplace({range.drive, at / kChunk});
    if (made && !writes) throw InternalError("a read of what was never written");
    chunk->second.resize(kChunk);
    copy(std::span(chunk->second).subspan(skip, size), done);
    done += size;
  }
}

void RatesTransport::read(const DriveRange& from, Place, std::span<std::byte> bytes, ReadDone done) {
  pass(Queue::reads, from.drive.value, from.size, rates_.read, rates_.read_latency,
       [this, from, bytes, done = std::move(done)] {
         if (!bytes.empty())
           in_chunks(from, false, [bytes](std::span<std::byte> some, std::size_t at) {
             std::ranges::copy(some, bytes.begin() + static_cast<std::ptrdiff_t>(at));
           });
         done(true);
       });
}

void RatesTransport::write(const DriveRange& to, Place, std::span<const std::byte> bytes, Done done) {
  pass(Queue::writes, to.drive.value, to.size, rates_.write, rates_.write_latency,
       [this, to, bytes, done = std::move(done)] {
         if (!bytes.empty())
           in_chunks(to, true, [bytes](std::span<std::byte> some, std::size_t at) {
             std::ranges::copy(bytes.subspan(at, some.size()), some.begin());
           });
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
