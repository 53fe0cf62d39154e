#include "ftl/policies/registry.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "ftl/policies/channel_balanced.h"
#include "ftl/policies/head_per_channel.h"
#include "ftl/policies/instinfer.h"
#include "ftl/policies/page_l2p.h"
#include "ftl/policies/paired.h"
#include "ftl/policies/sequence_block.h"
#include "ftl/policies/settings.h"
#include "ftl/policies/token_striped.h"

namespace csdsim::ftl {

namespace {

template <class Policy>
PolicyEntry builtin() {
  const auto make = [](const PolicyContext& context) { return make_policy<Policy>(Policy::kName, context); };
  return {std::string(Policy::kName), std::string(Policy::kSummary), make};
}

/// Lower-case letters and digits, in words joined by single hyphens, from a letter on.
bool is_name(std::string_view name) {
  const auto lower = [](char c) { return c >= 'a' && c <= 'z'; };
  if (name.empty() || !lower(name.front()) || name.back() == '-') return false;
  for (std::size_t i = 0; i < name.size(); ++i) {
    const char c = name[i];
    if (!lower(c) && !(c >= '0' && c <= '9') && (c != '-' || name[i - 1] == '-')) return false;
  }
  return true;
}

}  // namespace

PolicyRegistry PolicyRegistry::with_builtin() {
  PolicyRegistry registry;
  registry.add(builtin<InstinferPolicy>());
  registry.add(builtin<PageL2pPolicy>());
  registry.add(builtin<TokenStripedPolicy>());
  registry.add(builtin<HeadPerChannelPolicy>());
  registry.add(builtin<ChannelBalancedPolicy>());
  registry.add(builtin<SequenceBlockPolicy>());
  registry.add(builtin<PairedPolicy>());
  return registry;
}

void PolicyRegistry::add(PolicyEntry entry) {
  if (!is_name(entry.name)) {
    throw UserError(fmt::format("a mapping policy is called '{}': names are lower-case words joined by hyphens",
                                printable(entry.name)));
  }
  for (const PolicyEntry& other : entries_) {
    if (other.name == entry.name) {
      throw UserError(fmt::format("there is a mapping policy '{}' already: {}", other.name, other.summary));
    }
  }
  entries_.push_back(std::move(entry));
}

std::unique_ptr<KvMappingPolicy> PolicyRegistry::make(std::string_view name, const PolicyContext& context) const {
  std::vector<std::string> names;
  for (const PolicyEntry& entry : entries_) {
    if (entry.name == name) return entry.make(context);
    names.push_back(entry.name);
  }
  throw UserError(fmt::format("unknown mapping policy '{}'{}; exists: {}", printable(name), did_you_mean(name, names),
                              join(names)));
}

}  // namespace csdsim::ftl
