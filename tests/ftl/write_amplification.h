// Write amplification of uniformly random writes under greedy garbage collection, in closed form.
#pragma once

#include <cmath>
#include <cstdint>

namespace csdsim::ftl::test {

/// Mean field of infinitely many blocks of `b` pages, a share `rho` of whose pages is valid. Between two collections of
/// a block its valid pages die one by one, each at the same rate, so the share of blocks with j valid pages falls as
/// 1/j from b down to m + 1, below which greedy collection takes them; a share x of those that would linger at m does.
///   rho b = (b - m + x) / (H_b - H_m + x / m),   WA = b / (b - m + x)
/// (Bux and Iliadis, "Performance of greedy garbage collection in flash-based solid-state drives", 2010, in the limit
/// of many blocks; the same fixed point as Van Houdt, SIGMETRICS 2013, for d to infinity.)
inline double greedy_mean_field(double rho, std::uint32_t b) {
  double harmonic = 0;  // H_b - H_m
  for (std::uint32_t m = b - 1; m >= 1; --m) {
    harmonic += 1.0 / (m + 1);
    // Solve for x in [0, 1]: rho b (h + x / m) = b - m + x.
    const double x = (rho * b * harmonic - (b - m)) / (1 - rho * b / m);
    if (x >= 0 && x <= 1) return b / (b - m + x);
  }
  return 1;
}

/// The limit of large blocks, where greedy is the same as first in, first out (Menon 1995; Desnoyers, "Analytic
/// modeling of SSD write performance", SYSTOR 2012): u = share of valid pages of a victim, rho = (1 - u) / -ln u, WA =
/// 1/(1 - u).
inline double greedy_large_blocks(double rho) {
  double low = 0;
  double high = 1 - 1e-12;
  for (int i = 0; i < 200; ++i) {
    const double u = (low + high) / 2;
    ((1 - u) / -std::log(u) < rho ? low : high) = u;
  }
  return 1 / (1 - low);
}

}  // namespace csdsim::ftl::test
