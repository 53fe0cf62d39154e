// Workloads of block commands, the drive as a plain SSD: what a scenario says about them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <variant>
#include <vector>

#include "base/param.h"

namespace csdsim::scenario {

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

/// Where a pattern goes, apart from what it does there.
enum class Placement : std::uint8_t { random, zipf, sequential };

/// Requests follow completions.
struct ClosedArrival {
  static constexpr std::string_view kKind = "closed";
  static constexpr std::string_view kDoc = "A fixed number of requests in flight: a completion lets the next one go.";
  SimTime think_time{};
};

enum class Interarrival : std::uint8_t { exponential, fixed };

/// Requests come when they come, whatever is in flight.
struct OpenArrival {
  static constexpr std::string_view kKind = "open";
  static constexpr std::string_view kDoc = "Requests at a given rate, however many are in flight.";
  SimTime interarrival = SimTime::microseconds(10);
  Interarrival distribution = Interarrival::exponential;
};

using ArrivalConfig = std::variant<ClosedArrival, OpenArrival>;

enum class QueueAssignment : std::uint8_t { round_robin, stream };
enum class Fill : std::uint8_t { none, sequential, random };

/// What the drive holds before the first request.
struct PreconditionConfig {
  std::optional<Fill> fill;  ///< unset: in the order of the pattern
  Ratio overwrites{0, 1};    ///< of the working set, at random, after it was filled
};

/// Block commands made by a generator.
struct BlockIoWorkload {
  static constexpr std::string_view kKind = "block_io";
  static constexpr std::string_view kDoc = "Block commands of a pattern, in a closed loop or at a given rate.";
  Pattern pattern = Pattern::random_read;
  Bytes request_size = Bytes::kib(4);
  std::vector<Bytes> request_sizes;            ///< when not empty, in place of request_size
  std::vector<std::uint32_t> request_weights;  ///< of request_sizes; empty: all the same
  std::optional<Bytes> alignment;              ///< unset: of the request's own size
  std::uint32_t queue_depth = 32;
  std::uint64_t requests = 100'000;
  std::optional<SimTime> duration;  ///< in place of requests
  std::uint64_t warmup_requests = 0;
  Ratio working_set = Ratio::of(8, 10);
  std::optional<Ratio> read_fraction;
  Ratio trim_fraction{0, 1};
  std::optional<Ratio> zipf_exponent;
  std::uint32_t streams = 1;
  std::optional<std::uint32_t> queues;  ///< unset: all
  QueueAssignment queue_assignment = QueueAssignment::round_robin;
  ArrivalConfig arrival;
  PreconditionConfig precondition;
  std::optional<std::uint64_t> lose_completion;

  /// Share of reads in what is no TRIM: what the pattern says, or read_fraction for mixed patterns.
  Ratio reads() const;
  bool mixed() const;
  Placement placement() const;
  double exponent() const;
  Fill fill() const;
  bool open() const { return std::holds_alternative<OpenArrival>(arrival); }
  /// The sizes that occur.
  std::vector<Bytes> sizes() const;
};

/// Block commands in a closed loop beside something else on the same drive.
struct BackgroundWorkload {
  Pattern pattern = Pattern::random_mixed;
  Bytes request_size = Bytes::kib(4);
  std::uint32_t queue_depth = 8;
  std::optional<Ratio> read_fraction;
  Ratio working_set = Ratio::of(8, 10);
  Ratio capacity_share = Ratio::of(1, 2);

  /// The same as a workload of its own.
  BlockIoWorkload block_io() const;
};

enum class TraceFormat : std::uint8_t { msr, fio };

/// Requests come as in the trace.
struct RecordedTiming {
  static constexpr std::string_view kKind = "recorded";
  static constexpr std::string_view kDoc = "At the times of the trace, however many requests are in flight.";
  Ratio speed{1, 1};
};

/// Requests in the order of the trace, each as soon as there is room.
struct FastTiming {
  static constexpr std::string_view kKind = "fast";
  static constexpr std::string_view kDoc = "As fast as the drive takes them, with a number of requests in flight.";
  std::uint32_t queue_depth = 32;
};

using TimingConfig = std::variant<RecordedTiming, FastTiming>;

enum class Beyond : std::uint8_t { wrap, refuse };
enum class Unaligned : std::uint8_t { extend, refuse };

/// Block commands read from a trace.
struct TraceWorkload {
  static constexpr std::string_view kKind = "trace";
  static constexpr std::string_view kDoc = "Block commands as somebody recorded them.";
  std::optional<InputPath> file;
  TraceFormat format = TraceFormat::msr;
  TimingConfig timing;
  Beyond beyond = Beyond::wrap;
  Unaligned unaligned = Unaligned::extend;
  std::optional<std::uint64_t> requests;  ///< unset: all of the file
  std::uint64_t warmup_requests = 0;
  Ratio working_set{1, 1};
  std::optional<std::uint32_t> queues;
  QueueAssignment queue_assignment = QueueAssignment::round_robin;
  PreconditionConfig precondition;
  std::optional<std::uint64_t> lose_completion;

  Fill fill() const { return precondition.fill.value_or(Fill::random); }
};

void describe(ParamVisitor& v, RecordedTiming& c);
void describe(ParamVisitor& v, FastTiming& c);
void describe(ParamVisitor& v, TraceWorkload& c);
void describe(ParamVisitor& v, ClosedArrival& c);
void describe(ParamVisitor& v, OpenArrival& c);
void describe(ParamVisitor& v, PreconditionConfig& c);
void describe(ParamVisitor& v, BlockIoWorkload& c);
void describe(ParamVisitor& v, BackgroundWorkload& c);

}  // namespace csdsim::scenario

namespace csdsim {

template <>
struct EnumValues<scenario::Pattern> {
  static constexpr EnumValue<scenario::Pattern> values[] = {
      {scenario::Pattern::random_read, "random_read", "Reads at uniform random places."},
      {scenario::Pattern::random_write, "random_write", "Writes at uniform random places."},
      {scenario::Pattern::random_mixed, "random_mixed", "Reads and writes at uniform random places."},
      {scenario::Pattern::zipf_read, "zipf_read", "Reads, some places far more often than others."},
      {scenario::Pattern::zipf_write, "zipf_write", "Writes, some places far more often than others."},
      {scenario::Pattern::zipf_mixed, "zipf_mixed", "Reads and writes, some places far more often than others."},
      {scenario::Pattern::sequential_read, "sequential_read", "Reads one after another."},
      {scenario::Pattern::sequential_write, "sequential_write", "Writes one after another."},
      {scenario::Pattern::sequential_mixed, "sequential_mixed", "Reads and writes one after another."}};
};
template <>
struct EnumValues<scenario::Interarrival> {
  static constexpr EnumValue<scenario::Interarrival> values[] = {
      {scenario::Interarrival::exponential, "exponential", "Independent arrivals: a Poisson process."},
      {scenario::Interarrival::fixed, "fixed", "Like clockwork."}};
};
template <>
struct EnumValues<scenario::QueueAssignment> {
  static constexpr EnumValue<scenario::QueueAssignment> values[] = {
      {scenario::QueueAssignment::round_robin, "round_robin", "Requests take the queues in turn."},
      {scenario::QueueAssignment::stream, "stream", "A stream stays on its queue: stream i on i mod queues."}};
};
template <>
struct EnumValues<scenario::TraceFormat> {
  static constexpr EnumValue<scenario::TraceFormat> values[] = {
      {scenario::TraceFormat::msr, "msr", "CSV of the MSR Cambridge traces, with times in ticks of 100 ns."},
      {scenario::TraceFormat::fio, "fio", "iolog of fio, version 2 or 3."}};
};
template <>
struct EnumValues<scenario::Beyond> {
  static constexpr EnumValue<scenario::Beyond> values[] = {
      {scenario::Beyond::wrap, "wrap", "Such a request goes to its offset modulo the working set."},
      {scenario::Beyond::refuse, "refuse", "Such a request is an error."}};
};
template <>
struct EnumValues<scenario::Unaligned> {
  static constexpr EnumValue<scenario::Unaligned> values[] = {
      {scenario::Unaligned::extend, "extend", "Such a request takes all blocks that it touches."},
      {scenario::Unaligned::refuse, "refuse", "Such a request is an error."}};
};
template <>
struct EnumValues<scenario::Fill> {
  static constexpr EnumValue<scenario::Fill> values[] = {
      {scenario::Fill::none, "none", "The drive is new: reads of what nobody wrote need no flash."},
      {scenario::Fill::sequential, "sequential", "The working set was written once, in order."},
      {scenario::Fill::random, "random", "The working set was written once, in random order."}};
};

}  // namespace csdsim
