#include "host_runtime/core/features/token_pools/model/token_locality.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "host_runtime/core/features/neurons/model/share_quantiles.h"

namespace csdsim::host {
namespace {

constexpr std::uint32_t kRanks = 256;                     // quantiles of a distribution
constexpr std::uint64_t kDraws = std::uint64_t{1} << 32;  // values of a draw

/// Mean shares of the recent tokens, which are as many as are important, and of the others.
double old_mean(double share, double recent) { return (1 - recent) * share / (1 - share); }

/// Quantiles of the shares around a mean, which may be 0 or 1.
std::vector<double> shares_around(double mean, double concentration) {
  if (mean <= 1e-6 || mean >= 1 - 1e-6) return std::vector<double>(kRanks, mean < 0.5 ? 0.0 : 1.0);
  return share_quantiles(mean, concentration, kRanks);
}

double mean_product(std::span<const double> a, std::span<const double> b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum / static_cast<double>(a.size());
}

}  // namespace

TokenLocalityModel::TokenLocalityModel(const TokenLocalityParams& params, std::uint64_t seed)
    : params_(params), seed_(seed) {
  if (!(params.recent > 0 && params.recent < 1))
    throw UserError(fmt::format("recent share of important tokens {}, must be between 0 and 1", params.recent));
  if (!(params.concentration > 0))
    throw UserError(fmt::format("concentration {}, must be above 0", params.concentration));
  if (!(params.persistence >= 0 && params.persistence < 1))
    throw UserError(fmt::format("persistence {}, must be in [0, 1)", params.persistence));
  if (!(params.drift >= 0 && params.drift < 1))
    throw UserError(fmt::format("drift {}, must be in [0, 1)", params.drift));
  changing_ = static_cast<std::uint32_t>((1 - params.persistence) * static_cast<double>(kDraws - 2)) + 1;
}

const TokenLocalityModel::Shares& TokenLocalityModel::shares_of(std::uint32_t context, std::uint32_t count) {
  // Later corrections make up for the rounding.
  const auto step = static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>((std::uint64_t{count} * 256 + context / 2) / context, 1, 255));
  const auto [at, is_new] = shares_.try_emplace(step);
  if (is_new) {
    const auto thresholds = [&](double mean) {
      Thresholds result;
      for (const double share : shares_around(std::min(mean, 1.0), params_.concentration))
        result.push_back(static_cast<std::uint32_t>(std::min(share, 1.0) * changing_));
      return result;
    };
    at->second = {thresholds(params_.recent), thresholds(old_mean(step / 256.0, params_.recent))};
  }
  return at->second;
}

TokenLocalityModel::State& TokenLocalityModel::state_of(SequenceId sequence, LayerId layer) {
  const auto at = states_.find({sequence, layer});
  if (at != states_.end()) return at->second;
  const std::uint64_t seed = counter_random(counter_random(seed_, layer.value), sequence.value);
  return states_.emplace(std::pair{sequence, layer}, State{Rng(seed, "important tokens"), {}, {}}).first->second;
}

/// New tokens get a rank; some of the others get another one.
void TokenLocalityModel::extend(State& state, std::uint32_t context) {
  if (state.started) {
    const double expected = params_.drift * static_cast<double>(state.rank.size());
    auto drawn = static_cast<std::uint32_t>(expected);
    drawn += state.rng.unit() < expected - drawn;
    for (; drawn > 0; --drawn)
      state.rank[state.rng.below(state.rank.size())] = static_cast<std::uint8_t>(state.rng.below(kRanks));
  }
  state.important.resize(context);
  while (state.rank.size() < context) state.rank.push_back(static_cast<std::uint8_t>(state.rng.below(kRanks)));
}

/// Draws random tokens anew, but not the current one, and takes the draws that help until `count` are important. Where
/// long-term shares leave no choice, any token is changed.
void TokenLocalityModel::correct(State& state, const Shares& shares, std::uint32_t found, std::uint32_t count) const {
  const std::uint64_t others = state.important.size() - 1, first_recent = others + 1 - count;
  const std::uint8_t wrong = found > count ? 1 : 0;
  std::uint64_t tries = 4 * others;
  for (std::uint32_t left = found > count ? found - count : count - found; left > 0;) {
    const std::uint64_t i = state.rng.below(others);
    if (state.important[i] != wrong) continue;
    const Thresholds& thresholds = i < first_recent ? shares.old : shares.recent;
    const bool drawn = state.rng.below(changing_) < thresholds[state.rank[i]];
    if (tries > 0 && --tries > 0 && drawn == (wrong == 1)) continue;
    state.important[i] = 1 - wrong;
    --left;
  }
}

void TokenLocalityModel::next(SequenceId sequence, LayerId layer, std::uint32_t context, std::uint32_t count,
                              std::vector<std::uint32_t>& positions) {
  if (count == 0 || count > context) throw InternalError("important tokens: from 1 to all of the context");
  const Shares& shares = shares_of(context, count);
  State& state = state_of(sequence, layer);
  extend(state, context);
  // The first draw has nothing to keep.
  const std::uint32_t changing = state.started ? changing_ : static_cast<std::uint32_t>(kDraws - 1);
  const double whole = state.started ? 1 : static_cast<double>(kDraws - 1) / changing_;
  std::uint32_t found = 1;
  std::uint64_t random = 0;
  const auto draw = [&](std::uint32_t first, std::uint32_t end, const Thresholds& thresholds) {
    for (std::uint32_t i = first; i < end; ++i) {
      random = i % 2 == 0 || i == first ? state.rng.next() : random >> 32;
      const auto bits = static_cast<std::uint32_t>(random);
      const auto threshold = static_cast<double>(thresholds[state.rank[i]]) * whole;
      if (bits <= changing) state.important[i] = bits < threshold ? 1 : 0;
      found += state.important[i];
    }
  };
  const std::uint32_t recent = context - count;
  draw(0, std::min(recent, context - 1), shares.old);
  draw(std::min(recent, context - 1), context - 1, shares.recent);
  state.important[context - 1] = 1;
  state.started = true;
  if (found != count) correct(state, shares, found, count);
  positions.clear();
  for (std::uint32_t i = 0; i < context; ++i)
    if (state.important[i] != 0) positions.push_back(i);
}

ShareProducts share_products(double share, double recent, double concentration) {
  const double mean = old_mean(share, recent);
  const std::vector<double> newest = shares_around(recent, concentration), older = shares_around(mean, concentration);
  return {.recent = recent,
          .old = mean,
          .recent_recent = mean_product(newest, newest),
          .recent_old = mean_product(newest, older),
          .old_old = mean_product(older, older)};
}

double expected_overlap(const ShareProducts& products, double persistence, double drift, double share, double context,
                        double steps) {
  const double count = share * context;
  // Tokens by what they are at the end and were before: both recent, recent before, both old.
  const double both = std::max(0.0, count - steps), turned = std::min(count, steps), old = context - count - turned;
  const double same_rank = std::pow(1 - drift, steps), kept = std::pow(persistence, steps);
  const auto joint = [&](double before, double after, double product) {
    return kept * before + (1 - kept) * (same_rank * product + (1 - same_rank) * before * after);
  };
  const double expected = both * joint(products.recent, products.recent, products.recent_recent) +
                          turned * joint(products.recent, products.old, products.recent_old) +
                          std::max(0.0, old) * joint(products.old, products.old, products.old_old);
  return std::min(1.0, expected / count);
}

}  // namespace csdsim::host
