#include "host_runtime/core/decoder/weight_loader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"

namespace csdsim::host {
namespace {

constexpr std::string_view kProjection = "lm_head.weight";

}  // namespace

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
  Weight weight = backend_.load(tensor);
  weights_.release(name);
  loaded_.insert(name);
  return weight;
}

bool check_tied(const WeightSource& weights, const std::string& table) {
  if (!weights.contains(kProjection)) return false;
  const StoredTensor own = weights.tensor(kProjection), tied = weights.tensor(table);
  if (own.type != tied.type || own.shape != tied.shape || !std::ranges::equal(own.bytes, tied.bytes))
    throw UserError(
        fmt::format("{}: tensor '{}' differs from '{}', and config.json ties the two: set tie_word_embeddings to false "
                    "to compute with both",
                    weights.description(), kProjection, table));
  weights.release(kProjection);
  weights.release(table);
  return true;
}

void WeightLoader::check_tied(const std::string& table) {
  if (host::check_tied(weights_, table)) loaded_.emplace(kProjection);
}

void check_all_loaded(const WeightSource& weights, const std::set<std::string>& loaded) {
  std::vector<std::string> left = weights.names();
  std::erase_if(left, [&](const std::string& name) {
    return loaded.contains(name) || name.ends_with(".rotary_emb.inv_freq") || name.ends_with(".attn.masked_bias");
  });
  if (left.empty()) return;
  throw UserError(fmt::format(
      "{}: tensor '{}'{} has no place in the model that config.json describes: the model would "
      "compute without it",
      weights.description(), left.front(), left.size() > 1 ? fmt::format(" (the first of {})", left.size()) : ""));
}

}  // namespace csdsim::host
