// Reads block traces record by record, in constant memory.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/text_file.h"
#include "experiment/block_io/requests/block_request.h"

namespace csdsim::experiment::workload {

enum class TraceFormat : std::uint8_t { msr, fio };

/// One recorded request in bytes, not yet fitted to a drive.
struct TraceRecord {
  RequestKind kind = RequestKind::read;
  Bytes offset;
  Bytes length;                            ///< 0 only for a flush
  std::uint32_t stream = 0;                ///< disks (msr) or files (fio) in the order in which they first appear
  std::optional<std::uint16_t> placement;  ///< placement identifier of a write
  SimTime at{};  ///< since the first record; records may be earlier than the previous one, even than the first
  std::uint64_t line = 0;
  std::uint32_t offset_column = 0;
  std::uint32_t length_column = 0;
  std::uint32_t placement_column = 0;
};

class TraceReader {
 public:
  explicit TraceReader(const std::string& file) : lines_(file) {}
  virtual ~TraceReader() = default;

  /// Returns the next request; nothing at the end. Throws UserError, located at the field, for text that violates the
  /// format.
  virtual std::optional<TraceRecord> next() = 0;
  const TextLines& lines() const { return lines_; }

 protected:
  std::uint64_t number(const TextField& field, std::string_view what) const;
  /// Stream number of the disk or file with this name.
  std::uint32_t stream_of(std::string_view name, const TextField& field);
  [[noreturn]] void fail(const TextField& field, const std::string& message) const {
    lines_.fail(lines_.line(), field.column, message);
  }

  TextLines lines_;

 private:
  std::map<std::string, std::uint32_t, std::less<>> streams_;
};

/// MSR Cambridge (SNIA IOTTA 388; Narayanan, Donnelly, Rowstron, "Write off-loading", FAST 2008): lines
/// Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime; times in ticks of 100 ns, offset and size in bytes,
/// Type Read or Write. An eighth field, which these traces do not have, is the placement identifier of a write, or
/// empty. A heading is skipped. The first timestamp is the start of the trace.
class MsrTrace final : public TraceReader {
 public:
  using TraceReader::TraceReader;
  std::optional<TraceRecord> next() override;

 private:
  std::optional<std::uint64_t> start_;
};

/// fio's iolog, versions 2 and 3 (fio documentation, "Trace file format"). Files are added, opened and closed; an
/// offset is relative to its file. read, write and trim are requests, sync and datasync become flushes. In version 2
/// only `wait` advances time, to a number of milliseconds after the start: fio's read_iolog_get (iolog.c) sleeps until
/// mtime_since_genesis() has reached it, although its manual says microseconds. In version 3 each line starts with a
/// time in microseconds.
class FioTrace final : public TraceReader {
 public:
  explicit FioTrace(const std::string& file);
  std::optional<TraceRecord> next() override;

 private:
  enum class File : std::uint8_t { added, open, closed };
  void manage(const TextField& name, const TextField& action);
  SimTime time(const TextField& field, std::string_view what, SimTime unit) const;
  [[noreturn]] void refuse_words(const std::vector<TextField>& words, std::string_view line) const;

  std::uint32_t version_ = 0;
  SimTime clock_{};
  std::map<std::string, File, std::less<>> files_;
};

std::unique_ptr<TraceReader> open_trace(TraceFormat format, const std::string& file);

}  // namespace csdsim::experiment::workload
