#include "host_runtime/core/planner/systems/flexgen_ssd/policy_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "host_runtime/core/planner/systems/flexgen_ssd/percent_program.h"

namespace csdsim::host {

namespace {

using Point = PercentProgram::Point;
using Coefficients = PercentProgram::Coefficients;

// Latencies that differ by less are equal.
constexpr double kEqual = 1e-6;
// Indices of percentages in a point, and of real variables behind them.
enum Percent : std::size_t { weights_gpu, weights_host, cache_gpu, cache_host, activations_gpu, activations_host };
constexpr std::size_t kFirstReal = PercentProgram::kPercents;
// Of equally fast placements, the one with most of the first percentage is taken, then of the second, and so on.
constexpr Percent kPreference[] = {weights_gpu, cache_gpu, activations_gpu, weights_host, cache_host, activations_host};
// Cost of a missing byte in GPU memory, host memory and on the disk: an error names the memory that is cheapest to
// enlarge.
constexpr double kMissingByte[kTiers] = {4, 2, 1};
// Precision of the bytes that an error says are missing.
constexpr double kMissingGain = 1 << 22;

FlexGenPolicy policy_at(FlexGenPolicy shape, const Point& p) {
  shape.weights = {.gpu = p[weights_gpu], .host = p[weights_host]};
  shape.cache = {.gpu = p[cache_gpu], .host = p[cache_host]};
  shape.activations = {.gpu = p[activations_gpu], .host = p[activations_host]};
  return shape;
}

/// cost = disk_value + slopes . percentages
struct Slopes {
  double disk_value;
  Coefficients slopes;
};

Slopes slopes_of(const LinearCost& cost) {
  Slopes s{.disk_value = cost.constant, .slopes = {}};
  std::size_t at = 0;
  for (const LinearCost::PerTier* c : {&cost.weights, &cost.cache, &cost.activations}) {
    s.disk_value += (*c)[2];
    s.slopes[at++] = ((*c)[0] - (*c)[2]) / 100;
    s.slopes[at++] = ((*c)[1] - (*c)[2]) / 100;
  }
  return s;
}

/// The largest value that any placement gives to any candidate.
double upper_limit(const std::vector<LinearCost>& candidates) {
  double limit = 0;
  for (const LinearCost& c : candidates)
    limit = std::max(limit, c.constant + *std::max_element(c.weights.begin(), c.weights.end()) +
                                *std::max_element(c.cache.begin(), c.cache.end()) +
                                *std::max_element(c.activations.begin(), c.activations.end()));
  return limit;
}

/// The percentages of one batch shape.
class ShapeSearch {
 public:
  ShapeSearch(const FlexGenCostModel& model, const FlexGenPolicy& shape, const FlexGenSearch& search)
      : shape_(shape), search_(search), bounds_(model.bounds(shape)), capacity_(model.hardware().capacity) {
    prefill_unit_ = upper_limit(bounds_.prefill) / 100;
    decode_unit_ = upper_limit(bounds_.decode) / 100;
  }

  /// The fastest placement that takes less than `cutoff` seconds.
  std::optional<PercentProgram::Solution> fastest(double cutoff) const {
    PercentProgram program(seconds_objective());
    restrict(program);
    add_memory(program);
    add_latency(program);
    return program.minimise(seconds_value(), {.relative = kEqual / 2}, cutoff);
  }

  /// Among the placements that are as fast as `best`, the preferred one.
  Point preferred(const PercentProgram::Solution& best) const {
    Point point = best.point;
    const double limit = best.value * (1 + kEqual);
    std::vector<Percent> settled;
    for (const Percent next : kPreference) {
      Coefficients objective{};
      objective[next] = -1;
      PercentProgram program(objective);
      restrict(program);
      for (const Percent p : settled) program.set_range(p, point[p], point[p]);
      add_memory(program);
      add_latency(program);
      program.at_most(seconds_objective(), limit);
      const auto value = [&](const Point& p) -> std::optional<double> {
        const std::optional<double> seconds = seconds_at(p);
        if (!seconds || *seconds > limit) return std::nullopt;
        return -static_cast<double>(p[next]);
      };
      if (const auto more = program.minimise(value, {.absolute = 1 - 1e-6}, -static_cast<double>(point[next])))
        point = more->point;
      settled.push_back(next);
    }
    return point;
  }

  bool fits() const {
    PercentProgram program({});
    restrict(program);
    add_memory(program);
    const auto value = [&](const Point& p) { return seconds_at(p) ? std::optional<double>(0) : std::nullopt; };
    return program.minimise(value, {}).has_value();
  }

  /// The placement with the fewest missing bytes, and those bytes weighted with kMissingByte.
  std::optional<PercentProgram::Solution> closest() const {
    Coefficients objective{};
    std::array<double, kTiers> units{};
    for (std::size_t tier = 0; tier < kTiers; ++tier) {
      units[tier] = upper_limit(bounds_.memory[tier]) / 100;
      objective[kFirstReal + tier] = kMissingByte[tier] * units[tier];
    }
    PercentProgram program(objective);
    restrict(program);
    for (std::size_t tier = 0; tier < kTiers; ++tier)
      for (const LinearCost& candidate : bounds_.memory[tier]) {
        Slopes s = slopes_of(candidate);
        s.slopes[kFirstReal + tier] = -units[tier];
        program.at_most(s.slopes, static_cast<double>(capacity_[tier].value) - s.disk_value);
      }
    const auto value = [&](const Point& p) -> std::optional<double> {
      if (!allowed(p)) return std::nullopt;
      const FlexGenMemory peak = bounds_.peak_memory(policy_at(shape_, p));
      double missing = 0;
      for (std::size_t tier = 0; tier < kTiers; ++tier)
        if (peak[tier] > capacity_[tier])
          missing += kMissingByte[tier] * static_cast<double>((peak[tier] - capacity_[tier]).value);
      return missing;
    };
    return program.minimise(value, {.absolute = kMissingGain});
  }

  FlexGenMemory peak_at(const Point& p) const { return bounds_.peak_memory(policy_at(shape_, p)); }
  const FlexGenPolicy& shape() const { return shape_; }

 private:
  /// Whether the shares of each kind of data add up, and activations are where they may be.
  bool allowed(const Point& p) const {
    for (std::size_t kind = 0; kind < PercentProgram::kPercents; kind += 2)
      if (p[kind] + p[kind + 1] > 100) return false;
    return (search_.activations_on_disk || p[activations_gpu] + p[activations_host] == 100) &&
           (search_.weights_on_disk || p[weights_gpu] + p[weights_host] == 100);
  }

  /// Seconds of a placement that is allowed and fits.
  std::optional<double> seconds_at(const Point& p) const {
    if (!allowed(p)) return std::nullopt;
    const FlexGenPolicy policy = policy_at(shape_, p);
    const FlexGenMemory peak = bounds_.peak_memory(policy);
    for (std::size_t tier = 0; tier < kTiers; ++tier)
      if (peak[tier] > capacity_[tier]) return std::nullopt;
    return bounds_.seconds(policy);
  }
  PercentProgram::Value seconds_value() const {
    return [this](const Point& p) { return seconds_at(p); };
  }

  Coefficients seconds_objective() const {
    Coefficients c{};
    c[kFirstReal] = prefill_unit_ * bounds_.prefill_layers;
    c[kFirstReal + 1] = decode_unit_ * bounds_.decode_layers;
    return c;
  }

  void restrict(PercentProgram& program) const {
    const std::pair<const std::optional<TierSplit>*, Percent> fixed[] = {
        {&search_.weights, weights_gpu}, {&search_.cache, cache_gpu}, {&search_.activations, activations_gpu}};
    for (const auto& [split, first] : fixed) {
      Coefficients both{};
      both[first] = both[first + 1] = 1;
      program.at_most(both, 100);
      if (!*split) continue;
      program.set_range(first, (*split)->gpu, (*split)->gpu);
      program.set_range(first + 1, (*split)->host, (*split)->host);
    }
    const auto keep_off_disk = [&](Percent gpu, Percent host) {
      Coefficients rest{};
      rest[gpu] = rest[host] = -1;
      program.at_most(rest, -100);
    };
    if (!search_.activations_on_disk) keep_off_disk(activations_gpu, activations_host);
    if (!search_.weights_on_disk) keep_off_disk(weights_gpu, weights_host);
  }

  void add_memory(PercentProgram& program) const {
    for (std::size_t tier = 0; tier < kTiers; ++tier)
      for (const LinearCost& candidate : bounds_.memory[tier]) {
        const Slopes s = slopes_of(candidate);
        program.at_most(s.slopes, static_cast<double>(capacity_[tier].value) - s.disk_value);
      }
  }

  void add_latency(PercentProgram& program) const {
    const auto add = [&](const std::vector<LinearCost>& candidates, std::size_t real, double unit) {
      for (const LinearCost& candidate : candidates) {
        Slopes s = slopes_of(candidate);
        s.slopes[real] = -unit;
        program.at_most(s.slopes, -s.disk_value);
      }
    };
    add(bounds_.prefill, kFirstReal, prefill_unit_);
    add(bounds_.decode, kFirstReal + 1, decode_unit_);
  }

  FlexGenPolicy shape_;
  const FlexGenSearch& search_;
  FlexGenBounds bounds_;
  FlexGenMemory capacity_;
  double prefill_unit_, decode_unit_;  // seconds per unit of the real variables T_pre and T_gen
};

/// The shape with attention on the host and on the GPU, as far as the search may choose; the preferred one last.
std::vector<FlexGenPolicy> with_attention(const FlexGenSearch& search, std::uint32_t gpu_batch_size,
                                          std::uint32_t num_gpu_batches) {
  FlexGenPolicy shape{.gpu_batch_size = gpu_batch_size, .num_gpu_batches = num_gpu_batches, .overlap = search.overlap};
  std::vector<FlexGenPolicy> shapes;
  for (const bool at_host : {true, false}) {
    if (search.cpu_cache_compute.value_or(at_host) != at_host) continue;
    shape.cpu_cache_compute = at_host;
    shapes.push_back(shape);
  }
  return shapes;
}

void validate(const FlexGenSearch& search, std::uint32_t batch) {
  if (batch == 0) throw UserError("flexgen: the batch is empty");
  FlexGenPolicy fixed{.gpu_batch_size = search.gpu_batch_size.value_or(1)};
  if (search.weights) fixed.weights = *search.weights;
  if (search.cache) fixed.cache = *search.cache;
  if (search.activations) fixed.activations = *search.activations;
  fixed.validate();
  const auto check = [](const char* what, const std::optional<TierSplit>& split, bool on_disk) {
    if (split && !on_disk && split->disk() != 0)
      throw UserError(fmt::format("flexgen: {} leaves {} % for the disk, where they may not be", what, split->disk()));
  };
  check("activations", search.activations, search.activations_on_disk);
  check("weights", search.weights, search.weights_on_disk);
}

/// The largest batch of which some placement fits; 0 if not even the smallest does. Memory grows with the number of GPU
/// batches and with their size, so the smallest GPU batches are the ones to try.
std::uint32_t largest_that_fits(const FlexGenCostModel& model, std::uint32_t batch, const FlexGenSearch& search) {
  const std::uint32_t size = search.gpu_batch_size.value_or(1);
  std::uint32_t fitting = 0, too_many = batch / size + 1;
  while (too_many - fitting > 1) {
    const std::uint32_t middle = fitting + (too_many - fitting) / 2;
    bool fits = false;
    for (const FlexGenPolicy& shape : with_attention(search, size, middle))
      fits = fits || ShapeSearch(model, shape, search).fits();
    (fits ? fitting : too_many) = middle;
  }
  return fitting * size;
}

[[noreturn]] void refuse(const FlexGenCostModel& model, std::uint32_t batch, const FlexGenSearch& search) {
  const std::uint32_t size = search.gpu_batch_size.value_or(1);
  std::optional<PercentProgram::Solution> closest;
  FlexGenMemory needed{};
  for (const FlexGenPolicy& shape : with_attention(search, size, batch / size)) {
    const ShapeSearch shape_search(model, shape, search);
    const std::optional<PercentProgram::Solution> found = shape_search.closest();
    if (!found || (closest && found->value >= closest->value)) continue;
    closest = found;
    needed = shape_search.peak_at(found->point);
  }
  const std::uint32_t fitting = largest_that_fits(model, batch, search);
  throw UserError(fmt::format("flexgen: no placement of {} sequence{} of {} + {} tokens fits: {}; {}", batch,
                              batch == 1 ? "" : "s", model.lengths().prompt_tokens, model.lengths().output_tokens,
                              flexgen_shortage(needed, model.hardware().capacity),
                              fitting == 0 ? fmt::format("not even {} fit{}", size, size == 1 ? "s" : "")
                                           : fmt::format("at most {} fit", fitting)));
}

/// Keeps the best choice while shapes are tried, the least preferred ones first: these have the smallest GPU batches,
/// which need the least memory, so that their latency soon excludes other shapes.
class Best {
 public:
  Best(const FlexGenCostModel& model, const FlexGenSearch& search) : model_(model), search_(search) {}

  void consider(const FlexGenPolicy& shape) {
    const double tokens = static_cast<double>(shape.block() * model_.lengths().output_tokens);
    const double cutoff = rate_ == 0 ? std::numeric_limits<double>::infinity() : tokens / rate_ * (1 + kEqual);
    const auto found = ShapeSearch(model_, shape, search_).fastest(cutoff);
    if (!found) return;
    rate_ = std::max(rate_, tokens / found->value);
    found_ = found;
    shape_ = shape;
  }

  std::optional<FlexGenChoice> choice() const {
    if (!found_) return std::nullopt;
    const FlexGenPolicy policy = policy_at(shape_, ShapeSearch(model_, shape_, search_).preferred(*found_));
    return FlexGenChoice{.policy = policy,
                         .seconds = model_.seconds(policy),
                         .tokens_per_second = model_.tokens_per_second(policy),
                         .memory = model_.peak_memory(policy)};
  }

 private:
  const FlexGenCostModel& model_;
  const FlexGenSearch& search_;
  double rate_ = 0;  // most tokens per second of any shape
  std::optional<PercentProgram::Solution> found_;
  FlexGenPolicy shape_;
};

}  // namespace

FlexGenChoice best_flexgen_policy(const FlexGenCostModel& model, std::uint32_t batch, const FlexGenSearch& search) {
  validate(search, batch);
  if (search.gpu_batch_size && batch % *search.gpu_batch_size != 0)
    throw UserError(fmt::format("flexgen: gpu_batch_size {} does not divide a batch of {} sequences",
                                *search.gpu_batch_size, batch));
  Best best(model, search);
  for (std::uint32_t size = 1; size <= batch; ++size)
    if (batch % size == 0 && size == search.gpu_batch_size.value_or(size))
      for (const FlexGenPolicy& shape : with_attention(search, size, batch / size)) best.consider(shape);
  if (const std::optional<FlexGenChoice> choice = best.choice()) return *choice;
  refuse(model, batch, search);
}

FlexGenChoice best_flexgen_block(const FlexGenCostModel& model, std::uint32_t largest_block,
                                 const FlexGenSearch& search) {
  validate(search, largest_block);
  if (search.gpu_batch_size && *search.gpu_batch_size > largest_block)
    throw UserError(fmt::format("flexgen: gpu_batch_size {} is larger than a block of at most {} sequences",
                                *search.gpu_batch_size, largest_block));
  std::vector<std::uint32_t> sizes;
  if (search.gpu_batch_size) {
    sizes = {*search.gpu_batch_size};
  } else {
    for (std::uint64_t size = 1; size <= largest_block; size += size < 4 ? 1 : size)
      sizes.push_back(static_cast<std::uint32_t>(size));
  }
  Best best(model, search);
  for (const std::uint32_t size : sizes)
    for (std::uint32_t batches = largest_block / size; batches > 0; --batches)
      for (const FlexGenPolicy& shape : with_attention(search, size, batches)) best.consider(shape);
  if (const std::optional<FlexGenChoice> choice = best.choice()) return *choice;
  refuse(model, search.gpu_batch_size.value_or(1), search);
}

}  // namespace csdsim::host
