#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "base/text.h"
#include "experiment/block_io/requests/trace_reader.h"

namespace csdsim::experiment::workload {
namespace {

/// What a first line says that is no header of an iolog.
std::string other_form(std::string_view line) {
  const std::vector<TextField> words = blank_separated(line), values = comma_separated(line);
  const auto number = [](std::string_view text) {
    return !text.empty() && text.find_first_not_of("0123456789.") == text.npos;
  };
  // "  8,0    3        1     0.000000000   697  G   W 223490 + 8 [kjournald]"
  if (words.size() >= 7 && words[0].text.find(',') != line.npos && number(words[1].text) && number(words[3].text))
    return "; this is text of blkparse: write a line 'TIME FILE ACTION OFFSET LENGTH' for each request, with times in "
           "us "
           "and 512 bytes per sector";
  if (values.size() == 3 && number(values[0].text) && number(values[1].text) && number(values[2].text))
    return "; this may be a log of version 1, which has no header";
  if (values.size() == 7) return "; this may be a trace of MSR (format: msr)";
  return "";
}

}  // namespace

FioTrace::FioTrace(const std::string& file) : TraceReader(file) {
  const std::optional<std::string_view> line = lines_.next();
  const std::string_view header = line ? line->substr(0, line->find_last_not_of(" \t") + 1) : "";
  if (header == "fio version 2 iolog") {
    version_ = 2;
  } else if (header == "fio version 3 iolog") {
    version_ = 3;
  } else {
    lines_.fail(line ? lines_.line() : 1, 1,
                fmt::format("expected 'fio version 2 iolog' or 'fio version 3 iolog', found '{}'{}",
                            line ? printable(*line) : "nothing", line ? other_form(*line) : ""));
  }
}

SimTime FioTrace::time(const TextField& field, std::string_view what, SimTime unit) const {
  const std::uint64_t value = number(field, what);
  if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max() / unit.ps))
    fail(field, fmt::format("{}: more than 106 days after the start", what));
  return SimTime{static_cast<std::int64_t>(value) * unit.ps};
}

/// Says what a line is that has no form of a record.
void FioTrace::refuse_words(const std::vector<TextField>& words, std::string_view line) const {
  const std::string_view time = version_ == 3 ? "TIME " : "";
  lines_.fail(
      lines_.line(), words.empty() ? line.size() + 1 : words.back().column,
      fmt::format("expected {}FILE ACTION or {}FILE ACTION OFFSET LENGTH, found {} words; a torn line is left where "
                  "fio was stopped, or where several jobs write one log",
                  time, time, words.size() + (version_ == 3)));
}

void FioTrace::manage(const TextField& name, const TextField& action) {
  const auto file = files_.find(name.text);
  if (action.text == "add") {
    if (file != files_.end()) fail(name, fmt::format("'{}' has been added before", printable(name.text)));
    stream_of(name.text, name);
    files_.emplace(name.text, File::added);
    return;
  }
  const bool open = action.text == "open";
  if (!open && action.text != "close")
    fail(action, fmt::format("'{}' is no action on a file: add, open, close, or read, write, trim, sync, datasync with "
                             "offset and length",
                             printable(action.text)));
  if (file == files_.end()) fail(name, fmt::format("'{}' has not been added", printable(name.text)));
  if (open == (file->second == File::open))
    fail(action, fmt::format("'{}' is {}open", printable(name.text), open ? "already " : "not "));
  file->second = open ? File::open : File::closed;
}

std::optional<TraceRecord> FioTrace::next() {
  while (const std::optional<std::string_view> line = lines_.next()) {
    if (line->starts_with("fio version "))
      lines_.fail(lines_.line(), 1,
                  "a second header: the log of several jobs; let each write its own (write_iolog of "
                  "the job, or numjobs=1)");
    std::vector<TextField> words = blank_separated(*line);
    TraceRecord record;
    record.line = lines_.line();
    if (version_ == 3) {
      record.at = time(words[0], "timestamp", SimTime::microseconds(1));
      words.erase(words.begin());
    } else {
      record.at = clock_;
    }
    if (words.size() != 2 && words.size() != 4) refuse_words(words, *line);
    if (words.size() == 2) {
      manage(words[0], words[1]);
      continue;
    }
    const std::string_view action = words[1].text;
    if (action == "wait") {
      if (version_ == 3) fail(words[1], "'wait' is not allowed in version 3: lines have times");
      clock_ = std::max(clock_, time(words[2], "wait", SimTime::microseconds(1000)));
      continue;
    }
    if (action == "read") {
      record.kind = RequestKind::read;
    } else if (action == "write") {
      record.kind = RequestKind::write;
    } else if (action == "trim") {
      record.kind = RequestKind::trim;
    } else if (action == "sync" || action == "datasync") {
      record.kind = RequestKind::flush;
    } else {
      fail(words[1], fmt::format("'{}' is no action: read, write, trim, sync, datasync{}", printable(action),
                                 version_ == 2 ? ", wait" : ""));
    }
    const auto file = files_.find(words[0].text);
    if (file == files_.end() || file->second != File::open)
      fail(words[0], fmt::format("'{}' is not open", printable(words[0].text)));
    record.stream = stream_of(words[0].text, words[0]);
    record.offset = Bytes{number(words[2], "offset")};
    record.offset_column = words[2].column;
    record.length = Bytes{number(words[3], "length")};
    record.length_column = words[3].column;
    if (record.kind == RequestKind::flush) {
      record.offset = record.length = Bytes{};
    } else if (record.length.value == 0) {
      fail(words[3], "length: a request of 0 bytes");
    }
    return record;
  }
  return std::nullopt;
}

}  // namespace csdsim::experiment::workload
