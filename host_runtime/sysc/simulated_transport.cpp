#include "host_runtime/sysc/simulated_transport.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "nvme_if/spec/encode.h"
#include "simulation/sim_time.h"

namespace csdsim::host {

SimulatedTransport::SimulatedTransport(platform::Platform& platform, const SimulatedTransportConfig& config,
                                       std::function<void(const std::string&)> failed)
    : platform_(platform),
      config_(config),
      commands_(
          platform, 0, [this](OperationId id, SimTime, const DriveSplit&) { ended(id); }, std::move(failed)),
      link_(platform.shared_links(), config.link, [this](OperationId id, SimTime) { ended(id); }),
      blocks_(commands_, config.carries_data ? &contents_ : nullptr) {
  blocks_.on_lost([this](const Operation& op) { running_.at(op.id.value).lost = true; });
}

SimTime SimulatedTransport::now() const { return sim_time_now(); }

void SimulatedTransport::at(SimTime time, Done work) {
  commands_.at(time, [work = std::move(work)] { work(); });
}

void SimulatedTransport::copy(std::uint32_t gpu, CopyDirection direction, Bytes bytes, Done done) {
  Operation op;
  op.kind = OpKind::transfer;
  op.resource = {direction == CopyDirection::to_gpu ? ResourceKind::host_to_gpu : ResourceKind::gpu_to_host, gpu};
  op.work = LinkWork{.bytes = bytes, .payload = LinkPayload::kv};
  submit({.op = std::move(op), .done = [done = std::move(done)](bool) { done(); }});
}

void SimulatedTransport::read(const DriveRange& from, Place to, std::span<std::byte> bytes, ReadDone done) {
  submit({.op = access(OpKind::read_blocks, from, to), .done = std::move(done), .read = bytes});
}

void SimulatedTransport::write(const DriveRange& to, Place from, std::span<const std::byte> bytes, Done done) {
  submit({.op = access(OpKind::write_blocks, to, from),
          .done = [done = std::move(done)](bool) { done(); },
          .written = bytes});
}

void SimulatedTransport::discard(const DriveRange& range, Done done) {
  const std::uint64_t block = platform_.driver(range.drive.value).block_size().value;
  const nvme::DsmRange blocks{.length = static_cast<std::uint32_t>(range.size.value / block),
                              .slba = range.offset.value / block};
  const DriveCommands::Buffer buffer = commands_.allocate(Place::host(), Bytes{sizeof blocks});
  std::memcpy(buffer.bytes, &blocks, sizeof blocks);
  ++discards_;
  commands_.submit(range.drive.value, commands_.next_queue(range.drive.value),
                   nvme::encode_deallocate(nvme::NamespaceId{1}, 1), buffer.segment, "discarding blocks of a file",
                   [this, buffer, done = std::move(done)] {
                     commands_.release(buffer);
                     --discards_;
                     done();
                     tell_if_idle();
                   });
}

Operation SimulatedTransport::access(OpKind kind, const DriveRange& range, Place memory) const {
  const Bytes block = platform_.driver(range.drive.value).block_size();
  Operation op;
  op.kind = kind;
  op.resource = Resource::drive_blocks(range.drive);
  op.work = BlockWork{.extents = {{range.offset.value / block.value, range.size.value / block.value}},
                      .payload = LinkPayload::kv,
                      .memory = memory,
                      .chunk = config_.request,
                      .block_size = block};
  return op;
}

void SimulatedTransport::Contents::load_blocks(const Operation& op, std::size_t, std::span<std::byte> bytes) {
  std::ranges::copy(transport_.running_.at(op.id.value).written, bytes.begin());
}

void SimulatedTransport::Contents::store_blocks(const Operation& op, std::size_t, std::span<const std::byte> bytes) {
  const std::span<std::byte> to = transport_.running_.at(op.id.value).read;
  std::ranges::copy(bytes.first(to.size()), to.begin());
}

void SimulatedTransport::submit(Transfer transfer) {
  Lane& lane = lanes_[{transfer.op.resource, transfer.op.kind}];
  lane.waiting.push_back(std::move(transfer));
  start_next(lane);
}

void SimulatedTransport::start_next(Lane& lane) {
  if (lane.waiting.empty()) return;
  const std::uint32_t most = lane.waiting.front().op.kind == OpKind::transfer ? 1 : config_.in_flight;
  if (lane.running >= most) return;
  Transfer transfer = std::move(lane.waiting.front());
  lane.waiting.pop_front();
  start(lane, std::move(transfer));
}

void SimulatedTransport::start(Lane& lane, Transfer transfer) {
  ++lane.running;
  const OperationId id{next_++};
  transfer.op.id = id;
  transfer.lane = &lane;
  Transfer& running = running_.emplace(id.value, std::move(transfer)).first->second;
  OperationBackend& backend = running.op.kind == OpKind::transfer ? static_cast<OperationBackend&>(link_)
                                                                  : static_cast<OperationBackend&>(blocks_);
  const auto duration = backend.start(running.op, now());
  if (duration) at(now() + *duration, [this, id] { ended(id); });
}

void SimulatedTransport::ended(OperationId id) {
  const auto found = running_.find(id.value);
  Lane& lane = *found->second.lane;
  const ReadDone done = std::move(found->second.done);
  const bool lost = found->second.lost;
  running_.erase(found);
  --lane.running;
  start_next(lane);
  done(!lost);
  tell_if_idle();
}

void SimulatedTransport::tell_if_idle() {
  if (idle() && when_idle_) std::exchange(when_idle_, {})();
}

void SimulatedTransport::when_idle(Done then) {
  if (idle()) return then();
  when_idle_ = std::move(then);
}

}  // namespace csdsim::host
