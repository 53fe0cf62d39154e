#include "experiment/block_io/requests/time_series.h"

#include <fmt/format.h>

#include <algorithm>

namespace csdsim::experiment::workload {

/// Completions come nearly in order, so the bucket is usually that of the previous one.
void TimeSeries::add(SimTime at, Bytes bytes, SimTime latency) {
  if (at < begin_ || at >= end_) look_up(at);
  Bucket& bucket = buckets_[current_];
  ++bucket.requests;
  bucket.bytes += bytes.value;
  bucket.latency_sum += latency;
  bucket.latency_max = std::max(bucket.latency_max, latency);
}

void TimeSeries::look_up(SimTime at) {
  while (static_cast<std::uint64_t>(at.ps / width_.ps) >= kMaxBuckets) {
    std::vector<Bucket> merged((buckets_.size() + 1) / 2);
    for (std::size_t i = 0; i < buckets_.size(); ++i) {
      Bucket& to = merged[i / 2];
      to.requests += buckets_[i].requests;
      to.bytes += buckets_[i].bytes;
      to.latency_sum += buckets_[i].latency_sum;
      to.latency_max = std::max(to.latency_max, buckets_[i].latency_max);
    }
    buckets_ = std::move(merged);
    width_ = width_ * 2;
  }
  current_ = static_cast<std::size_t>(at.ps / width_.ps);
  if (current_ >= buckets_.size()) buckets_.resize(current_ + 1);
  begin_ = width_ * static_cast<std::int64_t>(current_);
  end_ = begin_ + width_;
}

std::string TimeSeries::to_csv(SimTime end) const {
  std::string text = "start_s,seconds,requests,iops,bandwidth_bytes_per_s,latency_mean_ns,latency_max_ns\n";
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    const Bucket& b = buckets_[i];
    const SimTime start = width_ * static_cast<std::int64_t>(i);
    // If the run ends at the start of the last bucket, use the full width to avoid a division by zero.
    const SimTime span = end > start ? std::min(width_, end - start) : width_;
    const double seconds = span.seconds(), requests = static_cast<double>(b.requests);
    text += fmt::format("{},{},{},{},{},", start.seconds(), seconds, b.requests, requests / seconds,
                        static_cast<double>(b.bytes) / seconds);
    if (b.requests > 0)
      text += fmt::format("{},{}", static_cast<double>(b.latency_sum.ps) * 1e-3 / requests,
                          static_cast<double>(b.latency_max.ps) * 1e-3);
    else
      text += ",";
    text += "\n";
  }
  return text;
}

}  // namespace csdsim::experiment::workload
