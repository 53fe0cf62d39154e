#include "base/histogram.h"

#include <algorithm>
#include <bit>

namespace csdsim {
namespace {
// Values below 2^10 have a bucket each; above, every power of two is cut into 2^10 buckets, so that a bucket is at most
// 1/1024 of its values wide and its middle at most half of that away.
constexpr unsigned kBits = 10;
constexpr std::uint64_t kSub = std::uint64_t{1} << kBits;
}  // namespace

std::size_t Histogram::bucket_of(std::uint64_t value) {
  if (value < kSub) return static_cast<std::size_t>(value);
  const unsigned shift = static_cast<unsigned>(std::bit_width(value)) - kBits - 1;
  return static_cast<std::size_t>((std::uint64_t{shift} << kBits) + (value >> shift));
}

std::uint64_t Histogram::middle_of(std::size_t bucket) {
  if (bucket < kSub) return bucket;
  const std::uint64_t shift = (bucket >> kBits) - 1;
  const std::uint64_t low = (bucket - (shift << kBits)) << shift;
  return low + ((std::uint64_t{1} << shift) >> 1);
}

void Histogram::add_to_bucket(std::uint64_t value) {
  const std::size_t bucket = bucket_of(value);
  if (bucket >= buckets_.size()) buckets_.resize(bucket + 1);
  ++buckets_[bucket];
}

void Histogram::add(std::uint64_t value) {
  ++count_;
  min_ = std::min(min_, value);
  max_ = std::max(max_, value);
  sum_ += value;
  if (!buckets_.empty()) {
    add_to_bucket(value);
  } else {
    samples_.push_back(value);
    if (samples_.size() > kExactSamples) give_up_samples();
  }
}

void Histogram::give_up_samples() {
  for (const std::uint64_t sample : samples_) add_to_bucket(sample);
  samples_ = {};
  sorted_ = 0;
}

void Histogram::add(const Histogram& other) {
  count_ += other.count_;
  min_ = std::min(min_, other.min_);
  max_ = std::max(max_, other.max_);
  sum_ += other.sum_;
  samples_.insert(samples_.end(), other.samples_.begin(), other.samples_.end());
  if (count_ <= kExactSamples) return;
  give_up_samples();
  if (buckets_.size() < other.buckets_.size()) buckets_.resize(other.buckets_.size());
  for (std::size_t i = 0; i < other.buckets_.size(); ++i) buckets_[i] += other.buckets_[i];
}

double Histogram::mean() const { return count_ ? static_cast<double>(sum_) / static_cast<double>(count_) : 0; }

std::uint64_t Histogram::quantile(std::uint32_t numerator, std::uint32_t denominator) const {
  if (count_ == 0) return 0;
  const auto rank =
      static_cast<std::uint64_t>((static_cast<unsigned __int128>(count_) * numerator + denominator - 1) / denominator);
  if (rank <= 1) return min_;
  if (rank >= count_) return max_;
  if (buckets_.empty()) {
    if (sorted_ != samples_.size()) {
      std::sort(samples_.begin(), samples_.end());
      sorted_ = samples_.size();
    }
    return samples_[static_cast<std::size_t>(rank - 1)];
  }
  std::uint64_t below = 0;
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    below += buckets_[i];
    if (below >= rank) return std::clamp(middle_of(i), min_, max_);
  }
  return max_;
}

}  // namespace csdsim
