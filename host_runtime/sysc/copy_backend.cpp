#include "host_runtime/sysc/copy_backend.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "nfc/sysc/sim_time.h"

namespace csdsim::host {

CopyBackend::CopyBackend(platform::SharedLinks& links, const LinkModel& model, Completed completed, OperationWork* work)
    : links_(links), model_(model), alone_(model, work), completed_(std::move(completed)), work_(work) {
  for (std::uint32_t gpu = 0; gpu < links.gpus(); ++gpu)
    for (const ResourceKind link : {ResourceKind::host_to_gpu, ResourceKind::gpu_to_host}) {
      const nvme::Route& route = links.copy_route(gpu, link == ResourceKind::host_to_gpu);
      if (!route.empty()) lanes_.emplace(Resource{link, gpu}, std::make_unique<Lane>(route, *this));
    }
}

std::optional<SimTime> CopyBackend::start(const Operation& op, SimTime now) {
  const auto* const work = std::get_if<LinkWork>(&op.work);
  const auto lane = lanes_.find(op.resource);
  if (work != nullptr) links_.count_copy(op.resource.index, op.resource.kind == ResourceKind::host_to_gpu, work->bytes);
  if (work == nullptr || work->bytes.value == 0 || lane == lanes_.end()) {
    const std::optional<SimTime> alone = alone_.start(op, now);
    return memory_ != nullptr && work != nullptr ? memory_->run(op.id, *alone, work->bytes) : alone;
  }
  if (work_ != nullptr) work_->perform(op);
  lane->second->copies.push_back({op.id, work->bytes.value});
  if (lane->second->copies.size() == 1) {
    update_demands();
    begin(*lane->second, now);
  }
  return std::nullopt;
}

SimTime CopyBackend::piece_time(const Lane& lane) const {
  const Bytes piece{std::min(lane.copies.front().left, nvme::kSharedPiece.value)};
  const SimTime alone = transfer_time(piece, model_.bandwidth);
  const double slowdown = memory_ != nullptr ? memory_->slowdown() : 1;
  if (slowdown <= 1) return alone;
  const double seconds = static_cast<double>(piece.value) * slowdown / lane.demand;
  return std::max(alone, SimTime{std::llround(seconds * 1e12)});
}

/// Busy copies divide the links that they share evenly.
void CopyBackend::update_demands() {
  if (memory_ == nullptr) return;
  std::map<const nvme::SharedLink*, int> busy;
  for (const auto& [link, lane] : lanes_)
    if (!lane->copies.empty())
      for (const nvme::Hop& hop : lane->route) ++busy[hop.link];
  for (const auto& [link, lane] : lanes_) {
    lane->demand = lane->copies.empty() ? 0 : static_cast<double>(model_.bandwidth.bytes_per_second);
    for (const nvme::Hop& hop : lane->route)
      if (lane->demand > 0)
        lane->demand = std::min(lane->demand, static_cast<double>(hop.rate.bytes_per_second) / busy.at(hop.link));
    memory_->set_demand(link, lane->demand);
  }
}

void CopyBackend::begin(Lane& lane, SimTime now) {
  lane.offered = now + model_.latency + piece_time(lane);
  lane.stage = 0;
  lane.due.set(lane.offered);
}

/// Called when the piece at the front is due at the next shared link, or has passed all of them.
void CopyBackend::serve(Lane& lane) {
  for (;;) {
    const SimTime now = sim_time_now();
    Copy& copy = lane.copies.front();
    const Bytes piece{std::min(copy.left, nvme::kSharedPiece.value)};
    while (lane.stage < lane.route.size()) {
      const nvme::Hop& hop = lane.route[lane.stage++];
      const SimTime passed = hop.link->pass(piece, hop.rate, now);
      if (passed > now) return lane.due.set(passed);
    }
    lane.stage = 0;
    copy.left -= piece.value;
    if (copy.left == 0) {
      const OperationId id = copy.id;
      lane.copies.pop_front();
      if (lane.copies.empty())
        update_demands();
      else
        begin(lane, now);
      return completed_(id, now);
    }
    // The GPU's own link is one piece ahead at most.
    lane.offered = std::max(lane.offered + piece_time(lane), now);
    if (lane.offered > now) return lane.due.set(lane.offered);
  }
}

}  // namespace csdsim::host
