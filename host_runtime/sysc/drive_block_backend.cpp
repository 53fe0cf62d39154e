#include "host_runtime/sysc/drive_block_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "host_runtime/sysc/drive_feed_forward.h"

namespace csdsim::host {

/// A running operation.
struct DriveBlockBackend::Batch {
  const Operation& op;
  const BlockWork& work;
  std::shared_ptr<DriveCommands::Running> running;
  Bytes block;             ///< block size of the namespace
  std::uint64_t most = 0;  ///< blocks of a request
  struct Buffer {
    DriveCommands::Buffer memory;
    std::uint64_t left = 0;  ///< blocks that have not arrived
    bool lost = false;
  };
  std::vector<Buffer> buffers = {};  ///< [extent]
  std::size_t next = 0;              ///< extent of the next request,
  std::uint64_t done = 0;            ///< and its blocks before that request

  bool write() const { return op.kind == OpKind::write_blocks; }
  std::span<std::byte> bytes(std::size_t index) const {
    return {buffers[index].memory.bytes, buffers[index].memory.segment.length.value};
  }
};

void DriveBlockBackend::check(const Operation& op, const Extent& extent) {
  const std::uint64_t blocks = commands_.platform().driver(op.resource.index).name_space().nsze;
  if (extent.blocks == 0 || extent.first > blocks || extent.blocks > blocks - extent.first)
    throw InternalError(fmt::format("{}: {} blocks from {} on, in a namespace of {}", operation_name(op.kind, op.tag),
                                    extent.blocks, extent.first, blocks));
}

std::optional<SimTime> DriveBlockBackend::start(const Operation& op, SimTime now) {
  if (op.resource.kind == ResourceKind::drive_blocks && op.kind == OpKind::feed_forward &&
      std::holds_alternative<NeuronWork>(op.work))
    return start_feed_forward(commands_, data_, op, now);
  const auto* work = std::get_if<BlockWork>(&op.work);
  if (op.resource.kind != ResourceKind::drive_blocks || work == nullptr ||
      (op.kind != OpKind::write_blocks && op.kind != OpKind::read_blocks))
    throw InternalError(fmt::format("{} is not an operation of the block namespace of {}",
                                    operation_name(op.kind, op.tag), resource_name(op.resource)));
  for (const Extent& extent : work->extents) check(op, extent);
  const Bytes block = commands_.platform().driver(op.resource.index).block_size();
  if (work->chunk.value % block.value != 0)
    throw InternalError(fmt::format("{}: requests of {} B are not whole blocks of {} B",
                                    operation_name(op.kind, op.tag), work->chunk.value, block.value));
  if (work->extents.empty()) return SimTime{};

  const auto running = commands_.begin_batch(op, now);
  const std::uint64_t most = work->chunk.value == 0 ? ~std::uint64_t{0} : work->chunk.value / block.value;
  const auto batch = std::make_shared<Batch>(Batch{op, *work, running, block, most});
  batch->buffers.resize(work->extents.size());
  for (std::uint32_t i = 0; work->outstanding == 0 || i < work->outstanding; ++i) {
    if (batch->next == work->extents.size()) break;
    submit_next(batch);
  }
  commands_.end_batch(running);
  return std::nullopt;
}

void DriveBlockBackend::submit_next(const BatchPtr& batch) {
  if (batch->next == batch->work.extents.size()) return;
  const std::size_t index = batch->next;
  const Extent& extent = batch->work.extents[index];
  const std::uint64_t first = extent.first + batch->done;
  // A long extent is cut at multiples of the chunk: two requests would wait for the same page of the flash otherwise.
  const std::uint64_t most = extent.blocks <= batch->most ? extent.blocks : batch->most - first % batch->most;
  const Extent part{first, std::min(extent.blocks - batch->done, most)};
  if (batch->done == 0) {
    Batch::Buffer& buffer = batch->buffers[index];
    buffer = {commands_.allocate(batch->work.memory, batch->block * extent.blocks), extent.blocks};
    if (batch->write() && data_ != nullptr) data_->load_blocks(batch->op, index, batch->bytes(index));
  }
  batch->done += part.blocks;
  if (batch->done == extent.blocks) {
    ++batch->next;
    batch->done = 0;
  }
  submit(batch, index, part);
}

void DriveBlockBackend::submit(const BatchPtr& batch, std::size_t index, Extent part) {
  nvme::Segment segment = batch->buffers[index].memory.segment;
  const Bytes offset = batch->block * (part.first - batch->work.extents[index].first);
  segment.address.value += offset.value;
  segment.length = batch->block * part.blocks;
  const auto done = [this, batch, index, part] { part_done(batch, index, part.blocks); };
  std::function<void()> lost;
  if (lost_ && !batch->write())
    lost = [this, batch, index, part] {
      batch->buffers[index].lost = true;
      lost_(batch->op);
      part_done(batch, index, part.blocks);
    };
  commands_.submit_blocks(batch->running, batch->write() ? nvme::nvm_opcode::write : nvme::nvm_opcode::read, part,
                          segment, operation_name(batch->op.kind, batch->op.tag), done, lost);
}

void DriveBlockBackend::part_done(const BatchPtr& batch, std::size_t index, std::uint64_t blocks) {
  Batch::Buffer& buffer = batch->buffers[index];
  buffer.left -= blocks;
  if (buffer.left == 0) extent_done(*batch, index);
  submit_next(batch);
}

void DriveBlockBackend::extent_done(Batch& batch, std::size_t index) {
  if (!batch.write() && data_ != nullptr && !batch.buffers[index].lost)
    data_->store_blocks(batch.op, index, batch.bytes(index));
  commands_.release(batch.buffers[index].memory);
}

}  // namespace csdsim::host
