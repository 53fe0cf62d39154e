// Chrome trace events (chrome://tracing, Perfetto): what happened when, on which track.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "base/units.h"

namespace csdsim {

/// A row of the trace.
struct TraceTrack {
  std::uint32_t process = 0;
  std::uint32_t thread = 0;
};

/// Streams events to a file through a bounded buffer. Whenever the buffer has been written, the file on disk is
/// complete JSON, so that a run that ends early leaves a trace that loads. Times are written in microseconds with six
/// decimals: exact to the picosecond.
class TraceSink {
 public:
  static constexpr std::uint64_t kDefaultMaxEvents = 20'000'000;
  using Args = std::initializer_list<std::pair<std::string_view, std::uint64_t>>;

  /// Throws UserError when the file cannot be written. After `max_events` events further ones are counted, not kept;
  /// the count stands in "otherData.dropped_events".
  explicit TraceSink(const std::filesystem::path& path, std::uint64_t max_events = kDefaultMaxEvents);
  ~TraceSink();
  TraceSink(const TraceSink&) = delete;
  TraceSink& operator=(const TraceSink&) = delete;

  /// A group of tracks, such as a drive or a channel. Numbers count up from 1 in order of creation.
  std::uint32_t process(std::string_view name);
  /// A track in a group.
  TraceTrack track(std::uint32_t process, std::string_view name);

  /// Something that took from `start` to `start + duration`. Precondition: neither is negative.
  void complete(TraceTrack track, std::string_view name, SimTime start, SimTime duration, Args args = {});
  /// Something that happened at a moment.
  void instant(TraceTrack track, std::string_view name, SimTime at);
  /// A quantity over time.
  void counter(std::uint32_t process, std::string_view name, SimTime at, std::uint64_t value);

  std::uint64_t dropped_events() const { return dropped_; }

  /// Writes everything out. Throws UserError when the file could not be written. The destructor does it, silently.
  void close();

 private:
  bool keep();
  void event(std::string_view body);
  void write_out();

  std::filesystem::path path_;
  std::ofstream file_;
  std::string buffer_;
  std::uint64_t max_events_;
  std::uint64_t events_ = 0;
  std::uint64_t dropped_ = 0;
  std::uint32_t processes_ = 0;
  std::uint32_t threads_ = 0;
  bool first_ = true;
  std::streamoff end_ = 0;  ///< where the next event goes: the closing brackets are behind it
  bool closed_ = false;
};

}  // namespace csdsim
