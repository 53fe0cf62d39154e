#include "host_runtime/core/plan/run_feature.h"

#include <nlohmann/json.hpp>

namespace csdsim::host {

std::string RunFeature::verify(nlohmann::ordered_json&) const { return {}; }

std::optional<Work> RunFeatures::resolve(const Operation& op) const {
  for (const auto& feature : features_)
    if (std::optional<Work> work = feature->resolve(op)) return work;
  return std::nullopt;
}

std::vector<double> RunFeatures::counts() const {
  std::vector<double> all;
  for (const auto& feature : features_) feature->count(all);
  return all;
}

std::string RunFeatures::layers_differ() const {
  for (const auto& feature : features_)
    if (std::string why = feature->layers_differ(); !why.empty()) return why;
  return {};
}

std::vector<RunFeatures::Value> RunFeatures::values(const FeatureCounts& all) const {
  std::vector<Value> values;
  std::vector<double> counted;
  for (const auto& feature : features_) {
    const std::size_t first = counted.size();
    feature->count(counted);
    const std::size_t size = counted.size() - first;
    FeatureCounts own = all;
    // A phase that the run does not have, such as decoding with one output token, has counted nothing.
    const std::vector<double> nothing(size);
    const auto part = [&](std::span<const double> of) { return of.empty() ? nothing : of.subspan(first, size); };
    own.prefill = part(all.prefill);
    own.decode = part(all.decode);
    own.error = [&, first](std::size_t i) { return all.error(first + i); };
    for (FeatureMetric& metric : feature->metrics())
      if (const std::optional<double> value = metric.value(own)) values.push_back({std::move(metric), *value});
  }
  return values;
}

}  // namespace csdsim::host
