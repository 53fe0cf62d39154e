#include "host_runtime/core/plan/sparf_budget.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace csdsim::host {

SparfBudget::SparfBudget(const SparfParameters& p, std::uint32_t head_dim)
    : head_dim_(head_dim), k_share_(p.ratio), k_(p.k), local_(p.local) {
  const auto [num, den] = p.ratio;
  if (num == 0 || den == 0 || num > den) throw UserError(fmt::format("sparf: ratio {}/{} is not in (0, 1]", num, den));
  const std::uint64_t from_ratio = std::max<std::uint64_t>(1, p.ratio.round_of(head_dim));
  r_ = p.r.value_or(static_cast<std::uint32_t>(from_ratio));
  if (r_ < 1 || r_ > head_dim)
    throw UserError(fmt::format("sparf: r is {}, must be 1 to {} (the head dimension)", r_, head_dim));
  if (k_ && *k_ == 0) throw UserError("sparf: k is 0, must be at least 1");
  if (p.mode == RatioMode::traffic && !k_) {
    const std::uint64_t budget = 2 * num * head_dim;
    if (budget <= r_ * den)
      throw UserError(
          fmt::format("sparf: ratio {}/{} of the dense traffic leaves no tokens beside r = {}; at most r = {}", num,
                      den, r_, (budget - 1) / den));
    k_share_ = Ratio::of(budget - r_ * den, 2ULL * head_dim * den);
  }
}

std::uint32_t SparfBudget::top_k(std::uint32_t tokens) const {
  const std::uint64_t k = k_ ? *k_ : k_share_.round_of(tokens);
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(k, 1, std::max(tokens, 1U)));
}

std::uint32_t SparfBudget::local(std::uint32_t tokens) const {
  const std::uint32_t k = top_k(tokens);
  return std::min(local_.value_or(k / 4), k);
}

double SparfBudget::traffic(std::uint32_t tokens) const {
  const double s = tokens, d = head_dim_;
  return (s * r_ + 2.0 * top_k(tokens) * d) / (2.0 * s * d);
}

std::string SparfBudget::describe(std::uint32_t tokens) const {
  return fmt::format("r = {} of {}, k = {}, l = {} at {} tokens: {:.4f} of the dense elements", r_, head_dim_,
                     top_k(tokens), local(tokens), tokens, traffic(tokens));
}

}  // namespace csdsim::host
