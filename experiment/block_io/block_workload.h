// The experiment block_io: block commands of a pattern on the drive as a plain SSD.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <variant>
#include <vector>

#include "base/param.h"
#include "experiment/block_io/block_flows.h"
#include "experiment/block_io/block_run_config.h"
#include "experiment/block_io/requests/synthetic.h"
#include "scenario/experiment.h"

namespace csdsim::experiment {

struct BlockIoSetup;

enum class Pattern : std::uint8_t {
  random_read,
  random_write,
  random_mixed,
  zipf_read,
  zipf_write,
  zipf_mixed,
  sequential_read,
  sequential_write,
  sequential_mixed
};

/// Closed loop: a completion triggers the next request.
struct ClosedArrival {
  static constexpr std::string_view kKind = "closed";
  static constexpr std::string_view kDoc =
      "A fixed number of requests in flight: each completion starts the next request.";
  SimTime think_time{};
};

enum class Interarrival : std::uint8_t { exponential, fixed };

/// Open loop: requests arrive independently of the number in flight.
struct OpenArrival {
  static constexpr std::string_view kKind = "open";
  static constexpr std::string_view kDoc = "Requests at a given rate, independent of the number in flight.";
  SimTime interarrival = SimTime::microseconds(10);
  Interarrival distribution = Interarrival::exponential;
};

using ArrivalConfig = std::variant<ClosedArrival, OpenArrival>;

/// Block commands made by a generator.
struct BlockIoWorkload final : scenario::CopyableExperiment<BlockIoWorkload> {
  static constexpr std::string_view kKind = "block_io";
  static constexpr std::string_view kDoc = "Block commands of a pattern, in a closed loop or at a given rate.";
  Pattern pattern = Pattern::random_read;
  Bytes request_size = Bytes::kib(4);
  std::vector<Bytes> request_sizes;            ///< replaces request_size when not empty
  std::vector<std::uint32_t> request_weights;  ///< weights of request_sizes; empty: equal weights
  std::optional<Bytes> alignment;              ///< unset: the size of the request
  std::uint32_t queue_depth = 32;
  std::uint64_t requests = 100'000;
  std::optional<SimTime> duration;  ///< in place of requests
  std::optional<Ratio> read_fraction;
  Ratio trim_fraction{0, 1};
  std::optional<Ratio> zipf_exponent;
  std::uint32_t streams = 1;
  std::optional<FlowsConfig> flows;
  ArrivalConfig arrival;
  BlockRunConfig common{.working_set = Ratio::of(8, 10)};

  void describe(ParamVisitor& v) override;
  void check(scenario::Checker& c) override;
  void prune(nlohmann::ordered_json& config, const scenario::Scenario& scenario) const override;
  bool attends() const override { return false; }
  std::vector<MetricInfo> metrics(const scenario::Registries&) const override;
  scenario::RunResult run(const scenario::Scenario& scenario, const scenario::RunOptions& options) const override;
  /// The drive and the requests of a run. This object and the scenario must outlive it.
  BlockIoSetup setup(const scenario::Scenario& scenario) const;

  /// Share of reads among reads and writes: given by the pattern, or read_fraction for mixed patterns.
  Ratio reads() const;
  bool mixed() const;
  workload::Placement placement() const;
  double exponent() const;
  Fill fill() const;
  bool open() const { return std::holds_alternative<OpenArrival>(arrival); }
  /// Request sizes that occur.
  std::vector<Bytes> sizes() const;
};

/// Block commands in a closed loop that run beside a generation on the same drive.
struct BackgroundWorkload {
  Pattern pattern = Pattern::random_mixed;
  Bytes request_size = Bytes::kib(4);
  std::uint32_t queue_depth = 8;
  std::optional<Ratio> read_fraction;
  Ratio working_set = Ratio::of(8, 10);
  Ratio capacity_share = Ratio::of(1, 2);

  /// The same commands as a BlockIoWorkload.
  BlockIoWorkload block_io() const;
};

void describe(ParamVisitor& v, ClosedArrival& c);
void describe(ParamVisitor& v, OpenArrival& c);
void describe(ParamVisitor& v, BackgroundWorkload& c);

/// Parameters of the generator for logical blocks of `block` bytes on a drive that exports `capacity`.
workload::SyntheticConfig synthetic_config(const BlockIoWorkload& work, Bytes block, Bytes capacity,
                                           std::uint64_t seed);

/// Removes the parameters that runs of block commands do not use: model, system and the simulation of attention.
void prune_attention(nlohmann::ordered_json& config);

}  // namespace csdsim::experiment

namespace csdsim {

template <>
struct EnumValues<experiment::Pattern> {
  static constexpr EnumValue<experiment::Pattern> values[] = {
      {experiment::Pattern::random_read, "random_read", "Reads at uniform random offsets."},
      {experiment::Pattern::random_write, "random_write", "Writes at uniform random offsets."},
      {experiment::Pattern::random_mixed, "random_mixed", "Reads and writes at uniform random offsets."},
      {experiment::Pattern::zipf_read, "zipf_read", "Reads at Zipf-distributed offsets."},
      {experiment::Pattern::zipf_write, "zipf_write", "Writes at Zipf-distributed offsets."},
      {experiment::Pattern::zipf_mixed, "zipf_mixed", "Reads and writes at Zipf-distributed offsets."},
      {experiment::Pattern::sequential_read, "sequential_read", "Reads at consecutive offsets."},
      {experiment::Pattern::sequential_write, "sequential_write", "Writes at consecutive offsets."},
      {experiment::Pattern::sequential_mixed, "sequential_mixed", "Reads and writes at consecutive offsets."}};
};
template <>
struct EnumValues<experiment::Interarrival> {
  static constexpr EnumValue<experiment::Interarrival> values[] = {
      {experiment::Interarrival::exponential, "exponential", "Independent arrivals (a Poisson process)."},
      {experiment::Interarrival::fixed, "fixed", "Equal times between arrivals."}};
};

}  // namespace csdsim
