#include "host_runtime/core/serving/engine/rates_transport.h"

#include <algorithm>

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

void RatesTransport::read(const DriveRange& from, Place, Done done) {
  pass(Queue::reads, from.drive.value, from.size, rates_.read, rates_.read_latency, std::move(done));
}

void RatesTransport::write(const DriveRange& to, Place, Done done) {
  pass(Queue::writes, to.drive.value, to.size, rates_.write, rates_.write_latency, std::move(done));
}

void RatesTransport::run() {
  while (!events_.empty()) {
    auto event = events_.extract(events_.begin());
    now_ = event.key().first;
    event.mapped()();
  }
}

}  // namespace csdsim::host
