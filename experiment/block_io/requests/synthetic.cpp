#include "experiment/block_io/requests/synthetic.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace csdsim::experiment::workload {

namespace {

constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t step) { return (value + step - 1) / step * step; }

}  // namespace

SyntheticRequests::SyntheticRequests(const SyntheticConfig& config)
    : config_(config),
      size_rng_(config.seed, "block_io.size"),
      trim_rng_(config.seed, "block_io.trim"),
      arrival_rng_(config.seed, "block_io.arrival") {
  // If all requests have the same size, the working set is a whole number of requests.
  const std::uint64_t grain =
      config.sizes.size() == 1 && !config.alignment ? config.sizes[0].value : config.block.value;
  part_ = config.working_set.value / config.streams / grain * grain;
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < config.sizes.size(); ++i)
    cumulative_weights_.push_back(sum += config.weights.empty() ? 1 : config.weights[i]);
  for (std::uint32_t s = 0; s < config.streams; ++s) {
    const std::string name = s == 0 ? "block_io" : fmt::format("block_io.{}", s);
    Stream stream{Rng(config.seed, name), s * part_, s * part_, {}};
    for (std::size_t i = 0; i < config.sizes.size(); ++i)
      stream.places.push_back(
          places_of(stream.begin, config.sizes[i], counter_random(config.seed, s * config.sizes.size() + i)));
    streams_.push_back(std::move(stream));
  }
}

SyntheticRequests::Places SyntheticRequests::places_of(std::uint64_t begin, Bytes size, std::uint64_t seed) const {
  Places places;
  const bool sequential = config_.placement == Placement::sequential;
  places.step = config_.alignment.value_or(sequential ? config_.block : size).value;
  places.first = round_up(begin, places.step);
  const std::uint64_t end = begin + part_;
  if (places.first + size.value > end)
    throw UserError(
        fmt::format("workload: a working set of {} B per stream holds no request of {} B at a multiple of {} B", part_,
                    size.value, places.step));
  places.count = (end - size.value - places.first) / places.step + 1;
  if (config_.placement == Placement::zipf) {
    places.zipf.emplace(places.count, config_.zipf_exponent);
    places.scatter.emplace(places.count, seed);
  }
  return places;
}

std::size_t SyntheticRequests::draw_size() {
  if (config_.sizes.size() == 1) return 0;
  const std::uint64_t drawn = size_rng_.below(cumulative_weights_.back());
  return static_cast<std::size_t>(std::ranges::upper_bound(cumulative_weights_, drawn) - cumulative_weights_.begin());
}

std::uint64_t SyntheticRequests::draw_offset(Stream& stream, std::size_t size) const {
  const Places& places = stream.places[size];
  switch (config_.placement) {
    case Placement::random:
      return places.first + places.step * stream.rng.below(places.count);
    case Placement::zipf:
      return places.first + places.step * (*places.scatter)((*places.zipf)(stream.rng));
    case Placement::sequential:
      break;
  }
  const std::uint64_t length = config_.sizes[size].value;
  std::uint64_t at = round_up(stream.position, places.step);
  if (at + length > stream.begin + part_) at = places.first;
  stream.position = at + length;
  return at;
}

std::optional<BlockRequest> SyntheticRequests::next(std::uint32_t stream) {
  BlockRequest request;
  request.stream = stream;
  if (config_.arrivals) {
    request.stream = static_cast<std::uint32_t>(made_ % config_.streams);
    if (made_ > 0) {
      const double mean = static_cast<double>(config_.arrivals->mean.ps);
      clock_ += config_.arrivals->exponential ? SimTime{std::llround(-mean * std::log1p(-arrival_rng_.unit()))}
                                              : config_.arrivals->mean;
    }
    request.at = clock_;
  }
  ++made_;
  Stream& from = streams_[request.stream];
  const std::size_t size = draw_size();
  if (config_.trims > 0 && trim_rng_.unit() < config_.trims) {
    request.kind = RequestKind::trim;
  } else {
    const bool read = config_.reads >= 1 || (config_.reads > 0 && from.rng.unit() < config_.reads);
    request.kind = read ? RequestKind::read : RequestKind::write;
  }
  request.length = config_.sizes[size];
  request.offset = Bytes{draw_offset(from, size)};
  return request;
}

}  // namespace csdsim::experiment::workload
