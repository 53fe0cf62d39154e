// Quantities that are linear in the percentages of a FlexGenPolicy.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "host_runtime/core/planner/systems/flexgen_ssd/policy.h"

namespace csdsim::host {

/// The memories of FlexGen, fastest first.
inline constexpr std::size_t kTiers = 3;
inline constexpr std::array<std::string_view, kTiers> kTierNames{"GPU memory", "host memory", "the disk"};

/// A quantity that is linear in a policy: constant + sum of coefficient x share. No coefficient is negative.
struct LinearCost {
  using PerTier = std::array<double, kTiers>;  ///< coefficients of the shares of GPU, host and disk

  double constant = 0;
  PerTier weights{};
  PerTier cache{};
  PerTier activations{};

  double at(const FlexGenPolicy& policy) const;
  friend LinearCost operator+(const LinearCost& a, const LinearCost& b);
  friend LinearCost operator*(double factor, const LinearCost& a);
};

/// Coefficients of a quantity that counts only for the share in one memory, or only for the share outside GPU memory.
constexpr LinearCost::PerTier in_gpu(double value) { return {value, 0, 0}; }
constexpr LinearCost::PerTier in_host(double value) { return {0, value, 0}; }
constexpr LinearCost::PerTier on_disk(double value) { return {0, 0, value}; }
constexpr LinearCost::PerTier off_gpu(double value) { return {0, value, value}; }

/// The largest of the candidates; 0 if there is none.
double largest(const std::vector<LinearCost>& candidates, const FlexGenPolicy& policy);

}  // namespace csdsim::host
