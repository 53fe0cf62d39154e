#include "host_runtime/sysc/drive_block_backend.h"

#include <fmt/format.h>

#include "base/error.h"
#include "host_runtime/sysc/drive_feed_forward.h"

namespace csdsim::host {

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
  const bool write = op.kind == OpKind::write_blocks;
  if (op.resource.kind != ResourceKind::drive_blocks || work == nullptr || (!write && op.kind != OpKind::read_blocks))
    throw InternalError(fmt::format("{} is not an operation of the block namespace of {}",
                                    operation_name(op.kind, op.tag), resource_name(op.resource)));
  for (const Extent& extent : work->extents) check(op, extent);

  const auto running = commands_.begin_batch(op, now);
  const Bytes block = commands_.platform().driver(running->drive()).block_size();
  for (std::size_t index = 0; index < work->extents.size(); ++index) {
    const Extent& extent = work->extents[index];
    const DriveCommands::Buffer buffer = commands_.allocate(work->memory, block * extent.blocks);
    const std::span<std::byte> bytes(buffer.bytes, buffer.segment.length.value);
    if (write && data_ != nullptr) data_->load_blocks(op, index, bytes);
    commands_.submit_blocks(running, write ? nvme::nvm_opcode::write : nvme::nvm_opcode::read, extent, buffer.segment,
                            operation_name(op.kind, op.tag), [this, &op, write, index, buffer, bytes] {
                              if (!write && data_ != nullptr) data_->store_blocks(op, index, bytes);
                              commands_.release(buffer);
                            });
  }
  commands_.end_batch(running);
  return std::nullopt;
}

}  // namespace csdsim::host
