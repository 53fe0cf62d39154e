#include "host_runtime/sysc/simulated_transport.h"

#include <utility>

#include "simulation/sim_time.h"

namespace csdsim::host {

SimulatedTransport::SimulatedTransport(platform::Platform& platform, const SimulatedTransportConfig& config,
                                       std::function<void(const std::string&)> failed)
    : platform_(platform),
      config_(config),
      commands_(
          platform, 0, [this](OperationId id, SimTime, const DriveSplit&) { ended(id); }, std::move(failed)),
      link_(platform.shared_links(), config.link, [this](OperationId id, SimTime) { ended(id); }),
      blocks_(commands_, nullptr) {}

SimTime SimulatedTransport::now() const { return sim_time_now(); }

void SimulatedTransport::at(SimTime time, Done work) {
  commands_.at(time, [work = std::move(work)] { work(); });
}

void SimulatedTransport::copy(std::uint32_t gpu, CopyDirection direction, Bytes bytes, Done done) {
  Operation op;
  op.kind = OpKind::transfer;
  op.resource = {direction == CopyDirection::to_gpu ? ResourceKind::host_to_gpu : ResourceKind::gpu_to_host, gpu};
  op.work = LinkWork{.bytes = bytes, .payload = LinkPayload::kv};
  submit(lanes_[{op.resource, op.kind}], std::move(op), std::move(done));
}

void SimulatedTransport::read(const DriveRange& from, Place to, Done done) {
  access(OpKind::read_blocks, from, to, std::move(done));
}

void SimulatedTransport::write(const DriveRange& to, Place from, Done done) {
  access(OpKind::write_blocks, to, from, std::move(done));
}

void SimulatedTransport::access(OpKind kind, const DriveRange& range, Place memory, Done done) {
  const Bytes block = platform_.driver(range.drive.value).block_size();
  Operation op;
  op.kind = kind;
  op.resource = Resource::drive_blocks(range.drive);
  op.work = BlockWork{.extents = {{range.offset.value / block.value, range.size.value / block.value}},
                      .payload = LinkPayload::kv,
                      .memory = memory,
                      .chunk = config_.request,
                      .block_size = block};
  submit(lanes_[{op.resource, op.kind}], std::move(op), std::move(done));
}

void SimulatedTransport::submit(Lane& lane, Operation op, Done done) {
  lane.waiting.emplace_back(std::move(op), std::move(done));
  start_next(lane);
}

void SimulatedTransport::start_next(Lane& lane) {
  if (lane.waiting.empty()) return;
  const std::uint32_t most = lane.waiting.front().first.kind == OpKind::transfer ? 1 : config_.in_flight;
  if (lane.running >= most) return;
  auto [op, done] = std::move(lane.waiting.front());
  lane.waiting.pop_front();
  start(lane, std::move(op), std::move(done));
}

void SimulatedTransport::start(Lane& lane, Operation op, Done done) {
  ++lane.running;
  op.id = OperationId{next_++};
  const OperationId id = op.id;
  Running& running = running_.emplace(id.value, Running{std::move(op), std::move(done), &lane}).first->second;
  OperationBackend& backend = running.op.kind == OpKind::transfer ? static_cast<OperationBackend&>(link_)
                                                                  : static_cast<OperationBackend&>(blocks_);
  const auto duration = backend.start(running.op, now());
  if (duration) at(now() + *duration, [this, id] { ended(id); });
}

void SimulatedTransport::ended(OperationId id) {
  const auto found = running_.find(id.value);
  Lane& lane = *found->second.lane;
  const Done done = std::move(found->second.done);
  running_.erase(found);
  --lane.running;
  start_next(lane);
  done();
  if (running_.empty() && when_idle_) std::exchange(when_idle_, {})();
}

void SimulatedTransport::when_idle(Done then) {
  if (running_.empty()) return then();
  when_idle_ = std::move(then);
}

}  // namespace csdsim::host
