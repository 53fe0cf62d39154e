// The parts of the locality model that need no random numbers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace csdsim::host {

/// Long-term shares of `neurons` neurons: equidistant quantiles of Beta(active * c, (1 - active) * c) with the
/// concentration c, ascending, whose mean is `active`. UserError if all of them are 0.
std::vector<double> share_quantiles(double active, double concentration, std::uint32_t neurons);

/// s(k): expected share of neurons with these long-term shares that are active for at least one of k consecutive
/// tokens, in at least one of `sequences` independent sequences.
double active_within(std::span<const double> shares, double persistence, std::uint32_t tokens,
                     std::uint32_t sequences = 1);

}  // namespace csdsim::host
