// Implements `csdsim hit-rates`: which share of the prompts of a trace a tier of KV blocks has, over its capacity.
#pragma once

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "host_runtime/core/serving/policy_registry.h"
#include "host_runtime/core/serving/prefix_curve.h"
#include "host_runtime/core/serving/serving_trace.h"

namespace csdsim::experiment {

/// A policy and its settings.
struct CachePolicyChoice {
  std::string text;  ///< as it was given, with the name of a plugin in place of its path
  std::string name;
  std::map<std::string, std::string> settings;
};

/// Reads "NAME:setting=value:setting=value". The name may be the path of a library.
CachePolicyChoice cache_policy_choice(std::string_view text);

struct HitRateOptions {
  std::vector<CachePolicyChoice> evictions, admissions;
  /// In blocks; null is unlimited. Empty: powers of two below the distinct blocks of the trace, then unlimited.
  std::vector<std::optional<std::uint64_t>> capacities;
  std::vector<std::uint32_t> block_tokens;  ///< sizes of the tier's blocks; empty: blocks of the trace
};

/// One point of a curve.
struct HitRate {
  std::string trace, eviction, admission;
  std::optional<std::uint64_t> capacity;
  std::uint32_t block_tokens = 0;
  std::uint64_t distinct_blocks = 0;  ///< blocks of the trace, each counted once
  host::PrefixHits hits;

  double block_hit_rate() const { return static_cast<double>(hits.hit_blocks) / static_cast<double>(hits.blocks); }
  double token_hit_rate() const { return static_cast<double>(hits.hit_tokens) / static_cast<double>(hits.tokens); }
};

/// Replays each trace, in the order of its requests, with every combination of the options. A tier block is a whole
/// number of blocks of the trace, and only whole tier blocks are stored. `progress` is told of each point before it is
/// computed: how many are done, and of how many.
///
/// UserError for a trace without KV blocks, for tier blocks that are no multiple of its blocks or longer than all of
/// its prompts, and for settings that a policy does not have.
std::vector<HitRate> hit_rates(const std::vector<host::ServingTrace>& traces, const HitRateOptions& options,
                               const host::EvictionRegistry& evictions, const host::AdmissionRegistry& admissions,
                               const std::function<void(std::size_t done, std::size_t total)>& progress);

/// One object per point: trace, eviction, admission, capacity (null: unlimited), blocks, block_hit_rate,
/// token_hit_rate, stored_blocks, block_tokens, distinct_blocks, tokens, hit_blocks, hit_tokens.
nlohmann::ordered_json hit_rate_rows(const std::vector<HitRate>& points);

/// A line per trace and block size, then a table of its points.
std::string hit_rate_text(const std::vector<HitRate>& points);

/// What app/figure.h draws: a line for each policy, trace and block size over the capacity, in blocks or, with several
/// block sizes, in tokens. An unlimited tier stands at the distinct blocks of its trace, which give it the same hits.
nlohmann::ordered_json hit_rate_figure(const std::vector<HitRate>& points);

}  // namespace csdsim::experiment
