// Checks of all workloads of block commands.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "experiment/block_io/block_run_config.h"
#include "scenario/check.h"

namespace csdsim::experiment {

/// What every block workload asks of the drive: that there is one, and that it has the queues. Overwrites need
/// something that was there before.
void check_block_drive(scenario::Checker& c, std::string_view kind, const BlockRunConfig& config);
/// Bytes that the requests of such a run address; nothing for a drive that cannot be built, which other checks refuse.
std::optional<Bytes> working_set_if_any(const scenario::Scenario& scenario, const BlockRunConfig& config);
/// True if the rings of the queues used hold `depth` requests, which stands at `key`.
void check_queue_depth(scenario::Checker& c, std::uint32_t depth, std::string_view key,
                       std::optional<std::uint32_t> queues);

}  // namespace csdsim::experiment
