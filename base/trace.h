// Chrome trace events (chrome://tracing, Perfetto): what happened when, on which track.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "base/units.h"

namespace csdsim {

/// A row of the trace. `detail`: its events are left out first where the file becomes too large.
struct TraceTrack {
  std::uint32_t process = 0;
  std::uint32_t thread = 0;
  bool detail = false;
};

/// Where an event stands in a flow, which Perfetto draws as arrows from slice to slice.
enum class FlowStep : std::uint8_t { begin, step, end };

/// Streams events to a file through a bounded buffer. Whenever the buffer has been written, the file on disk is
/// complete JSON, so that a run that ends early leaves a trace that loads. Times are written in microseconds with six
/// decimals: exact to the picosecond.
class TraceSink {
 public:
  static constexpr Bytes kDefaultLimit{200'000'000};
  static constexpr Bytes kLeastLimit{100'000};
  using Value = std::variant<std::uint64_t, std::string_view>;
  using Args = std::initializer_list<std::pair<std::string_view, Value>>;

  /// The file never becomes larger than `limit`. Events of detail tracks are left out from three quarters of it on, so
  /// that the others still have room. What is left out is counted in "otherData". Throws UserError when the file cannot
  /// be written, and for a limit below kLeastLimit.
  explicit TraceSink(const std::filesystem::path& path, Bytes limit = kDefaultLimit);
  ~TraceSink();
  TraceSink(const TraceSink&) = delete;
  TraceSink& operator=(const TraceSink&) = delete;

  /// A group of tracks, such as a drive. Groups are shown in the order of `place`, then of their creation.
  std::uint32_t process(std::string_view name, std::uint32_t place = 0);
  /// A track in a group; tracks are shown in the order of `place`, then of their creation.
  TraceTrack track(std::uint32_t process, std::string_view name, std::uint32_t place = 0, bool detail = false);

  /// Something that took from `start` to `start + duration`. Precondition: neither is negative. Slices of a track must
  /// not overlap unless one contains the other.
  void complete(TraceTrack track, std::string_view name, SimTime start, SimTime duration, Args args = {});
  /// Something that took from `start` to `end`, beside others of the same `category` that may overlap.
  void async(TraceTrack track, std::string_view category, std::string_view name, SimTime start, SimTime end,
             Args args = {});
  /// A quantity over time, in the process of the track.
  void counter(TraceTrack track, std::string_view name, SimTime at, double value);
  /// An arrow from and to the slices of `track` that contain `at`.
  void flow(TraceTrack track, std::string_view name, std::uint64_t id, FlowStep step, SimTime at);

  std::uint64_t dropped_events() const { return dropped_; }
  /// When the first event that was left out happened.
  std::optional<SimTime> first_dropped() const { return first_dropped_; }
  Bytes limit() const { return limit_; }

  /// Writes everything out. Throws UserError when the file could not be written. The destructor does it, silently.
  void close();

 private:
  void event(const std::string& body, bool detail, SimTime at);
  void append(std::string_view body);
  std::uint64_t size() const { return static_cast<std::uint64_t>(end_) + buffer_.size(); }
  std::string tail() const;
  void write_out();

  std::filesystem::path path_;
  std::ofstream file_;
  std::string buffer_;
  Bytes limit_;
  std::uint64_t dropped_ = 0;
  std::optional<SimTime> first_dropped_;
  std::uint32_t processes_ = 0;
  std::uint32_t threads_ = 0;
  std::uint64_t async_ids_ = 0;
  bool first_ = true;
  std::streamoff end_ = 0;  ///< where the next event goes: the closing brackets are behind it
  bool closed_ = false;
};

}  // namespace csdsim
