#include "base/trace.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/text.h"

namespace csdsim {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 18;

/// Picoseconds as microseconds.
std::string microseconds(SimTime t) { return fmt::format("{}.{:06}", t.ps / 1'000'000, t.ps % 1'000'000); }

}  // namespace

TraceSink::TraceSink(const std::filesystem::path& path, std::uint64_t max_events)
    : path_(path), max_events_(max_events) {
  file_.open(path, std::ios::binary | std::ios::trunc);
  if (!file_) throw UserError(fmt::format("{}: cannot be written: {}", path.string(), std::strerror(errno)));
  buffer_ = "{\"displayTimeUnit\": \"ns\", \"traceEvents\": [";
  write_out();
}

TraceSink::~TraceSink() {
  try {
    close();
  } catch (const UserError&) {  // a destructor must not throw; close() reports the failure
  }
}

std::uint32_t TraceSink::process(std::string_view name) {
  const std::uint32_t id = ++processes_;
  event(fmt::format(R"({{"ph":"M","name":"process_name","pid":{},"tid":0,"args":{{"name":"{}"}}}})", id,
                    json_escape(name)));
  event(fmt::format(R"({{"ph":"M","name":"process_sort_index","pid":{},"tid":0,"args":{{"sort_index":{}}}}})", id, id));
  return id;
}

TraceTrack TraceSink::track(std::uint32_t process, std::string_view name) {
  const TraceTrack track{process, ++threads_};
  event(fmt::format(R"({{"ph":"M","name":"thread_name","pid":{},"tid":{},"args":{{"name":"{}"}}}})", track.process,
                    track.thread, json_escape(name)));
  event(fmt::format(R"({{"ph":"M","name":"thread_sort_index","pid":{},"tid":{},"args":{{"sort_index":{}}}}})",
                    track.process, track.thread, track.thread));
  return track;
}

bool TraceSink::keep() {
  if (events_ >= max_events_) {
    ++dropped_;
    return false;
  }
  ++events_;
  return true;
}

void TraceSink::complete(TraceTrack track, std::string_view name, SimTime start, SimTime duration, Args args) {
  if (!keep()) return;
  std::string body = fmt::format(R"({{"ph":"X","name":"{}","pid":{},"tid":{},"ts":{},"dur":{})", json_escape(name),
                                 track.process, track.thread, microseconds(start), microseconds(duration));
  if (args.size() > 0) {
    body += ",\"args\":{";
    bool first = true;
    for (const auto& [key, value] : args) {
      body += fmt::format("{}\"{}\":{}", first ? "" : ",", json_escape(key), value);
      first = false;
    }
    body += '}';
  }
  event(body + "}");
}

void TraceSink::instant(TraceTrack track, std::string_view name, SimTime at) {
  if (!keep()) return;
  event(fmt::format(R"({{"ph":"i","s":"t","name":"{}","pid":{},"tid":{},"ts":{}}})", json_escape(name), track.process,
                    track.thread, microseconds(at)));
}

void TraceSink::counter(std::uint32_t process, std::string_view name, SimTime at, std::uint64_t value) {
  if (!keep()) return;
  event(fmt::format(R"({{"ph":"C","name":"{}","pid":{},"ts":{},"args":{{"value":{}}}}})", json_escape(name), process,
                    microseconds(at), value));
}

void TraceSink::event(std::string_view body) {
  if (closed_) throw InternalError("an event for a closed trace");
  buffer_ += first_ ? "\n" : ",\n";
  first_ = false;
  buffer_ += body;
  if (buffer_.size() >= kBufferBytes) write_out();
}

void TraceSink::write_out() {
  file_.seekp(end_);
  file_.write(buffer_.data(), static_cast<std::streamsize>(buffer_.size()));
  end_ += static_cast<std::streamoff>(buffer_.size());
  buffer_.clear();
  // The tail only ever grows, so the next write covers it.
  file_ << fmt::format("\n], \"otherData\": {{\"dropped_events\": {}}}}}\n", dropped_);
  file_.flush();
}

void TraceSink::close() {
  if (closed_) return;
  closed_ = true;
  write_out();
  file_.close();
  if (!file_) throw UserError(fmt::format("{}: could not be written completely", path_.string()));
}

}  // namespace csdsim
