// Executes reads and writes of extents on the block namespaces of the drives, and feed-forward networks from records.
#pragma once

#include <optional>

#include "host_runtime/core/carried/operation_data.h"
#include "host_runtime/core/planner/operation_backend.h"
#include "host_runtime/sysc/drive_commands.h"

namespace csdsim::host {

/// The driver splits an extent into commands of at most mdts bytes. All extents of an operation run concurrently; the
/// operation ends with its last command.
class DriveBlockBackend final : public OperationBackend {
 public:
  /// `data` is null in timing runs. `commands` must outlive this.
  DriveBlockBackend(DriveCommands& commands, OperationData* data) : commands_(commands), data_(data) {}

  /// Throws InternalError for an empty extent, or one beyond the namespace.
  std::optional<SimTime> start(const Operation& op, SimTime now) override;

 private:
  void check(const Operation& op, const Extent& extent);

  DriveCommands& commands_;
  OperationData* data_;
};

}  // namespace csdsim::host
