// The configuration that all experiments with block commands share.
#pragma once

#include <cstdint>
#include <optional>

#include "base/param.h"
#include "base/quantity.h"

namespace csdsim::experiment {

enum class QueueAssignment : std::uint8_t { round_robin, stream };
enum class Fill : std::uint8_t { none, sequential, random };

/// Content of the drive before the first request.
struct PreconditionConfig {
  std::optional<Fill> fill;  ///< unset: sequential for sequential patterns, else random
  Ratio overwrites{0, 1};    ///< how often the working set is overwritten at random places after the fill
};

/// The parameters that block_io and trace share.
struct BlockRunConfig {
  std::uint64_t warmup_requests = 0;
  Ratio working_set{1, 1};                   ///< share of the exported capacity; each experiment has its own default
  std::optional<std::uint32_t> queues = {};  ///< unset: all I/O queues
  QueueAssignment queue_assignment = QueueAssignment::round_robin;
  PreconditionConfig precondition = {};
  std::optional<std::uint64_t> lose_completion = {};
};

void describe(ParamVisitor& v, PreconditionConfig& c);
void describe(ParamVisitor& v, BlockRunConfig& c);

}  // namespace csdsim::experiment

namespace csdsim {

template <>
struct EnumValues<experiment::QueueAssignment> {
  static constexpr EnumValue<experiment::QueueAssignment> values[] = {
      {experiment::QueueAssignment::round_robin, "round_robin", "Requests take the queues in turn."},
      {experiment::QueueAssignment::stream, "stream", "Stream i always uses queue i mod queues."}};
};
template <>
struct EnumValues<experiment::Fill> {
  static constexpr EnumValue<experiment::Fill> values[] = {
      {experiment::Fill::none, "none", "The drive is new: reads of blocks that were never written need no flash."},
      {experiment::Fill::sequential, "sequential", "The working set was written once, in order."},
      {experiment::Fill::random, "random", "The working set was written once, in random order."}};
};

}  // namespace csdsim
