#include "ftl/durability/kv_search.h"

#include <algorithm>
#include <array>
#include <unordered_set>

#include "base/rng.h"

namespace csdsim::ftl::durability {
namespace {

using KvKind = KvStep::Kind;
constexpr std::array kTails{TailPolicy::token_index, TailPolicy::dram, TailPolicy::partial_program};

void set_policy(KvSetup& s, const PolicyEntry& policy) {
  s.policy = policy.name;
  s.make_policy = [make = policy.make](const FlashGeometry& geometry) { return make({geometry, {}}); };
}

KvSetup random_kv_setup(Rng& rng, const PolicyRegistry& policies) {
  const auto below = [&](std::uint32_t n) { return static_cast<std::uint32_t>(rng.below(n)); };
  KvSetup s;
  s.seed = rng();
  set_policy(s, policies.entries()[below(static_cast<std::uint32_t>(policies.entries().size()))]);
  s.geometry = {1 + below(3), 1, 1 + below(2), std::array{8u, 12u, 16u}[below(3)], 4 + below(8), Bytes{512}};
  s.config.tail = kTails[below(3)];
  s.config.check = PageCheck::key_and_crc;
  s.config.tail_rewrites = 1 + below(3);
  s.config.layout.embedding_group = std::array{4u, 16u, 8u}[below(3)];
  s.config.layout.adaptive = below(3) == 0;
  s.weak_capacitors = below(5) == 0;
  // Pages of one group of elements, of two, and of parts of two.
  if (below(4) == 0) s.format = std::array<RowQuantisation, 3>{{{4, 8}, {8, 16}, {8, 4}}}[below(3)];
  if (below(4) == 0) {
    s.spare_blocks = 4;
    s.failures_per_mille = 2;
    s.geometry.blocks_per_plane += 4;
  }
  return s;
}

KvStep random_kv_step(Rng& rng, std::uint32_t cut_weight) {
  const auto number = [&] { return static_cast<std::uint32_t>(rng.below(1u << 20)); };
  const std::uint64_t draw = rng.below(67 + cut_weight);
  const KvKind kind = draw < 3    ? KvKind::create
                      : draw < 5  ? KvKind::free
                      : draw < 11 ? KvKind::fork
                      : draw < 13 ? KvKind::pin
                      : draw < 15 ? KvKind::unpin
                      : draw < 31 ? KvKind::append
                      : draw < 67 ? KvKind::complete
                                  : KvKind::cut;
  return {kind, {number(), number(), number()}};
}

void reduce_kv_setup(KvCase& c) {
  const auto attempt = [&](auto change) {
    KvCase smaller = c;
    change(smaller.setup);
    if (breaks(smaller)) c = std::move(smaller);
  };
  attempt([](KvSetup& s) { s.failures_per_mille = 0; });
  attempt([](KvSetup& s) { s.weak_capacitors = false; });
  attempt([](KvSetup& s) { s.format = {}; });
  attempt([](KvSetup& s) { s.one_head = true; });
  attempt([](KvSetup& s) { s.config.layout.adaptive = false; });
  attempt([](KvSetup& s) { s.config.tail = TailPolicy::token_index; });
  attempt([](KvSetup& s) { s.geometry.channels = 1; });
  attempt([](KvSetup& s) { s.geometry.planes_per_die = 1; });
}

}  // namespace

KvCounterexample shrink(const KvCase& c) { return shrink_with(c, reduce_kv_setup); }

KvReport search_randomly(const PolicyRegistry& policies, const KvSearchOptions& options) {
  return search_cases<KvReport>(options.seed, options.cuts, [&](Rng& rng) {
    KvCase c{random_kv_setup(rng, policies), {}};
    const std::uint32_t cut_weight = std::array{1u, 3u, 12u}[rng.below(3)];
    const std::uint64_t steps = 20 + rng.below(400);
    for (std::uint64_t i = 0; i < steps; ++i) c.steps.push_back(random_kv_step(rng, cut_weight));
    return c;
  });
}

KvReport search_exhaustively(const PolicyRegistry& policies, std::uint32_t commands) {
  std::vector<KvStep> alphabet{{KvKind::fork, {0, 1, 0}}};
  for (const std::uint32_t sequence : {0u, 1u})
    for (const KvStep& step : {KvStep{KvKind::append, {sequence, 0, 0}}, KvStep{KvKind::append, {sequence, 1, 0}},
                               KvStep{KvKind::free, {sequence, 0, 0}}})
      alphabet.push_back(step);
  KvReport report;
  for (const PolicyEntry& policy : policies.entries())
    for (const TailPolicy tail : kTails) {
      KvCase c;
      set_policy(c.setup, policy);
      c.setup.sequences = 2;
      c.setup.one_head = true;
      c.setup.config.tail = tail;
      c.setup.config.check = PageCheck::key_and_crc;
      c.setup.config.layout.embedding_group = 16;
      const auto run = [&](const KvCase& tried, bool only_steps) {
        KvCaseResult result = run_case(tried, false, only_steps);
        ++report.cases;
        report.coverage += result.coverage;
        if (result.violation && !report.broken) report.broken = shrink(tried);
        return result;
      };
      std::unordered_set<std::uint64_t> seen;
      const auto is_new = [&](const KvCaseResult& result) { return seen.insert(result.state).second; };
      explore(c, commands, alphabet, run, is_new, [&] { return report.broken.has_value(); });
      if (report.broken) return report;
    }
  return report;
}

}  // namespace csdsim::ftl::durability
