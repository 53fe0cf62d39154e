#include "experiment/serving/hit_rates.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "base/error.h"
#include "report/table.h"

namespace csdsim::experiment {
namespace {

using host::KvBlockId;
using host::PrefixRequest;
using nlohmann::ordered_json;

/// The requests of a trace in blocks of a tier.
struct TierTrace {
  const host::ServingTrace* trace = nullptr;
  std::uint32_t block_tokens = 0;
  std::uint64_t distinct_blocks = 0;
  std::vector<KvBlockId> blocks;
  std::vector<PrefixRequest> requests;
};

std::uint64_t count_distinct(std::vector<KvBlockId> blocks) {
  std::ranges::sort(blocks);
  return static_cast<std::uint64_t>(std::unique(blocks.begin(), blocks.end()) - blocks.begin());
}

std::uint32_t factor_of(const host::ServingTrace& trace, std::uint32_t block_tokens) {
  const std::uint32_t own = *trace.block_tokens;
  if (block_tokens > 0 && block_tokens % own == 0) return block_tokens / own;
  throw UserError(
      fmt::format("{}: its blocks have {} tokens, so --block-tokens {} is no whole number of them; {}, {} and "
                  "other multiples are",
                  trace.name, own, block_tokens, own, 2 * std::uint64_t{own}));
}

TierTrace tier_trace(const host::ServingTrace& trace, std::optional<std::uint32_t> block_tokens) {
  if (!trace.block_tokens)
    throw UserError(fmt::format(
        "{}: its requests have lengths only, no KV blocks: it does not say which prompts begin alike, so that "
        "no hits can be counted. Formats with blocks are mooncake, agentic, bailian and weka; "
        "texts (sharegpt) get theirs with --tokenizer",
        trace.name));
  TierTrace tier;
  tier.trace = &trace;
  tier.block_tokens = block_tokens.value_or(*trace.block_tokens);
  const std::uint32_t factor = factor_of(trace, tier.block_tokens);
  std::vector<std::size_t> counts;
  for (const host::TracedRequest& request : trace.requests) {
    // The last block of a prompt may be partly filled. The trace names it as well, but a larger block is made of full
    // blocks only.
    const auto named = trace.blocks_of(request);
    const auto usable = factor == 1 ? named : named.first(request.prompt / *trace.block_tokens);
    const auto whole = host::whole_tier_blocks(usable, factor);
    tier.blocks.insert(tier.blocks.end(), whole.begin(), whole.end());
    counts.push_back(whole.size());
  }
  if (tier.blocks.empty())
    throw UserError(
        fmt::format("{}: no prompt has a whole block of {} tokens (--block-tokens)", trace.name, tier.block_tokens));
  std::size_t first = 0;
  for (std::size_t i = 0; i < counts.size(); first += counts[i++])
    tier.requests.push_back({trace.requests[i].prompt, std::span(tier.blocks).subspan(first, counts[i])});
  tier.distinct_blocks = count_distinct(tier.blocks);
  return tier;
}

std::vector<std::optional<std::uint64_t>> capacities_of(const TierTrace& trace, const HitRateOptions& options) {
  if (!options.capacities.empty()) return options.capacities;
  std::vector<std::optional<std::uint64_t>> capacities;
  for (std::uint64_t blocks = 1; blocks < trace.distinct_blocks; blocks *= 2) capacities.emplace_back(blocks);
  capacities.emplace_back();
  return capacities;
}

/// The columns by which the lines of a figure and the rows of a table differ.
struct Varied {
  bool trace = false, block_tokens = false, eviction = false, admission = false;

  explicit Varied(const std::vector<HitRate>& points) {
    for (const HitRate& point : points) {
      const HitRate& first = points.front();
      trace |= point.trace != first.trace;
      block_tokens |= point.block_tokens != first.block_tokens;
      eviction |= point.eviction != first.eviction;
      admission |= point.admission != first.admission;
    }
  }
  std::string label(const HitRate& point) const {
    std::string label;
    const auto add = [&](bool varied, const std::string& text) {
      if (varied) label += (label.empty() ? "" : ", ") + text;
    };
    add(trace, point.trace);
    add(block_tokens, fmt::format("{} tokens", point.block_tokens));
    add(eviction, point.eviction);
    add(admission, point.admission);
    return label;
  }
};

}  // namespace

CachePolicyChoice cache_policy_choice(std::string_view text) {
  CachePolicyChoice choice{.text = std::string(text), .name = std::string(text), .settings = {}};
  for (;;) {
    const std::size_t colon = choice.name.rfind(':');
    if (colon == std::string::npos) return choice;
    const std::size_t equals = choice.name.find('=', colon);
    if (equals == std::string::npos) return choice;
    const std::string setting = choice.name.substr(colon + 1, equals - colon - 1);
    if (!choice.settings.emplace(setting, choice.name.substr(equals + 1)).second)
      throw UserError(fmt::format("{}: setting {} is given twice", text, setting));
    choice.name.erase(colon);
  }
}

std::vector<HitRate> hit_rates(const std::vector<host::ServingTrace>& traces, const HitRateOptions& options,
                               const host::EvictionRegistry& evictions, const host::AdmissionRegistry& admissions,
                               const std::function<void(std::size_t done, std::size_t total)>& progress) {
  // A wrong name or setting is told before anything is computed.
  for (const CachePolicyChoice& choice : options.evictions) evictions.at(choice.name)({{}, choice.settings});
  for (const CachePolicyChoice& choice : options.admissions) admissions.at(choice.name)({{}, choice.settings});
  std::vector<TierTrace> tiers;
  std::size_t total = 0;
  for (const host::ServingTrace& trace : traces) {
    if (options.block_tokens.empty()) tiers.push_back(tier_trace(trace, std::nullopt));
    for (const std::uint32_t block_tokens : options.block_tokens) tiers.push_back(tier_trace(trace, block_tokens));
  }
  for (const TierTrace& tier : tiers)
    total += options.evictions.size() * options.admissions.size() * capacities_of(tier, options).size();
  std::vector<HitRate> points;
  points.reserve(total);
  for (const TierTrace& tier : tiers)
    for (const CachePolicyChoice& eviction : options.evictions)
      for (const CachePolicyChoice& admission : options.admissions)
        for (const auto capacity : capacities_of(tier, options)) {
          progress(points.size(), total);
          host::KvBlockManager manager({capacity, SimTime::max()},
                                       evictions.at(eviction.name)({capacity, eviction.settings}),
                                       admissions.at(admission.name)({capacity, admission.settings}));
          points.push_back({tier.trace->name, eviction.text, admission.text, capacity, tier.block_tokens,
                            tier.distinct_blocks, host::replay(tier.requests, tier.block_tokens, manager)});
        }
  return points;
}

ordered_json hit_rate_rows(const std::vector<HitRate>& points) {
  ordered_json rows = ordered_json::array();
  for (const HitRate& point : points)
    rows.push_back({{"trace", point.trace},
                    {"eviction", point.eviction},
                    {"admission", point.admission},
                    {"capacity", point.capacity ? ordered_json(*point.capacity) : ordered_json(nullptr)},
                    {"blocks", point.hits.blocks},
                    {"block_hit_rate", point.block_hit_rate()},
                    {"token_hit_rate", point.token_hit_rate()},
                    {"stored_blocks", point.hits.stored_blocks},
                    {"block_tokens", point.block_tokens},
                    {"distinct_blocks", point.distinct_blocks},
                    {"tokens", point.hits.tokens},
                    {"hit_blocks", point.hits.hit_blocks},
                    {"hit_tokens", point.hits.hit_tokens}});
  return rows;
}

std::string hit_rate_text(const std::vector<HitRate>& points) {
  const Varied varied(points);
  std::vector<std::string> header;
  if (varied.eviction) header.emplace_back("eviction");
  if (varied.admission) header.emplace_back("admission");
  header.insert(header.end(), {"capacity", "block hits", "token hits", "stored blocks"});
  std::string text;
  for (std::size_t i = 0; i < points.size();) {
    const HitRate& first = points[i];
    text += fmt::format("{}{}: {} requests, {} blocks of {} tokens, {} of them distinct", i == 0 ? "" : "\n",
                        first.trace, first.hits.requests, first.hits.blocks, first.block_tokens, first.distinct_blocks);
    if (!varied.eviction) text += fmt::format("; eviction {}", first.eviction);
    if (!varied.admission) text += fmt::format("; admission {}", first.admission);
    report::Table table(header);
    for (; i < points.size() && points[i].trace == first.trace && points[i].block_tokens == first.block_tokens; ++i) {
      std::vector<std::string> cells;
      if (varied.eviction) cells.push_back(points[i].eviction);
      if (varied.admission) cells.push_back(points[i].admission);
      cells.push_back(points[i].capacity ? std::to_string(*points[i].capacity) : "unlimited");
      cells.push_back(fmt::format("{:.2f} %", 100 * points[i].block_hit_rate()));
      cells.push_back(fmt::format("{:.2f} %", 100 * points[i].token_hit_rate()));
      cells.push_back(std::to_string(points[i].hits.stored_blocks));
      table.add_row(std::move(cells));
    }
    text += "\n" + table.to_text();
  }
  return text;
}

ordered_json hit_rate_figure(const std::vector<HitRate>& points) {
  const Varied varied(points);
  const auto x_of = [&](const HitRate& point) {
    return point.capacity.value_or(point.distinct_blocks) * (varied.block_tokens ? point.block_tokens : 1);
  };
  std::set<std::uint64_t> numbers;
  for (const HitRate& point : points) numbers.insert(x_of(point));
  std::vector<std::string> values;
  for (const std::uint64_t number : numbers) values.push_back(std::to_string(number));
  ordered_json series = ordered_json::array();
  for (const HitRate& point : points) {
    const std::string label = varied.label(point);
    auto line = std::ranges::find_if(series, [&](const ordered_json& one) { return one["label"] == label; });
    if (line == series.end()) {
      series.push_back({{"label", label}, {"y", std::vector<ordered_json>(numbers.size(), nullptr)}});
      line = std::prev(series.end());
    }
    (*line)["y"][static_cast<std::size_t>(std::distance(numbers.begin(), numbers.find(x_of(point))))] =
        100 * point.token_hit_rate();
  }
  const std::string name = varied.block_tokens
                               ? "capacity in tokens"
                               : fmt::format("capacity in blocks of {} tokens", points.front().block_tokens);
  return {{"x", {{"name", name}, {"unit", ""}}},
          {"y", {{"name", "tokens that hit"}, {"unit", "%"}}},
          {"values", values},
          {"numbers", numbers},
          {"series", series}};
}

}  // namespace csdsim::experiment
