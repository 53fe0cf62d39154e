// The NVMe front end of a drive as a scenario describes it.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <variant>
#include <vector>

#include "base/param_codec.h"
#include "base/units.h"
#include "nvme_if/core/controller_params.h"
#include "nvme_if/core/queues.h"
#include "nvme_if/core/sgl.h"

namespace csdsim {
class ParamVisitor;
}

namespace csdsim::nvme {

/// The largest part of a drive operation that one KV command covers; mdts may cut it further.
enum class Granularity : std::uint8_t { layer_mini_batch, sequence, head };

/// The path of data between GPU and drive.
enum class DataPath : std::uint8_t { p2p, host };

/// Settings of the controller's interrupts.
struct SingleInterrupts {
  static constexpr std::string_view kKind = "single";
  static constexpr std::string_view kDoc = "For every completion.";
};
struct CoalescedInterrupts {
  static constexpr std::string_view kKind = "coalesced";
  static constexpr std::string_view kDoc = "For several completions of a queue together (NVMe interrupt coalescing).";
  std::uint32_t completions = 16;
  SimTime time = SimTime::microseconds(100);
};

/// Section `nvme.loss`: a drive disappears. From then on it takes no commands, and what it has completed reaches
/// nobody.
struct DriveLoss {
  std::uint32_t drive = 0;
  SimTime at{};
};

/// Section `nvme.power`: the power of the drive fails and comes back.
struct PowerConfig {
  std::vector<SimTime> cuts{SimTime::milliseconds(10)};  ///< moments, ascending
  SimTime off_time = SimTime::milliseconds(1);           ///< from a cut until the power is back
};

/// Section `nvme.fdp`: Flexible Data Placement.
struct FdpConfig {
  bool enabled = true;
  std::vector<std::uint32_t> placement_handles;  ///< reclaim unit handles that the namespace lists; empty: all
};

/// Section `nvme` of a drive: the front end and how the host uses it.
struct NvmeConfig {
  std::uint32_t queues = 4;
  std::uint32_t queue_depth = 1024;
  std::variant<SingleInterrupts, CoalescedInterrupts> interrupts;
  Bytes mdts = Bytes::mib(2);
  Bytes block_size = Bytes::kib(4);
  SimTime firmware_time{};
  SimTime pipeline_time{};
  std::uint32_t firmware_cores = 1;
  std::uint32_t command_slots = 4096;
  std::vector<QueuePriority> queue_priorities;
  std::vector<std::uint32_t> priority_weights{8, 4, 2};  ///< weights of high, medium and low
  Granularity granularity = Granularity::layer_mini_batch;
  DataPath transfer = DataPath::p2p;
  DataPointer data_pointer = DataPointer::prp;
  SimTime timeout = SimTime::milliseconds(30'000);
  std::optional<DriveLoss> loss;
  std::optional<PowerConfig> power;
  std::optional<FdpConfig> fdp;

  /// What the host sets.
  InterruptCoalescing coalescing() const;
  QueuePriorities priorities() const;
};

void describe(ParamVisitor& v, SingleInterrupts& c);
void describe(ParamVisitor& v, CoalescedInterrupts& c);
void describe(ParamVisitor& v, DriveLoss& c);
void describe(ParamVisitor& v, PowerConfig& c);
void describe(ParamVisitor& v, FdpConfig& c);
void describe(ParamVisitor& v, NvmeConfig& c);

/// What the controller offers, apart from the size of its namespace and its write cache, which the drive knows.
NvmeControllerParams controller_params(const NvmeConfig& config);

}  // namespace csdsim::nvme

namespace csdsim {

template <>
struct EnumValues<nvme::Granularity> {
  static constexpr EnumValue<nvme::Granularity> values[] = {
      {nvme::Granularity::layer_mini_batch, "layer_mini_batch",
       "One command covers all heads of one layer for a mini-batch of sequences."},
      {nvme::Granularity::sequence, "sequence", "One command covers all heads of one layer for one sequence."},
      {nvme::Granularity::head, "head", "One command covers one KV head of one layer for one sequence."}};
};
template <>
struct EnumValues<nvme::QueuePriority> {
  static constexpr EnumValue<nvme::QueuePriority> values[] = {
      {nvme::QueuePriority::urgent, "urgent", "Before all others."},
      {nvme::QueuePriority::high, "high", "Its weight in commands a round."},
      {nvme::QueuePriority::medium, "medium", "Its weight in commands a round."},
      {nvme::QueuePriority::low, "low", "Its weight in commands a round."}};
};
template <>
struct EnumValues<nvme::DataPointer> {
  static constexpr EnumValue<nvme::DataPointer> values[] = {
      {nvme::DataPointer::prp, "prp", "Physical region pages: an address for each page, in lists from three pages on."},
      {nvme::DataPointer::sgl, "sgl", "Scatter gather lists: a descriptor for each contiguous piece."}};
};
template <>
struct EnumValues<nvme::DataPath> {
  static constexpr EnumValue<nvme::DataPath> values[] = {
      {nvme::DataPath::p2p, "p2p", "The drive reads and writes GPU memory itself."},
      {nvme::DataPath::host, "host", "Through host memory: over the GPU's link first, then over the drive's."}};
};

}  // namespace csdsim
