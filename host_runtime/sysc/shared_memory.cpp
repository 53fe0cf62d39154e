#include "host_runtime/sysc/shared_memory.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "nfc/sysc/sim_time.h"

namespace csdsim::host {

SharedMemory::SharedMemory(Bandwidth bandwidth, Completed completed)
    : bandwidth_(static_cast<double>(bandwidth.bytes_per_second)), completed_(std::move(completed)) {
  if (bandwidth.bytes_per_second == 0) throw UserError("host memory: bandwidth is 0");
}

std::optional<SimTime> SharedMemory::run(OperationId id, SimTime alone, Bytes bytes) {
  if (bytes.value == 0 || alone <= SimTime{}) return alone;
  advance();
  uses_.push_back({id, alone, static_cast<double>(bytes.value) / alone.seconds()});
  share_out();
  return std::nullopt;
}

void SharedMemory::set_demand(Resource link, double bytes_per_second) {
  advance();
  links_[link] = bytes_per_second;
  share_out();
}

void SharedMemory::advance() {
  const SimTime now = sim_time_now(), elapsed = now - std::exchange(advanced_, now);
  const SimTime progress = slowdown_ > 1 ? SimTime{std::llround(static_cast<double>(elapsed.ps) / slowdown_)} : elapsed;
  for (Use& use : uses_) use.left = std::max(SimTime{}, use.left - progress);
}

void SharedMemory::share_out() {
  double demand = 0;
  for (const auto& [link, rate] : links_) demand += rate;
  for (const Use& use : uses_) demand += use.demand;
  slowdown_ = std::max(1.0, demand / bandwidth_);
  due_.cancel();
  if (uses_.empty()) return;
  const SimTime left = std::ranges::min_element(uses_, {}, &Use::left)->left;
  due_.set(advanced_ + SimTime{static_cast<std::int64_t>(std::ceil(static_cast<double>(left.ps) * slowdown_))});
}

void SharedMemory::end_uses() {
  advance();
  std::vector<OperationId> ended;
  std::erase_if(uses_, [&](const Use& use) {
    if (use.left > SimTime{}) return false;
    ended.push_back(use.id);
    return true;
  });
  share_out();
  const SimTime now = sim_time_now();
  for (const OperationId id : ended) completed_(id, now);
}

std::optional<SimTime> SharedMemoryBackend::start(const Operation& op, SimTime now) {
  const std::optional<SimTime> alone = alone_.start(op, now);
  const auto* const work = std::get_if<ComputeWork>(&op.work);
  return alone && work != nullptr ? memory_.run(op.id, *alone, work->bytes()) : alone;
}

}  // namespace csdsim::host
