// Reads block traces record by record, in constant memory.
#pragma once

#include <cstdint>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "experiment/requests/request.h"

namespace csdsim::experiment::workload {

enum class TraceFormat : std::uint8_t { msr, fio };

/// One recorded request in bytes, not yet fitted to a drive.
struct TraceRecord {
  RequestKind kind = RequestKind::read;
  Bytes offset;
  Bytes length;              ///< 0 only for a flush
  std::uint32_t stream = 0;  ///< disks (msr) or files (fio) in the order in which they first appear
  SimTime at{};  ///< since the first record; records may be earlier than the previous one, even than the first
  std::uint64_t line = 0;
  std::uint32_t offset_column = 0;
  std::uint32_t length_column = 0;
};

/// Reads the lines of a text file, and reports errors with line numbers.
class TraceLines {
 public:
  static constexpr std::size_t kLongestLine = 4096;

  /// Throws UserError when the file cannot be opened.
  explicit TraceLines(const std::string& file);

  /// Returns the next line that is not blank, without its line end; nothing at the end of the file. Throws UserError
  /// for a line that is longer than kLongestLine, contains a NUL character, or cannot be read. The text is valid until
  /// the next call.
  std::optional<std::string_view> next();
  std::uint64_t line() const { return line_; }
  /// Throws UserError "FILE:LINE:COLUMN: error: MESSAGE".
  [[noreturn]] void fail(std::uint64_t line, std::uint64_t column, const std::string& message) const;

 private:
  std::string file_;
  std::ifstream stream_;
  std::vector<char> buffer_;
  std::uint64_t line_ = 0;
};

/// A part of a line, and its start column, from 1.
struct TraceField {
  std::string_view text;
  std::uint32_t column = 1;
};

class TraceReader {
 public:
  explicit TraceReader(const std::string& file) : lines_(file) {}
  virtual ~TraceReader() = default;

  /// Returns the next request; nothing at the end. Throws UserError, located at the field, for text that violates the
  /// format.
  virtual std::optional<TraceRecord> next() = 0;
  const TraceLines& lines() const { return lines_; }

 protected:
  std::uint64_t number(const TraceField& field, std::string_view what) const;
  /// Stream number of the disk or file with this name.
  std::uint32_t stream_of(std::string_view name, const TraceField& field);
  [[noreturn]] void fail(const TraceField& field, const std::string& message) const {
    lines_.fail(lines_.line(), field.column, message);
  }

  TraceLines lines_;

 private:
  std::map<std::string, std::uint32_t, std::less<>> streams_;
};

/// MSR Cambridge (SNIA IOTTA 388; Narayanan, Donnelly, Rowstron, "Write off-loading", FAST 2008): lines
/// Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime; times in ticks of 100 ns, offset and size in bytes,
/// Type Read or Write. A heading is skipped. The first timestamp is the start of the trace.
class MsrTrace final : public TraceReader {
 public:
  using TraceReader::TraceReader;
  std::optional<TraceRecord> next() override;

 private:
  std::optional<std::uint64_t> start_;
};

/// fio's iolog, versions 2 and 3 (fio documentation, "Trace file format"). Files are added, opened and closed; an
/// offset is relative to its file. read, write and trim are requests, sync and datasync become flushes. In version 2
/// only `wait` advances time, by microseconds since the last wait; fio skips waits below 100 us, this reader does not.
/// In version 3 each line starts with a time in microseconds.
class FioTrace final : public TraceReader {
 public:
  explicit FioTrace(const std::string& file);
  std::optional<TraceRecord> next() override;

 private:
  enum class File : std::uint8_t { added, open, closed };
  void manage(const TraceField& name, const TraceField& action);
  SimTime microseconds(const TraceField& field, std::string_view what) const;

  std::uint32_t version_ = 0;
  SimTime clock_{};
  std::map<std::string, File, std::less<>> files_;
};

std::unique_ptr<TraceReader> open_trace(TraceFormat format, const std::string& file);

}  // namespace csdsim::experiment::workload
