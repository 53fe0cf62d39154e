// A function as the only feature of a run, for tests of work that depends on data.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "host_runtime/core/plan/run_feature.h"

namespace csdsim::host {

using Resolver = std::function<std::optional<Work>(const Operation&)>;

inline RunFeatures resolving(Resolver resolver) {
  struct Feature final : RunFeature {
    explicit Feature(Resolver of) : resolver(std::move(of)) {}
    std::optional<Work> resolve(const Operation& op) override { return resolver(op); }
    Resolver resolver;
  };
  RunFeatures features;
  features.add(std::make_unique<Feature>(std::move(resolver)));
  return features;
}

}  // namespace csdsim::host
