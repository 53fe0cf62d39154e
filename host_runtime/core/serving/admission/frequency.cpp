#include "host_runtime/core/serving/admission/frequency.h"

#include <algorithm>
#include <bit>

#include "base/rng.h"
#include "base/settings_reader.h"

namespace csdsim::host {

namespace {

/// What an unlimited tier is counted as, and the largest one for which the window follows the capacity: 64 MiB of
/// counters.
constexpr std::uint64_t kUnlimited = 1 << 17, kLargest = 1 << 20;

}  // namespace

FrequencyAdmission::FrequencyAdmission(const CachePolicyContext& context) {
  const std::uint64_t blocks = std::clamp<std::uint64_t>(context.capacity.value_or(kUnlimited), 16, kLargest);
  SettingsReader settings(kName, context);
  threshold_ = settings.value("threshold", std::uint32_t{2}, {1, kMost});
  window_ = settings.value("window", 10 * blocks, {1, 1ull << 32});
  settings.finish();
  columns_ = std::bit_ceil(window_);
  counters_.resize(columns_ * kRows);
}

std::size_t FrequencyAdmission::counter(KvBlockId id, std::uint32_t row) const {
  return row * columns_ + (counter_random(id.value, row) & (columns_ - 1));
}

std::uint32_t FrequencyAdmission::estimate(KvBlockId id) const {
  std::uint8_t least = kMost;
  for (std::uint32_t row = 0; row < kRows; ++row) least = std::min(least, counters_[counter(id, row)]);
  return least;
}

void FrequencyAdmission::seen(KvBlockId id) {
  // Only the smallest counters grow ("conservative update"): the others count other blocks, too.
  const std::uint32_t before = estimate(id);
  for (std::uint32_t row = 0; row < kRows; ++row) {
    std::uint8_t& count = counters_[counter(id, row)];
    if (count == before && count < kMost) ++count;
  }
  if (++sightings_ < window_) return;
  sightings_ = 0;
  for (std::uint8_t& count : counters_) count = static_cast<std::uint8_t>(count / 2);
}

}  // namespace csdsim::host
