#include "host_runtime/core/features/neurons/model/locality_model.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "base/error.h"
#include "host_runtime/core/features/neurons/model/share_quantiles.h"

namespace csdsim::host {
namespace {

/// How many draws of 53 bits are below `share`, from 0 to 1: Rng::unit() is below it for just these.
std::uint64_t draws_below(double share) { return static_cast<std::uint64_t>(std::ceil(std::ldexp(share, 53))); }

}  // namespace

LocalityModel::LocalityModel(const LocalityParams& params, std::uint32_t neurons, std::uint64_t seed)
    : params_(params), neurons_(neurons), seed_(seed) {
  if (!(params.active > 0 && params.active < 1))
    throw UserError(fmt::format("active share of neurons {}, must be between 0 and 1", params.active));
  if (!(params.concentration > 0))
    throw UserError(fmt::format("concentration {}, must be above 0", params.concentration));
  if (!(params.persistence >= 0 && params.persistence < 1))
    throw UserError(fmt::format("persistence {}, must be in [0, 1)", params.persistence));
  quantiles_ = share_quantiles(params.active, params.concentration, neurons);
}

const LocalityModel::Shares& LocalityModel::shares_of(LayerId layer) {
  const auto [at, is_new] = shares_.try_emplace(layer);
  if (is_new) {
    std::vector<double>& share = at->second.share = quantiles_;
    Rng rng(counter_random(seed_, layer.value), "shares of neurons");
    for (std::uint32_t i = neurons_; i > 1; --i) std::swap(share[i - 1], share[rng.below(i)]);
    for (const double of_tokens : share) at->second.draw.push_back(draws_below((1 - params_.persistence) * of_tokens));
  }
  return at->second;
}

LocalityModel::State& LocalityModel::state_of(SequenceId sequence, LayerId layer) {
  const auto at = states_.find({sequence, layer});
  if (at != states_.end()) return at->second;
  const std::uint64_t seed = counter_random(counter_random(seed_, layer.value), sequence.value);
  State state{Rng(seed, "active neurons"), std::vector<std::uint8_t>(neurons_)};
  const std::vector<double>& share = shares_of(layer).share;
  for (std::uint32_t i = 0; i < neurons_; ++i) state.active[i] = state.rng.unit() < share[i];
  return states_.emplace(std::pair{sequence, layer}, std::move(state)).first->second;
}

void LocalityModel::next(SequenceId sequence, LayerId layer, std::vector<std::uint32_t>& active) {
  const std::vector<std::uint64_t>& draws = shares_of(layer).draw;
  State& state = state_of(sequence, layer);
  // One number decides both: below `changing` the state is drawn anew, and it is active in the part `share` of it.
  const std::uint64_t changing = draws_below(1 - params_.persistence);
  Rng rng = state.rng;
  active.resize(neurons_);
  std::size_t count = 0;
  for (std::uint32_t i = 0; i < neurons_; ++i) {
    const std::uint64_t draw = rng.bits53();
    const std::uint8_t is_active = draw < changing ? static_cast<std::uint8_t>(draw < draws[i]) : state.active[i];
    state.active[i] = is_active;
    active[count] = i;
    count += is_active;
  }
  active.resize(count);
  state.rng = rng;
}

void LocalityModel::mark(SequenceId sequence, LayerId layer) {
  State& state = state_of(sequence, layer);
  state.marked = state.active;
}

void LocalityModel::go_back(SequenceId sequence, LayerId layer) {
  State& state = state_of(sequence, layer);
  if (state.marked.empty()) throw InternalError("neurons go back to a token that was not marked");
  state.active = state.marked;
}

double LocalityModel::active_within(std::uint32_t tokens, std::uint32_t sequences) const {
  return host::active_within(quantiles_, params_.persistence, tokens, sequences);
}

}  // namespace csdsim::host
