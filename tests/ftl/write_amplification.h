// Write amplification under garbage collection, in closed form or as the fixed point of a mean field.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

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

/// Uniformly random writes, and victims with the fewest valid pages of d blocks drawn at random (Van Houdt, SIGMETRICS
/// 2013, d-choices). With s_i, the share of blocks with at least i valid pages, what falls from i to i - 1 equals what
/// is collected below i:
///   i (s_i - s_i+1) = rho b e (1 - s_i^d),   e = 1 / sum of (1 - s_i^d) over i from 1 to b,   WA = b e
inline double choices_mean_field(double rho, std::uint32_t b, std::uint32_t d) {
  // Valid pages per block, b rho, for a given e: they grow with it.
  const auto valid = [&](double e) {
    double above = 0, sum = 0;
    for (std::uint32_t i = b; i >= 1; --i) {
      double low = above, high = 1;
      for (int step = 0; step < 60; ++step) {
        const double s = (low + high) / 2;
        (i * (s - above) < rho * b * e * (1 - std::pow(s, d)) ? low : high) = s;
      }
      above = low;
      sum += low;
    }
    return sum;
  };
  double low = 1.0 / b, high = 1;
  for (int step = 0; step < 60; ++step) {
    const double e = (low + high) / 2;
    (valid(e) < rho * b ? low : high) = e;
  }
  return b * low;
}

/// Hot and cold data that the host does not tell apart: a share f of the pages gets a share r of the writes.
struct HotAndCold {
  double f = 0.5, r = 0.5;
};

inline double log_choose(double n, double k) {
  return std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1);
}

/// Lets the pages of a block of b die one by one, hot ones r / f as often as the mean, until k are left. `hot` is the
/// probability of each number of hot pages, before and after. Returns the mean time in writes per page of the host.
inline double pass(std::uint32_t b, std::uint32_t k, HotAndCold data, std::vector<double>& hot) {
  const double hot_rate = data.r / data.f, cold_rate = (1 - data.r) / (1 - data.f);
  double time = 0;
  for (std::uint32_t n = b; n > k; --n) {
    std::vector<double> next(n);
    for (std::uint32_t h = 0; h <= n; ++h) {
      const double dying = h * hot_rate, rate = dying + (n - h) * cold_rate;
      time += hot[h] / rate;
      if (h > 0) next[h - 1] += hot[h] * dying / rate;
      if (h < n) next[h] += hot[h] * (n - h) * cold_rate / rate;
    }
    hot = std::move(next);
  }
  return time;
}

/// Hot pages of `drawn` out of k pages, of which `hot` are hot.
inline std::vector<double> drawn_pages(const std::vector<double>& hot, std::uint32_t k, std::uint32_t drawn) {
  std::vector<double> of(drawn + 1);
  for (std::uint32_t h = 0; h <= k; ++h)
    for (std::uint32_t x = drawn + h > k ? drawn + h - k : 0; x <= std::min(h, drawn); ++x)
      of[x] += hot[h] * std::exp(log_choose(h, x) + log_choose(k - h, drawn - x) - log_choose(k, drawn));
  return of;
}

/// Hot pages of a block that collection fills from victims of k valid pages, one after the other: it begins somewhere
/// in a victim.
inline std::vector<double> collected_block(std::uint32_t b, std::uint32_t k, const std::vector<double>& victim) {
  std::vector<double> all(b + 1);
  const std::uint32_t step = std::max(1U, k / 6);
  const double places = (k + step - 1) / step;
  for (std::uint32_t begun = 0; begun < k; begun += step) {
    std::vector<double> sum{1};
    for (std::uint32_t left = b, take = begun; left > 0; take = k) {
      const std::uint32_t now = std::min(take, left);
      const std::vector<double> more = drawn_pages(victim, k, now);
      std::vector<double> both(sum.size() + now);
      for (std::size_t i = 0; i < sum.size(); ++i)
        for (std::size_t j = 0; j <= now; ++j) both[i + j] += sum[i] * more[j];
      sum = std::move(both);
      left -= now;
    }
    for (std::uint32_t h = 0; h <= b; ++h) all[h] += sum[h] / places;
  }
  return all;
}

/// Greedy collection of hot and cold data, infinitely many blocks: a block is collected when k of its pages are valid.
/// The host and collection fill blocks of their own (two write frontiers), so that collection keeps together what it
/// moves; the hot pages of victims are the fixed point. After Van Houdt, "Performance of garbage collection algorithms
/// for flash-based solid state drives with hot/cold data" (Performance Evaluation, 2013). Between two values of k the
/// amplification is linear in the blocks that are there; for f = r it is that of greedy_mean_field().
inline double hot_cold_mean_field(double rho, std::uint32_t b, HotAndCold data) {
  const auto binomial = [&](double p) {
    std::vector<double> of(b + 1);
    for (std::uint32_t h = 0; h <= b; ++h)
      of[h] = std::exp(log_choose(b, h) + h * std::log(p) + (b - h) * std::log(1 - p));
    return of;
  };
  double before = 0, amplification = 1;  // the values at k + 1
  for (std::uint32_t k = b - b / 8; k >= 1; --k) {
    const double moved = double(k) / (b - k);  // per write of the host
    std::vector<double> host = binomial(data.r), begun = binomial(data.f);
    const double host_time = pass(b, k, data, host);
    double pages = 0;  // pages of all blocks per page of the host
    for (double change = 1; change > 1e-7;) {
      std::vector<double> victim = begun;
      pages = host_time + moved * pass(b, k, data, victim);
      double sum = 0;
      for (std::uint32_t h = 0; h <= k; ++h) sum += victim[h] = (host[h] + moved * victim[h]) / (1 + moved);
      for (double& share : victim) share /= sum;  // rounding would grow from step to step
      const std::vector<double> next = collected_block(b, k, victim);
      change = 0;
      for (std::uint32_t h = 0; h <= b; ++h) change += std::abs(next[h] - begun[h]);
      begun = next;
    }
    const double now = double(b) / (b - k);
    if (pages >= 1 / rho)
      return before == 0 ? now : amplification + (1 / rho - before) / (pages - before) * (now - amplification);
    before = pages;
    amplification = now;
  }
  return 1;
}

}  // namespace csdsim::ftl::test
