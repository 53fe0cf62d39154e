#include "host_runtime/core/neurons/locality_model.h"

#include <fmt/format.h>

#include <boost/math/special_functions/beta.hpp>
#include <cmath>
#include <numeric>

#include "base/error.h"

namespace csdsim::host {

LocalityModel::LocalityModel(const LocalityParams& params, std::uint32_t neurons, std::uint64_t seed)
    : params_(params), neurons_(neurons), seed_(seed), quantiles_(neurons) {
  if (!(params.active > 0 && params.active < 1))
    throw UserError(fmt::format("active share of neurons {}, must be between 0 and 1", params.active));
  if (!(params.concentration > 0))
    throw UserError(fmt::format("concentration {}, must be above 0", params.concentration));
  if (!(params.persistence >= 0 && params.persistence < 1))
    throw UserError(fmt::format("persistence {}, must be in [0, 1)", params.persistence));
  const double a = params.active * params.concentration, b = (1 - params.active) * params.concentration;
  for (std::uint32_t i = 0; i < neurons; ++i) quantiles_[i] = boost::math::ibeta_inv(a, b, (i + 0.5) / neurons);
  // Midpoints of steep ends miss the mean a little; this restores it.
  const double mean = std::accumulate(quantiles_.begin(), quantiles_.end(), 0.0) / neurons;
  if (!(mean > 0))
    throw UserError(fmt::format("active share {} and concentration {} leave all of {} neurons inactive", params.active,
                                params.concentration, neurons));
  for (double& share : quantiles_) share = std::min(1.0, share * params.active / mean);
}

const std::vector<double>& LocalityModel::shares_of(LayerId layer) {
  const auto [at, is_new] = shares_.try_emplace(layer);
  if (is_new) {
    at->second = quantiles_;
    Rng rng(counter_random(seed_, layer.value), "shares of neurons");
    for (std::uint32_t i = neurons_; i > 1; --i) std::swap(at->second[i - 1], at->second[rng.below(i)]);
  }
  return at->second;
}

LocalityModel::State& LocalityModel::state_of(SequenceId sequence, LayerId layer) {
  const auto at = states_.find({sequence, layer});
  if (at != states_.end()) return at->second;
  const std::uint64_t seed = counter_random(counter_random(seed_, layer.value), sequence.value);
  State state{Rng(seed, "active neurons"), std::vector<bool>(neurons_)};
  const std::vector<double>& shares = shares_of(layer);
  for (std::uint32_t i = 0; i < neurons_; ++i) state.active[i] = state.rng.unit() < shares[i];
  return states_.emplace(std::pair{sequence, layer}, std::move(state)).first->second;
}

void LocalityModel::next(SequenceId sequence, LayerId layer, std::vector<std::uint32_t>& active) {
  const std::vector<double>& shares = shares_of(layer);
  State& state = state_of(sequence, layer);
  // One number decides both: below `changing` the state is drawn anew, and it is active in the part `share` of it.
  const double changing = 1 - params_.persistence;
  active.clear();
  for (std::uint32_t i = 0; i < neurons_; ++i) {
    const double draw = state.rng.unit();
    if (draw < changing) state.active[i] = draw < changing * shares[i];
    if (state.active[i]) active.push_back(i);
  }
}

double LocalityModel::active_within(std::uint32_t tokens) const {
  if (tokens == 0) return 0;
  // Never active: inactive at first, then inactive again k - 1 times.
  double never = 0;
  for (const double p : quantiles_) never += (1 - p) * std::pow(1 - p * (1 - params_.persistence), tokens - 1);
  return 1 - never / neurons_;
}

}  // namespace csdsim::host
