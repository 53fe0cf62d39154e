// Reads and writes of extents through a drive's block namespace.
#pragma once

#include <optional>

#include "host_runtime/core/carried/operation_data.h"
#include "host_runtime/core/planner/operation_backend.h"
#include "host_runtime/sysc/drive_commands.h"

namespace csdsim::host {

/// An extent is cut into commands of at most mdts by the driver; extents of an operation are under way together. An
/// operation ends with its last command.
class DriveBlockBackend final : public OperationBackend {
 public:
  /// `data` is null in timing runs. `commands` must outlive this.
  DriveBlockBackend(DriveCommands& commands, OperationData* data) : commands_(commands), data_(data) {}

  /// InternalError for an empty extent, or one beyond the namespace.
  std::optional<SimTime> start(const Operation& op, SimTime now) override;

 private:
  void check(const Operation& op, const Extent& extent);

  DriveCommands& commands_;
  OperationData* data_;
};

}  // namespace csdsim::host
