#include "experiment/block_io/requests/trace_requests.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <limits>

#include "base/error.h"

namespace csdsim::experiment::workload {

namespace {

std::uint64_t saturated_sum(std::uint64_t a, std::uint64_t b) {
  return a > std::numeric_limits<std::uint64_t>::max() - b ? std::numeric_limits<std::uint64_t>::max() : a + b;
}

}  // namespace

TraceRequests::TraceRequests(const TraceConfig& config, TraceCounts& counts)
    : config_(config), counts_(counts), reader_(open_trace(config.format, config.file)) {
  if (config_.separate) lay_out();
}

/// Puts each disk or file behind those that appear before it. Their sizes are those that the trace shows, up to the
/// first line that cannot be read, which next() reports.
void TraceRequests::lay_out() {
  if (!std::filesystem::is_regular_file(config_.file)) return;  // can be read only once
  std::vector<std::uint64_t> ends;
  try {
    const auto reader = open_trace(config_.format, config_.file);
    while (const auto record = reader->next()) {
      ends.resize(std::max<std::size_t>(ends.size(), record->stream + 1));
      ends[record->stream] = std::max(ends[record->stream], saturated_sum(record->offset.value, record->length.value));
    }
  } catch (const UserError&) {
  }
  std::uint64_t begin = 0;
  for (const std::uint64_t end : ends) {
    begins_.push_back(begin);
    begin = saturated_sum(begin, end);
    begin = saturated_sum(begin, config_.block.value - 1) / config_.block.value * config_.block.value;
  }
}

bool PartialTrims::add(std::uint64_t block, std::uint64_t from, std::uint64_t to, std::uint64_t size) {
  auto& ranges = ranges_[block];
  // Joins all ranges that overlap or touch.
  auto at = ranges.upper_bound(to);
  while (at != ranges.begin() && std::prev(at)->second >= from) {
    --at;
    from = std::min(from, at->first);
    to = std::max(to, at->second);
    at = ranges.erase(at);
  }
  ranges.emplace(from, to);
  if (from > 0 || to < size) return false;
  ranges_.erase(block);
  return true;
}

void PartialTrims::forget(std::uint64_t first, std::uint64_t end) {
  ranges_.erase(ranges_.lower_bound(first), ranges_.lower_bound(end));
}

std::optional<BlockRequest> TraceRequests::next(std::uint32_t) {
  for (;;) {
    const std::optional<TraceRecord> record = reader_->next();
    if (!record) {
      counts_.torn_note = reader_->lines().torn_note();
      return std::nullopt;
    }
    if (std::optional<BlockRequest> request = request_of(*record)) return request;
  }
}

std::optional<BlockRequest> TraceRequests::request_of(const TraceRecord& taken) {
  const TraceRecord* const record = &taken;
  ++counts_.records;
  BlockRequest request;
  request.kind = record->kind;
  request.stream = record->stream;
  request.placement = record->placement;
  if (request.placement && !config_.placement)
    reader_->lines().fail(record->line, record->placement_column,
                          "PlacementIdentifier: the drive has no Flexible Data Placement, or it is off: give "
                          "platform.device.nvme.fdp: {enabled: true}");
  const auto scaled = static_cast<__int128>(record->at.ps) * config_.speed.denominator / config_.speed.numerator;
  if (scaled > std::numeric_limits<std::int64_t>::max())
    reader_->lines().fail(record->line, 1, "at this speed the request comes more than 106 days after the start");
  request.at = SimTime{static_cast<std::int64_t>(scaled)};
  if (request.at < last_) {
    ++counts_.backwards;
    request.at = last_;
  }
  last_ = request.at;
  if (request.kind != RequestKind::flush && !fit(request, *record)) return std::nullopt;
  return request;
}

bool TraceRequests::fit_trim(BlockRequest& request, std::uint64_t offset, std::uint64_t end) {
  const std::uint64_t block = config_.block.value;
  std::uint64_t first = (offset + block - 1) / block, last = end / block;  // whole blocks [first, last)
  const std::uint64_t head = offset / block, tail = end / block;
  if (head == tail) {  // a part of one block
    const bool whole = partial_.add(head, offset % block, end % block, block);
    first = head, last = head + (whole ? 1 : 0);
  } else {
    if (offset % block != 0 && partial_.add(head, offset % block, block, block)) first = head;
    if (end % block != 0 && partial_.add(tail, 0, end % block, block)) last = tail + 1;
  }
  partial_.forget(first, std::max(first, last));
  if (offset % block != 0 || end % block != 0) ++counts_.rounded_trims;
  request.offset = Bytes{first * block};
  request.length = Bytes{(std::max(first, last) - first) * block};
  if (request.length.value != 0) return true;
  ++counts_.empty_trims;
  return false;
}

bool TraceRequests::fit(BlockRequest& request, const TraceRecord& record) {
  const std::uint64_t block = config_.block.value, span = config_.span.value;
  // Check the end first, so that later sums cannot overflow.
  std::uint64_t offset = record.offset.value, length = record.length.value;
  if (record.stream < begins_.size()) {
    offset = saturated_sum(offset, begins_[record.stream]);
  } else if (config_.separate && record.stream > 0) {
    reader_->lines().fail(record.line, 1,
                          "a second disk or file: their ranges are known only from a file that can be "
                          "read twice, not from a pipe (streams: shared puts all at 0)");
  }
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
      reader_->lines().fail(
          record.line, first != offset ? record.offset_column : record.length_column,
          fmt::format("bytes {} to {} are not whole logical blocks of {} bytes (unaligned: extend "
                      "takes the blocks {})",
                      offset, offset + length, block,
                      request.kind == RequestKind::trim ? "that lie inside a trim" : "that they touch"));
  }
  if (request.kind == RequestKind::trim) return fit_trim(request, offset, offset + length);
  if (first != offset || end != offset + length) ++counts_.extended;
  if (request.kind == RequestKind::write) partial_.forget(first / block, end / block);
  request.offset = Bytes{first};
  request.length = Bytes{end - first};
  return true;
}

}  // namespace csdsim::experiment::workload
