// Executes feed-forward networks in the drives, as NVMe commands.
#pragma once

#include <optional>
#include <vector>

#include "host_runtime/core/carried/operation_data.h"
#include "host_runtime/core/plan/operation.h"
#include "host_runtime/sysc/drive_commands.h"

namespace csdsim::host {

/// The neurons of each command of an operation, in order. A list that does not fit one command of at most `mdts` bytes
/// is cut; the operation's result is then the sum of the commands' results, added in this order. Throws UserError if x
/// and y alone exceed mdts.
std::vector<std::vector<NeuronRun>> feed_forward_commands(const NeuronWork& work, Bytes mdts);

/// Starts feed_forward of a drive; all its commands run concurrently. Without a neuron it takes no time, and the result
/// is 0. `data` is null in timing runs.
std::optional<SimTime> start_feed_forward(DriveCommands& commands, OperationData* data, const Operation& op,
                                          SimTime now);

}  // namespace csdsim::host
