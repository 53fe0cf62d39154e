#include "host_runtime/core/plan/operation.h"

#include <fmt/format.h>

#include <type_traits>

#include "base/error.h"

namespace csdsim::host {

std::string resource_name(Resource resource) {
  switch (resource.kind) {
    case ResourceKind::gpu:
      return gpu_name(resource.index);
    case ResourceKind::host:
      return "host";
    case ResourceKind::host_to_gpu:
      return "link host to " + gpu_name(resource.index);
    case ResourceKind::gpu_to_host:
      return fmt::format("link {} to host", gpu_name(resource.index));
    case ResourceKind::drive_kv:
      return fmt::format("drive {}", resource.index);
    case ResourceKind::drive_blocks:
      return fmt::format("drive {} blocks", resource.index);
    case ResourceKind::file:
      return fmt::format("files of drive {}", resource.index);
  }
  return "?";
}

namespace {

/// The memory of a drive operation's buffer; host memory for commands without a buffer.
Place buffer_place(const Operation& op) {
  return std::visit(
      [](const auto& work) {
        if constexpr (requires { work.memory; } && !std::is_same_v<std::decay_t<decltype(work)>, ComputeWork>)
          return work.memory;
        else
          return Place::host();
      },
      op.work);
}

Place place(const Operation& op, bool input, TensorClass what) {
  const std::uint32_t index = op.resource.index;
  switch (op.resource.kind) {
    case ResourceKind::gpu:
      return Place::gpu(index);
    case ResourceKind::host:
      return Place::host();
    case ResourceKind::host_to_gpu:
      return input ? Place::host() : Place::gpu(index);
    case ResourceKind::gpu_to_host:
      return input ? Place::gpu(index) : Place::host();
    case ResourceKind::drive_kv:
      return what == TensorClass::kv_cache ? Place::drive_kv(DriveIndex{index}) : buffer_place(op);
    case ResourceKind::drive_blocks:
      if (op.kind == OpKind::feed_forward)
        return what == TensorClass::records ? Place::drive_blocks(DriveIndex{index}) : buffer_place(op);
      return input == (op.kind == OpKind::read_blocks) ? Place::drive_blocks(DriveIndex{index}) : buffer_place(op);
    case ResourceKind::file:
      return input == (op.kind == OpKind::read_file) ? Place::file(DriveIndex{index}) : buffer_place(op);
  }
  throw InternalError("a resource without a place");
}

}  // namespace

Bytes moved_bytes(const Work& work) {
  Bytes sum;
  if (const auto* const link = std::get_if<LinkWork>(&work)) sum = link->bytes;
  if (const auto* const blocks = std::get_if<BlockWork>(&work))
    for (const Extent& extent : blocks->extents) sum += blocks->block_size * extent.blocks;
  if (const auto* const file = std::get_if<FileWork>(&work))
    for (const FileRange& range : file->ranges) sum += range.size;
  return sum;
}

bool uses_peer_to_peer(const Operation& op) { return !buffer_place(op).in_host(); }

Place input_place(const Operation& op, TensorClass what) { return place(op, true, what); }
Place output_place(const Operation& op, TensorClass what) { return place(op, false, what); }

std::string operation_name(OpKind kind, const OpTag& tag) {
  const std::string phase = tag.phase == Phase::prefill ? "prefill" : fmt::format("decode {}", tag.step);
  const std::string layer = tag.layer ? fmt::format(" layer {}", tag.layer->value) : "";
  return fmt::format("{}{} mini-batch {} {}", phase, layer, tag.mini_batch.value,
                     kOpKindNames[static_cast<std::size_t>(kind)]);
}

}  // namespace csdsim::host
