#include "experiment/requests/trace_requests.h"

#include <fmt/format.h>

#include <limits>

namespace csdsim::experiment::workload {

TraceRequests::TraceRequests(const TraceConfig& config, TraceCounts& counts)
    : config_(config), counts_(counts), reader_(open_trace(config.format, config.file)) {}

std::optional<Request> TraceRequests::next(std::uint32_t) {
  const std::optional<TraceRecord> record = reader_->next();
  if (!record) return std::nullopt;
  ++counts_.records;
  Request request;
  request.kind = record->kind;
  request.stream = record->stream;
  const auto scaled = static_cast<__int128>(record->at.ps) * config_.speed.denominator / config_.speed.numerator;
  if (scaled > std::numeric_limits<std::int64_t>::max())
    reader_->lines().fail(record->line, 1, "at this speed the request comes more than 106 days after the start");
  request.at = SimTime{static_cast<std::int64_t>(scaled)};
  if (request.at < last_) {
    ++counts_.backwards;
    request.at = last_;
  }
  last_ = request.at;
  if (request.kind != RequestKind::flush) fit(request, *record);
  return request;
}

void TraceRequests::fit(Request& request, const TraceRecord& record) {
  const std::uint64_t block = config_.block.value, span = config_.span.value;
  // Check the end first, so that later sums cannot overflow.
  std::uint64_t offset = record.offset.value, length = record.length.value;
  if (length > span)
    reader_->lines().fail(record.line, record.length_column,
                          fmt::format("a request of {} bytes on a drive of {} bytes", length, span));
  if (offset > span - length) {
    if (config_.beyond == Misfit::refuse)
      reader_->lines().fail(record.line, record.offset_column,
                            fmt::format("bytes {} to {} lie beyond the drive, which has {} bytes (beyond: wrap moves "
                                        "them inside)",
                                        offset, static_cast<unsigned __int128>(offset) + length, span));
    ++counts_.wrapped;
    offset %= span;
    // A request that would cross the end is moved in front of it.
    if (offset > span - length) offset = span - length;
  }
  const std::uint64_t first = offset / block * block;
  const std::uint64_t end = (offset + length + block - 1) / block * block;
  if (first != offset || end != offset + length) {
    if (config_.unaligned == Misfit::refuse)
      reader_->lines().fail(record.line, first != offset ? record.offset_column : record.length_column,
                            fmt::format("bytes {} to {} are not whole logical blocks of {} bytes (unaligned: extend "
                                        "takes the blocks that they touch)",
                                        offset, offset + length, block));
    ++counts_.extended;
  }
  request.offset = Bytes{first};
  request.length = Bytes{end - first};
}

}  // namespace csdsim::experiment::workload
