#include "host_runtime/core/planner/systems/flexgen_ssd/linear_cost.h"

#include <algorithm>

namespace csdsim::host {

namespace {

double total(const LinearCost::PerTier& coefficients, const TierSplit& split) {
  return (coefficients[0] * split.gpu + coefficients[1] * split.host + coefficients[2] * split.disk()) / 100;
}

LinearCost::PerTier plus(const LinearCost::PerTier& a, const LinearCost::PerTier& b) {
  return {a[0] + b[0], a[1] + b[1], a[2] + b[2]};
}

LinearCost::PerTier times(double factor, const LinearCost::PerTier& a) {
  return {factor * a[0], factor * a[1], factor * a[2]};
}

}  // namespace

double LinearCost::at(const FlexGenPolicy& policy) const {
  return constant + total(weights, policy.weights) + total(cache, policy.cache) +
         total(activations, policy.activations);
}

LinearCost operator+(const LinearCost& a, const LinearCost& b) {
  return {.constant = a.constant + b.constant,
          .weights = plus(a.weights, b.weights),
          .cache = plus(a.cache, b.cache),
          .activations = plus(a.activations, b.activations)};
}

LinearCost operator*(double factor, const LinearCost& a) {
  return {.constant = factor * a.constant,
          .weights = times(factor, a.weights),
          .cache = times(factor, a.cache),
          .activations = times(factor, a.activations)};
}

double largest(const std::vector<LinearCost>& candidates, const FlexGenPolicy& policy) {
  double value = 0;
  for (const LinearCost& candidate : candidates) value = std::max(value, candidate.at(policy));
  return value;
}

}  // namespace csdsim::host
