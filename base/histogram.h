// Distribution of non-negative integers (picoseconds, pages) with percentiles that are exact while samples are few and
// within 0.1 % afterwards, in bounded memory.
#pragma once

#include <cstdint>
#include <vector>

namespace csdsim {

class Histogram {
 public:
  /// Samples that are kept as they are, before buckets take over.
  static constexpr std::size_t kExactSamples = std::size_t{1} << 16;

  void add(std::uint64_t value);
  /// Adds all samples of `other`: the same as if they had been added here.
  void add(const Histogram& other);

  std::uint64_t count() const { return count_; }
  /// min, max, mean and quantile are 0 while there is no sample.
  std::uint64_t min() const { return count_ ? min_ : 0; }
  std::uint64_t max() const { return max_; }
  double mean() const;

  /// Nearest rank: the smallest value that at least ceil(numerator/denominator * count) samples do not exceed. p99 is
  /// quantile(99). Exact up to kExactSamples samples; then off by less than one part in 2,000. quantile(0) is the
  /// minimum and quantile(denominator) the maximum, always exact. Precondition: numerator <= denominator, denominator >
  /// 0.
  std::uint64_t quantile(std::uint32_t numerator, std::uint32_t denominator = 100) const;

 private:
  static std::size_t bucket_of(std::uint64_t value);
  static std::uint64_t middle_of(std::size_t bucket);
  void add_to_bucket(std::uint64_t value);
  void give_up_samples();

  std::uint64_t count_ = 0;
  std::uint64_t min_ = ~std::uint64_t{0};
  std::uint64_t max_ = 0;
  unsigned __int128 sum_ = 0;
  mutable std::vector<std::uint64_t> samples_;  ///< sorted up to sorted_
  mutable std::size_t sorted_ = 0;
  std::vector<std::uint64_t> buckets_;
};

}  // namespace csdsim
