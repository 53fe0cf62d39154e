// Executes reads and writes of extents on the block namespaces of the drives, and feed-forward networks from records.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "host_runtime/core/carried/operation_data.h"
#include "host_runtime/core/plan/operation_backend.h"
#include "host_runtime/sysc/drive_commands.h"

namespace csdsim::host {

/// Each extent is one request. If it is longer than BlockWork::chunk, it is cut where its address is a multiple of the
/// chunk. At most BlockWork::outstanding requests wait for the drive at a time,
/// in the order of the extents; without that limit all do. The driver splits a request into commands of at most mdts
/// bytes. The operation ends with its last command, at once if there is none.
class DriveBlockBackend final : public OperationBackend {
 public:
  /// `data` is null in timing runs. `commands` must outlive this.
  DriveBlockBackend(DriveCommands& commands, OperationData* data) : commands_(commands), data_(data) {}

  /// `lost` is called when a part of a read cannot be read back, before the operation ends; no data of its extent are
  /// handed over. Without `lost` such a part is a failure.
  void on_lost(std::function<void(const Operation& op)> lost) { lost_ = std::move(lost); }

  /// Throws InternalError for an empty extent, one beyond the namespace, and chunks that are not whole blocks.
  std::optional<SimTime> start(const Operation& op, SimTime now) override;

 private:
  struct Batch;
  using BatchPtr = std::shared_ptr<Batch>;
  void check(const Operation& op, const Extent& extent);
  void submit_next(const BatchPtr& batch);
  void submit(const BatchPtr& batch, std::size_t index, Extent part);
  void part_done(const BatchPtr& batch, std::size_t index, std::uint64_t blocks);
  void extent_done(Batch& batch, std::size_t index);

  DriveCommands& commands_;
  OperationData* data_;
  std::function<void(const Operation&)> lost_;
};

}  // namespace csdsim::host
