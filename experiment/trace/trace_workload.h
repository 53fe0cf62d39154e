// The experiment trace: replays recorded block commands.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <variant>

#include "experiment/block_io/block_workload.h"
#include "experiment/block_io/requests/trace_requests.h"

namespace csdsim::experiment {

/// Submits requests at the times of the trace.
struct RecordedTiming {
  static constexpr std::string_view kKind = "recorded";
  static constexpr std::string_view kDoc = "At the times of the trace, for any number of requests in flight.";
  Ratio speed{1, 1};
};

/// Submits requests in the order of the trace, with a fixed number in flight.
struct FastTiming {
  static constexpr std::string_view kKind = "fast";
  static constexpr std::string_view kDoc = "As fast as possible, with a fixed number of requests in flight.";
  std::uint32_t queue_depth = 32;
};

using TimingConfig = std::variant<RecordedTiming, FastTiming>;

/// Treatment of requests beyond the working set, and of requests that are not whole logical blocks.
enum class Beyond : std::uint8_t { wrap, refuse };
enum class Unaligned : std::uint8_t { extend, refuse };
/// Addresses of several disks or files.
enum class Streams : std::uint8_t { separate, shared };

/// Block commands read from a trace.
struct TraceWorkload final : scenario::CopyableExperiment<TraceWorkload> {
  static constexpr std::string_view kKind = "trace";
  static constexpr std::string_view kDoc = "Replays block commands of a recorded trace.";
  std::optional<InputPath> file;
  workload::TraceFormat format = workload::TraceFormat::msr;
  TimingConfig timing;
  Beyond beyond = Beyond::wrap;
  Unaligned unaligned = Unaligned::extend;
  Streams streams = Streams::separate;
  std::optional<std::uint64_t> requests;  ///< unset: all of the file
  BlockRunConfig common;

  void describe(ParamVisitor& v) override;
  void check(scenario::Checker& c) override;
  void prune(nlohmann::ordered_json& config, const scenario::Scenario& scenario) const override;
  bool attends() const override { return false; }
  std::vector<MetricInfo> metrics(const scenario::Registries&) const override;
  scenario::RunResult run(const scenario::Scenario& scenario, const scenario::RunOptions& options) const override;

  Fill fill() const { return common.precondition.fill.value_or(Fill::random); }
};

void describe(ParamVisitor& v, RecordedTiming& c);
void describe(ParamVisitor& v, FastTiming& c);

}  // namespace csdsim::experiment

namespace csdsim {

template <>
struct EnumValues<experiment::workload::TraceFormat> {
  static constexpr EnumValue<experiment::workload::TraceFormat> values[] = {
      {experiment::workload::TraceFormat::msr, "msr",
       "CSV of the MSR Cambridge traces, with times in ticks of 100 ns."},
      {experiment::workload::TraceFormat::fio, "fio", "iolog of fio, version 2 or 3."}};
};
template <>
struct EnumValues<experiment::Beyond> {
  static constexpr EnumValue<experiment::Beyond> values[] = {
      {experiment::Beyond::wrap, "wrap", "The offset of such a request is taken modulo the working set."},
      {experiment::Beyond::refuse, "refuse", "Such a request is an error."}};
};
template <>
struct EnumValues<experiment::Streams> {
  static constexpr EnumValue<experiment::Streams> values[] = {
      {experiment::Streams::separate, "separate",
       "Each has a range of its own, as long as the trace shows, behind those that appear before it."},
      {experiment::Streams::shared, "shared", "All begin at address 0."}};
};
template <>
struct EnumValues<experiment::Unaligned> {
  static constexpr EnumValue<experiment::Unaligned> values[] = {
      {experiment::Unaligned::extend, "extend",
       "A read or write is extended to all blocks that it touches; a trim is rounded inwards to whole blocks."},
      {experiment::Unaligned::refuse, "refuse", "Such a request is an error."}};
};

}  // namespace csdsim
