// Checks of workloads of block commands, for check_workload().
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "scenario/check.h"

namespace csdsim::scenario {

/// What every block workload asks of the drive: that there is one, and that it has the queues.
void check_block_drive(Checker& c, std::string_view kind, std::optional<std::uint32_t> queues);
/// Whether the rings of the queues used hold `depth` requests, which stands at `key`.
void check_queue_depth(Checker& c, std::uint32_t depth, std::string_view key, std::optional<std::uint32_t> queues);

void check_block_io(Checker& c, const BlockIoWorkload& work);
/// Finds the trace.
void check_trace(Checker& c, TraceWorkload& work);

}  // namespace csdsim::scenario
