#include "host_runtime/core/weight_loader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"

namespace csdsim::host {

std::string tensor_prefix(const WeightSource& weights, const std::string& prefix, const std::string& probe) {
  return weights.contains("model." + prefix + probe) ? "model." + prefix : prefix;
}

WeightLoader::WeightLoader(const WeightSource& weights, Backend& backend, const std::string& prefix,
                           const std::string& probe)
    : weights_(weights), backend_(backend), prefix_(tensor_prefix(weights, prefix, probe)) {}

void WeightLoader::need(Architecture architecture, std::span<const Operator> operators) const {
  for (const Operator op : operators) {
    if (!backend_.supports(op)) {
      throw UserError(fmt::format("backend '{}' cannot run {}: it has no operator '{}'", backend_.name(),
                                  name_of(architecture), kOperatorNames[static_cast<std::size_t>(op)]));
    }
  }
}

Weight WeightLoader::load(const std::string& name, const std::vector<std::uint64_t>& expected) {
  const StoredTensor tensor = weights_.tensor(name);
  if (tensor.shape != expected) {
    throw UserError(fmt::format("{}: tensor '{}' has shape [{}], config.json implies [{}]", weights_.description(),
                                name, fmt::join(tensor.shape, ", "), fmt::join(expected, ", ")));
  }
  return backend_.load(tensor);
}

}  // namespace csdsim::host
