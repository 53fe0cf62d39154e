// Sliding-window attention, with attention sinks or without.
#pragma once

#include "host_runtime/core/attention/attention.h"

namespace csdsim::host {

struct LocalOptions {
  TokenBudget tokens = 128;  ///< window and sinks together; at least 1 more than the sinks, else the window is 1 token
  std::uint32_t sinks = 0;   ///< first tokens that are kept too; StreamingLLM (arXiv 2309.17453) keeps 4
};

/// Softmax over the newest tokens, the current one included, and the first ones (docs/algorithms.md, H2O and windows).
/// Nothing stands in for the others.
class LocalAttention final : public HeadAttention {
 public:
  /// UserError if the budget is 0.
  explicit LocalAttention(const LocalOptions& options, std::string_view name = "local");
  std::string_view name() const override { return name_; }
  void attend(std::span<const float> q, const KvView& kv, std::span<float> out,
              HeadSelection* selection) const override;

 private:
  LocalOptions options_;
  std::string_view name_;
};

}  // namespace csdsim::host
