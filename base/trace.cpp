#include "base/trace.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/text.h"

namespace csdsim {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 18;
/// Room for what is written behind the last event.
constexpr std::uint64_t kTailBytes = 500;

/// Picoseconds as microseconds.
std::string microseconds(SimTime t) { return fmt::format("{}.{:06}", t.ps / 1'000'000, t.ps % 1'000'000); }

std::string on(TraceTrack track) { return fmt::format(R"("pid":{},"tid":{})", track.process, track.thread); }

std::string arguments(TraceSink::Args args) {
  if (args.size() == 0) return "";
  std::string text;
  for (const auto& [key, value] : args) {
    text += fmt::format("{}\"{}\":", text.empty() ? "" : ",", json_escape(key));
    if (const auto* number = std::get_if<std::uint64_t>(&value))
      text += fmt::format("{}", *number);
    else
      text += fmt::format("\"{}\"", json_escape(std::get<std::string_view>(value)));
  }
  return ",\"args\":{" + text + "}";
}

}  // namespace

TraceSink::TraceSink(const std::filesystem::path& path, Bytes limit) : path_(path), limit_(limit) {
  if (limit < kLeastLimit)
    throw UserError(fmt::format("a trace of at most {} bytes has no room for events; at least {} are needed",
                                limit.value, kLeastLimit.value));
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

std::uint32_t TraceSink::process(std::string_view name, std::uint32_t place) {
  const std::uint32_t id = ++processes_;
  event(fmt::format(R"({{"ph":"M","name":"process_name","pid":{},"tid":0,"args":{{"name":"{}"}}}})", id,
                    json_escape(name)),
        false, {});
  event(fmt::format(R"({{"ph":"M","name":"process_sort_index","pid":{},"tid":0,"args":{{"sort_index":{}}}}})", id,
                    place == 0 ? id : place),
        false, {});
  return id;
}

TraceTrack TraceSink::track(std::uint32_t process, std::string_view name, std::uint32_t place, bool detail) {
  const TraceTrack track{process, ++threads_, detail};
  event(fmt::format(R"({{"ph":"M","name":"thread_name",{},"args":{{"name":"{}"}}}})", on(track), json_escape(name)),
        detail, {});
  event(fmt::format(R"({{"ph":"M","name":"thread_sort_index",{},"args":{{"sort_index":{}}}}})", on(track),
                    place == 0 ? track.thread : place),
        detail, {});
  return track;
}

void TraceSink::complete(TraceTrack track, std::string_view name, SimTime start, SimTime duration, Args args) {
  event(fmt::format(R"({{"ph":"X","name":"{}",{},"ts":{},"dur":{}{}}})", json_escape(name), on(track),
                    microseconds(start), microseconds(duration), arguments(args)),
        track.detail, start);
}

void TraceSink::async(TraceTrack track, std::string_view category, std::string_view name, SimTime start, SimTime end,
                      Args args) {
  const std::string common = fmt::format(R"("cat":"{}","id2":{{"local":"{:#x}"}},"name":"{}",{})",
                                         json_escape(category), ++async_ids_, json_escape(name), on(track));
  // Both or none: a begin without its end would last to the end of the trace.
  event(fmt::format("{{\"ph\":\"b\",{0},\"ts\":{1}{2}}},\n{{\"ph\":\"e\",{0},\"ts\":{3}}}", common, microseconds(start),
                    arguments(args), microseconds(end)),
        track.detail, start);
}

void TraceSink::counter(TraceTrack track, std::string_view name, SimTime at, double value) {
  event(fmt::format(R"({{"ph":"C","name":"{}","pid":{},"ts":{},"args":{{"value":{}}}}})", json_escape(name),
                    track.process, microseconds(at), value),
        track.detail, at);
}

void TraceSink::flow(TraceTrack track, std::string_view name, std::uint64_t id, FlowStep step, SimTime at) {
  const char phase = step == FlowStep::begin ? 's' : step == FlowStep::step ? 't' : 'f';
  event(fmt::format(R"({{"ph":"{}","cat":"flow","bp":"e","name":"{}","id":{},{},"ts":{}}})", phase, json_escape(name),
                    id, on(track), microseconds(at)),
        track.detail, at);
}

void TraceSink::event(const std::string& body, bool detail, SimTime at) {
  if (closed_) throw InternalError("an event for a closed trace");
  const std::uint64_t room = (detail ? limit_.value / 4 * 3 : limit_.value) - kTailBytes;
  if (size() + body.size() + 2 <= room) return append(body);
  ++dropped_;
  if (!first_dropped_ || at < *first_dropped_) first_dropped_ = at;
}

void TraceSink::append(std::string_view body) {
  buffer_ += first_ ? "\n" : ",\n";
  first_ = false;
  buffer_ += body;
  if (buffer_.size() >= kBufferBytes) write_out();
}

std::string TraceSink::tail() const {
  std::string text =
      fmt::format("\n], \"otherData\": {{\"limit_bytes\": {}, \"dropped_events\": {}", limit_.value, dropped_);
  if (first_dropped_) text += fmt::format(", \"first_dropped_us\": {}", microseconds(*first_dropped_));
  return text + "}}\n";
}

void TraceSink::write_out() {
  file_.seekp(end_);
  file_.write(buffer_.data(), static_cast<std::streamsize>(buffer_.size()));
  end_ += static_cast<std::streamoff>(buffer_.size());
  buffer_.clear();
  // The tail only ever grows, so the next write covers it.
  file_ << tail();
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
