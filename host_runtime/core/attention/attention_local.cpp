#include "host_runtime/core/attention/attention_local.h"

#include "base/error.h"

namespace csdsim::host {

LocalAttention::LocalAttention(const LocalOptions& options, std::string_view name) : options_(options), name_(name) {
  if (options.tokens.is_zero()) throw UserError("local: the window is 0 tokens, at least 1 is needed");
}

void LocalAttention::attend(std::span<const float> q, const KvView& kv, std::span<float> out,
                            HeadSelection* selection) const {
  std::vector<std::uint32_t> chosen;
  if (kv.tokens > 0) {
    const std::uint32_t budget = options_.tokens.at(kv.tokens);
    const std::uint32_t sinks = std::min(options_.sinks, budget - 1);
    chosen = all_indices(budget);
    for (std::uint32_t j = sinks; j < budget; ++j) chosen[j] += static_cast<std::uint32_t>(kv.tokens) - budget;
  }
  attend_tokens(q, kv, chosen, out);
  describe_selection(chosen, 2 * chosen.size() * kv.head_dim, selection);
}

}  // namespace csdsim::host
