// Checks of all workloads of block commands.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "experiment/block_io/block_workload.h"
#include "scenario/check.h"

namespace csdsim::experiment {

/// Checks that there is exactly one drive and that it has the queues.
void check_block_drive(scenario::Checker& c, std::string_view kind, std::optional<std::uint32_t> queues);
/// Checks that the rings of the queues in use hold `depth` requests; `key` is the parameter in messages.
void check_queue_depth(scenario::Checker& c, std::uint32_t depth, std::string_view key,
                       std::optional<std::uint32_t> queues);

/// Checks that overwrites have content to overwrite.
void check_precondition(scenario::Checker& c, const PreconditionConfig& precondition);

}  // namespace csdsim::experiment
