// Sampling plans on cost functions whose total is known.
#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <random>
#include <vector>

#include "base/error.h"
#include "host_runtime/core/sampling/sampling_plan.h"

namespace test_sampling_plan {

using namespace csdsim;
using namespace csdsim::host;

namespace {

using Cost = std::function<double(std::uint32_t step)>;  // cost of one layer

struct Outcome {
  double estimated = 0, total = 0, error = 0;
  double relative() const { return std::abs(estimated / total - 1); }
};

/// Layers cost `layer` each and a step `fixed` besides; what is simulated has plan.layers() of them.
Outcome estimate(const SamplingPlan& plan, std::uint32_t layers, std::uint32_t steps, const Cost& layer, double fixed) {
  std::vector<LayeredCost> measured;
  for (const SampledGroup& g : plan.groups())
    for (std::uint32_t i = 0; i < g.measured; ++i)
      measured.push_back({g.layers * layer(g.first_measured() + i), fixed});
  Outcome o{.estimated = plan.decode_total(measured), .total = 0, .error = plan.decode_error(measured).relative};
  for (std::uint32_t s = 0; s < steps; ++s) o.total += layers * layer(s) + fixed;
  return o;
}

struct Sampled {
  Outcome outcome;
  std::uint32_t steps = 8;  ///< steps of the settings
};

/// The first of the samples of 8, 16, 32, ... places that states at most `error`.
Sampled within(double error, const BatchLengths& workload, std::uint32_t layers, const KvGrouping& grouping,
               const Cost& layer) {
  for (Sampled sampled;; sampled.steps *= 2) {
    const SamplingPlan plan(workload, layers, grouping, {.steps = sampled.steps});
    sampled.outcome = estimate(plan, layers, workload.decode_steps(), layer, 10.0);
    if (sampled.outcome.error <= error) return sampled;
  }
}

BatchLengths uniform(std::uint32_t prompt, std::uint32_t tokens) { return {{prompt, prompt, prompt}, tokens}; }

BatchLengths ragged(std::uint64_t seed, std::uint32_t batch, std::uint32_t tokens) {
  std::mt19937_64 rng(seed);
  std::vector<std::uint32_t> prompts(batch);
  for (std::uint32_t& prompt : prompts) prompt = static_cast<std::uint32_t>(500 + rng() % 1000);
  return {prompts, tokens};
}

void check_well_formed(const SamplingPlan& plan, std::uint32_t steps, const SamplingSettings& settings) {
  const auto& groups = plan.groups();
  REQUIRE(groups.front().after_prefill);
  REQUIRE(groups.front().first_step == 0);
  std::uint32_t free_from = 0;
  std::vector<std::uint32_t> measured;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    CHECK(groups[g].after_prefill == (g == 0));
    CHECK(groups[g].first_step >= free_from);  // ascending and disjoint: the state never goes back
    free_from = groups[g].first_step + groups[g].steps();
    CHECK(groups[g].warmup == (g == 0 ? 0 : settings.warmup));
    for (std::uint32_t i = 0; i < groups[g].measured; ++i) measured.push_back(groups[g].first_measured() + i);
  }
  CHECK(free_from <= steps);
  CHECK(measured == plan.measured_steps());
}

}  // namespace

TEST_CASE("a uniform batch: OPT-13B's run of 1024 + 1024 tokens") {
  const SamplingSettings settings;
  const SamplingPlan plan(uniform(1024, 1024), 40, {.page_tokens = 16, .window_tokens = 1024}, settings);
  check_well_formed(plan, 1023, settings);
  CHECK(plan.groups()[0].layers == 6);
  CHECK(plan.groups()[1].layers == 5);
  CHECK_FALSE(plan.exact());
  std::uint32_t simulated = 0;
  for (const SampledGroup& g : plan.groups()) simulated += g.steps();
  CHECK(simulated <= 21);
  CHECK(plan.statement() ==
        "prefill simulated with 6 of 40 layers; 20 of 1023 decode steps with 5 (12 measured: the first, and 5 plain, "
        "3 token-flush, 0 window-flush places)");
  // Flash reads full pages: a staircase. The engine grows with every token. Flushes come every 16 steps and spill.
  const auto staircase = [](std::uint32_t s) { return 10.0 * ((1024 + s + 1) / 16); };
  const auto line = [](std::uint32_t s) { return 0.6 * (1024 + s + 1); };
  const auto spikes = [](std::uint32_t s) {
    return (s + 1) % 16 == 0 ? 90.0 : (s + 1) % 16 == 1 && s > 0 ? 25.0 : 0.0;
  };
  for (const double weight : {0.0, 1.0})
    for (const double spike : {0.0, 1.0, 10.0}) {
      CAPTURE(weight, spike);
      const Outcome o = estimate(
          plan, 40, 1023,
          [&](std::uint32_t s) { return 20 + weight * staircase(s) + (1 - weight) * line(s) + spike * spikes(s); },
          55.0);
      CHECK(o.relative() < 0.001);
    }
}

TEST_CASE("the scale of layers applies to what is inside them only") {
  const SamplingPlan plan(uniform(100, 300), 10, {.page_tokens = 16}, {});
  const Outcome o = estimate(
      plan, 10, 299, [](std::uint32_t) { return 3.0; }, 1000.0);
  CHECK(o.estimated == Approx(299 * (30 + 1000.0)).epsilon(1e-12));
}

TEST_CASE("window flushes and the saw-tooth of tokens that are not transposed yet") {
  // SparF with the token_index tail: tokens of full windows cost a little, the others more; a full window costs a lot
  // and for three steps.
  for (const std::uint32_t window : {64U, 128U, 256U, 512U})
    for (const std::uint32_t prompt : {1024U, 1000U, 517U}) {
      CAPTURE(window, prompt);
      const SamplingSettings settings{.steps = 12};  // as for sparse attention
      const SamplingPlan plan(uniform(prompt, 1024), 40, {.page_tokens = 16, .window_tokens = window}, settings);
      check_well_formed(plan, 1023, settings);
      const Cost cost = [&](std::uint32_t s) {
        const std::uint32_t context = prompt + s + 1, windowed = context - context % window;
        double c = 50 + 0.3 * windowed + 0.8 * (context - context % 16 - windowed) + 0.2 * context;
        if (context % 16 == 0) c += 40;
        const std::uint32_t since = context % window;
        if (context - since > prompt && since < 3) c += 900.0 / (since + 1);
        return c;
      };
      const Outcome o = estimate(plan, 40, 1023, cost, 10.0);
      CAPTURE(o.error, plan.statement());
      CHECK(o.relative() < 0.003);
      CHECK(o.relative() <= o.error + 1e-9);
    }
}

TEST_CASE("ragged batches: flushes fall on different steps") {
  constexpr double kRounding = 2e-4;
  std::uint32_t exceeded = 0, samples = 0, many = 0;
  for (const std::uint64_t seed : {1, 2, 3, 4, 5, 6, 7, 8, 9, 10})
    for (const std::uint32_t batch : {2U, 5U, 16U, 64U}) {
      CAPTURE(seed, batch);
      const BatchLengths w = ragged(seed, batch, 1024);
      const KvGrouping grouping{.page_tokens = 16, .window_tokens = 256};
      const SamplingSettings settings{.steps = 12};
      const SamplingPlan plan(w, 40, grouping, settings);
      check_well_formed(plan, 1023, settings);
      const Cost cost = [&](std::uint32_t s) {
        double c = 20;
        for (const std::uint32_t prompt : w.prompts()) {
          const std::uint32_t context = prompt + s + 1, windowed = context - context % 256;
          c += 0.02 * windowed + 0.05 * (context - context % 16 - windowed) + 0.01 * context;
          if (context % 16 == 0) c += 6;
          if (context % 256 == 0) c += 60;
          if (context % 256 == 1 && s > 0) c += 30;
        }
        return c;
      };
      const Outcome first = estimate(plan, 40, 1023, cost, 10.0);
      CAPTURE(first.error, first.relative(), plan.statement());
      CHECK(first.relative() < 0.01);
      // A sample that states 0.3 % is within 0.3 %.
      const Sampled fine = within(0.003, w, 40, grouping, cost);
      CHECK(fine.outcome.relative() < 0.003);
      many += fine.steps > 64;
      exceeded +=
          (first.relative() > first.error + kRounding) + (fine.outcome.relative() > fine.outcome.error + kRounding);
      samples += 2;
    }
  CHECK(exceeded * 20 <= samples);
  CHECK(many == 0);
}

TEST_CASE("pages of the newest tokens, which a step reads or not by its tail, are met") {
  const auto newest = [](std::uint32_t context) { return context / 32; };
  const KvGrouping known{.page_tokens = 32, .newest = newest};
  const std::vector<StepFeatures> f = step_features({{512}, 513}, known, {});
  const auto cost = [&](std::uint32_t s) { return 90 + 0.01 * f[s].flushed + 5 * f[s].newest_groups; };
  const auto outcome = [&](const KvGrouping& grouping) {
    return estimate(SamplingPlan(uniform(512, 512), 24, grouping, {.layers = 24, .steps = 12}), 24, 511, cost, 10.0);
  };
  CHECK(outcome(known).relative() < 0.0005);
  CHECK(outcome(known).error < 0.0005);
  // If the grouping does not know these pages, they are residuals of the fit.
  const Outcome unknown = outcome({.page_tokens = 32});
  CHECK(unknown.error > 0.005);
  CHECK(unknown.relative() <= unknown.error);
}

TEST_CASE("a kink, where the GPU stops being the bottleneck, stays within the estimated error") {
  const BatchLengths w = uniform(64, 2000);
  const Cost kink = [](std::uint32_t s) { return std::max(600.0, 0.9 * (s + 65)); };
  const Outcome o = estimate(SamplingPlan(w, 40, {.page_tokens = 16}, {}), 40, 1999, kink, 10.0);
  CHECK(o.relative() < 0.005);
  CHECK(o.error >= o.relative());
  // With more places, the differences of neighbours show the error.
  const Sampled fine = within(0.01, w, 40, {.page_tokens = 16}, kink);
  CHECK(fine.outcome.relative() <= fine.outcome.error);
  CHECK(fine.steps <= 64);
  const Outcome line = estimate(
      SamplingPlan(w, 40, {.page_tokens = 16}, {}), 40, 1999, [](std::uint32_t s) { return 100 + 0.9 * (s + 65); },
      10.0);
  CHECK(line.relative() <= line.error + 1e-9);
  CHECK(line.error < 0.02);
}

TEST_CASE("what the first step pays once is not scaled with the layers") {
  const SamplingPlan plan(uniform(1024, 1024), 40, {.page_tokens = 16}, {});
  const double stall = 5000;
  // The stall is inside the layers' part, whatever their number.
  std::vector<LayeredCost> measured;
  for (const std::uint32_t s : plan.measured_steps()) measured.push_back({s == 0 ? 6 * 30.0 + stall : 5 * 30.0, 7});
  CHECK(plan.decode_total(measured) == Approx(1023 * (40 * 30.0 + 7) + stall).epsilon(1e-9));

  // The same where every step but not every layer is simulated.
  const SamplingPlan all(uniform(1024, 10), 40, {.page_tokens = 16}, {});
  CHECK(all.groups().size() == 1);
  measured.clear();
  for (const std::uint32_t s : all.measured_steps()) measured.push_back({6 * 30.0 + (s == 0 ? stall : 0), 7});
  CHECK(all.decode_total(measured) == Approx(9 * (40 * 30.0 + 7) + stall).epsilon(1e-9));
}

TEST_CASE("off: every step and layer, weight one, nothing estimated") {
  const SamplingPlan plan(uniform(100, 600), 40, {.page_tokens = 16}, {.off = true});
  CHECK(plan.exact());
  CHECK(plan.groups()[0].layers == 40);
  REQUIRE(plan.groups().size() == 1);
  CHECK(plan.groups()[0].span().decode_steps == 599);
  CHECK(plan.groups()[0].span().prefill);
  CHECK(plan.statement() == "prefill and all 599 decode steps simulated, with 40 of 40 layers");
  std::mt19937_64 rng(3);
  std::vector<LayeredCost> measured;
  double total = 0;
  for (int i = 0; i < 599; ++i) {
    measured.push_back({static_cast<double>(rng() % 1000), static_cast<double>(rng() % 1000)});
    total += measured.back().layered + measured.back().fixed;
  }
  CHECK(plan.decode_total(measured) == Approx(total).epsilon(1e-12));
  CHECK(plan.decode_error(measured).relative == 0);
}

TEST_CASE("short runs and runs without decode are simulated whole") {
  const SamplingPlan one(uniform(100, 1), 40, {.page_tokens = 16}, {});
  CHECK(one.groups().size() == 1);
  CHECK(one.measured_steps().empty());
  CHECK(one.decode_total({}) == 0);
  CHECK(one.statement() == "prefill: 6 of 40 layers simulated");
  for (const std::uint32_t tokens : {2U, 3U, 17U, 40U, 100U}) {
    const SamplingPlan plan(uniform(100, tokens), 4, {.page_tokens = 16, .window_tokens = 64}, {});
    check_well_formed(plan, tokens - 1, {});
    const Outcome o = estimate(
        plan, 4, tokens - 1, [](std::uint32_t s) { return 100.0 + s; }, 3.0);
    CAPTURE(tokens, o.error, plan.statement());
    CHECK(o.relative() < 0.005);
    CHECK(o.relative() <= o.error + 1e-9);
  }
}

TEST_CASE("a stratum that is measured whole adds nothing to the error") {
  // Two windows fill in 199 steps and both are measured; what they cost is known, however different they are.
  const SamplingPlan plan(uniform(1000, 200), 40, {.page_tokens = 16, .window_tokens = 128}, {});
  const Cost cost = [](std::uint32_t s) {
    const std::uint32_t context = 1000 + s + 1;
    return 50.0 + (context % 128 == 0 ? 20.0 * (context / 128) * (context / 128) : 0);
  };
  const Outcome o = estimate(plan, 40, 199, cost, 3.0);
  CHECK(o.error < 1e-9);
  CHECK(o.relative() < 1e-9);
  // Eight windows in the run, two measured: the error shows.
  const SamplingPlan part(uniform(1000, 1030), 40, {.page_tokens = 16, .window_tokens = 128}, {});
  CHECK(estimate(part, 40, 1029, cost, 3.0).error > 1e-3);
}

TEST_CASE("the share of a plan is what it simulates of steps and layers") {
  const SamplingPlan plan(uniform(1024, 1024), 40, {.page_tokens = 16}, {});
  double simulated = 0;
  for (const SampledGroup& g : plan.groups()) simulated += g.steps() * g.layers;
  CHECK(plan.share() == Approx((simulated + 6) / (1024.0 * 40)));
  CHECK(SamplingPlan(uniform(100, 50), 40, {.page_tokens = 16}, {.off = true}).share() == 1);
}

TEST_CASE("groups stay disjoint with warm-up, cool-down, spill, and any page size") {
  std::mt19937_64 rng(17);
  for (int trial = 0; trial < 300; ++trial) {
    CAPTURE(trial);
    SamplingSettings s{.steps = static_cast<std::uint32_t>(2 + rng() % 12)};
    s.warmup = static_cast<std::uint32_t>(1 + rng() % 2);
    s.cooldown = static_cast<std::uint32_t>(rng() % 3);
    s.spill.token = static_cast<std::uint32_t>(rng() % 3);
    s.spill.window = static_cast<std::uint32_t>(rng() % 6);
    const auto tokens = static_cast<std::uint32_t>(2 + rng() % 400);
    const KvGrouping grouping{.page_tokens = 1U << (rng() % 6), .window_tokens = rng() % 2 ? 64U : 0U};
    BatchLengths w = ragged(rng(), static_cast<std::uint32_t>(1 + rng() % 20), tokens);
    const SamplingPlan plan(w, 6, grouping, s);
    check_well_formed(plan, tokens - 1, s);
    // A constant cost is met whatever the plan.
    const Outcome o = estimate(
        plan, 6, tokens - 1, [](std::uint32_t) { return 4.0; }, 3.0);
    CHECK(o.estimated == Approx(o.total).epsilon(1e-9));
  }
}

TEST_CASE("a sample that goes on keeps its groups and adds places in equal shares of the steps") {
  const BatchLengths w = uniform(1000, 1025);
  const KvGrouping grouping{.page_tokens = 16, .window_tokens = 64};
  const SamplingSettings first{.steps = 12, .cooldown = 1};
  SamplingSettings more = first;
  more.further = {{.plain = 10, .token_flush = 4, .window_flush = 2}, {.plain = 6}};
  const SamplingPlan before(w, 40, grouping, first), after(w, 40, grouping, more);
  check_well_formed(after, 1024, more);
  std::vector<std::uint32_t> added;
  for (const SampledGroup& g : after.groups()) {
    const auto same = std::ranges::find(before.groups(), g.first_step, &SampledGroup::first_step);
    if (same == before.groups().end()) {
      if (g.stratum == Stratum::plain) added.push_back(g.first_step);
      continue;
    }
    CHECK(same->measured == g.measured);
    CHECK(same->stratum == g.stratum);
  }
  CHECK(after.groups().size() == before.groups().size() + 22);
  CHECK(after.places().plain == before.places().plain + 16);
  CHECK(after.places().token_flush == before.places().token_flush + 4);
  CHECK(after.places().window_flush == before.places().window_flush + 2);
  // Ten and six places: two or three of each quarter of the run, and one or two.
  REQUIRE(added.size() == 16);
  for (std::uint32_t quarter = 0; quarter < 4; ++quarter) {
    const auto in = std::ranges::count_if(added, [&](std::uint32_t s) { return s / 256 == quarter; });
    CHECK(in >= 2);
    CHECK(in <= 6);
  }
}

TEST_CASE("every equal share of the plain steps has a place, also where flushes take its steps") {
  std::uint32_t shares = 0;
  for (std::uint32_t prompt = 300; prompt < 400; ++prompt) {
    const std::uint32_t tokens = 120 + prompt % 60;
    const KvGrouping grouping{.page_tokens = 16, .window_tokens = 64};
    const SamplingPlan plan(uniform(prompt, tokens), 40, grouping, {.cooldown = 1});
    std::vector<std::uint32_t> plain;
    const std::vector<StepFeatures> features = step_features(uniform(prompt, tokens), grouping, {});
    for (std::uint32_t s = 1; s < features.size(); ++s)
      if (features[s].stratum() == Stratum::plain) plain.push_back(s);
    const std::uint32_t places = plan.places().plain;
    if (places == 0) continue;  // every step is measured
    for (std::uint32_t i = 0; i < places; ++i) {
      const std::uint32_t from = plain[i * plain.size() / places], last = plain[(i + 1) * plain.size() / places - 1];
      CAPTURE(prompt, tokens, from, last);
      CHECK(std::ranges::any_of(plan.groups(), [&](const SampledGroup& g) {
        return !g.after_prefill && g.stratum == Stratum::plain && g.first_measured() >= from &&
               g.first_measured() <= last;
      }));
      ++shares;
    }
  }
  CHECK(shares > 100);
}

TEST_CASE("a place of a flush measures the plain step after it where all later steps cost as much") {
  const KvGrouping grouping{.page_tokens = 16, .window_tokens = 64};
  const SamplingSettings drains{.cooldown = 1, .spill = {.token = 1, .window = 1}};
  SamplingSettings moves = drains;
  moves.settled = true;
  const SamplingPlan before(uniform(1000, 1025), 40, grouping, drains), after(uniform(1000, 1025), 40, grouping, moves);
  check_well_formed(after, 1024, moves);
  const std::vector<StepFeatures> features = step_features(uniform(1000, 1025), grouping, drains.spill);
  const auto ends_plain = [&](const SampledGroup& g) {
    return features[g.first_measured() + g.measured - 1].stratum() == Stratum::plain;
  };
  std::uint32_t flushes = 0;
  for (const SampledGroup& g : after.groups()) {
    if (g.after_prefill || g.stratum == Stratum::plain) continue;
    CHECK(ends_plain(g));
    ++flushes;
  }
  CHECK(flushes >= 6);
  for (const SampledGroup& g : before.groups())
    if (!g.after_prefill && g.stratum != Stratum::plain) CHECK_FALSE(ends_plain(g));
  // Costs that grow with the flushed tokens at once: each of them is seen from both sides.
  const Outcome o = estimate(
      after, 40, 1024, [&](std::uint32_t step) { return features[step].flushed < 1500 ? 4.0 : 7.0; }, 3.0);
  CHECK(o.relative() <= o.error);
}

TEST_CASE("steps around a place have the copies that run ahead") {
  const BatchLengths w{{1000}, 2000};
  const auto place = [&](std::uint32_t ahead, std::uint32_t layers) {
    return SamplingPlan(w, 40, {}, {.layers = layers, .ahead = ahead}).groups().back();
  };
  for (const auto& [ahead, layers, before, after] : std::vector<std::array<std::uint32_t, 4>>{
           {0, 5, 1, 0}, {2, 5, 1, 1}, {2, 2, 2, 1}, {5, 2, 5, 3}, {20, 5, 8, 4}}) {
    CAPTURE(ahead, layers);
    CHECK(place(ahead, layers).warmup == before);
    CHECK(place(ahead, layers).cooldown == after);
  }
  // What a step needs anyway is not less.
  CHECK(SamplingPlan(w, 40, {}, {.warmup = 3, .cooldown = 2, .ahead = 2}).groups().back().steps() == 6);
}

TEST_CASE("sampling mistakes are named") {
  const BatchLengths w = uniform(10, 100);
  CHECK_THROWS_WITH(SamplingPlan(w, 40, {}, {.layers = 1}), Catch::Contains("at least 2"));
  CHECK_THROWS_WITH(SamplingPlan(w, 40, {}, {.steps = 1}), Catch::Contains("at least 2"));
  CHECK_THROWS_WITH(SamplingPlan(w, 40, {}, {.warmup = 0}), Catch::Contains("at least 1"));
  CHECK_NOTHROW(SamplingPlan(w, 1, {}, {.layers = 1}));
  CHECK_THROWS_AS(SamplingPlan(w, 40, {.page_tokens = 0}, {}), UserError);
}

TEST_CASE("a cost that follows another law from a step on: the break tells, without it the estimate is far off") {
  for (const std::uint32_t at : {200U, 333U, 450U, 700U}) {
    CAPTURE(at);
    const Cost cost = [&](std::uint32_t s) { return (s < at ? 1 : 2) * (50 + 0.2 * s); };
    const SamplingSettings settings{.spill = {.token = 0, .window = 0}};
    const SamplingPlan with(uniform(256, 1024), 40, {.page_tokens = 1, .breaks = {at}}, settings);
    check_well_formed(with, 1023, settings);
    const Outcome told = estimate(with, 40, 1023, cost, 10.0);
    CAPTURE(told.error, with.statement());
    CHECK(told.relative() <= told.error + 1e-6);
    CHECK(told.relative() < 0.002);
    const Outcome not_told =
        estimate(SamplingPlan(uniform(256, 1024), 40, {.page_tokens = 1}, settings), 40, 1023, cost, 10.0);
    CHECK(not_told.relative() > 10 * told.relative());
    CHECK(not_told.relative() > 0.004);
  }
}

TEST_CASE("groups that are written back: those that fill a page of a drive are token flushes, the others are apart") {
  // 16 groups in 256 steps, every second one for the drive, where two fill a page.
  TokenShares shares{.share = {{{1, 2}, {0, 1}, {0, 1}, {1, 2}}}, .group = 16};
  const std::vector<StepFeatures> steps =
      step_features(uniform(64, 257), {.page_tokens = 32, .division = KvDivision(shares, 4, 1)}, {1, 1});
  const auto count = [&](Stratum stratum) {
    return std::count_if(steps.begin(), steps.end(), [&](const StepFeatures& f) { return f.stratum() == stratum; });
  };
  REQUIRE(steps.size() == 256);
  CHECK(count(Stratum::token_flush) == 4);
  CHECK(count(Stratum::window_flush) == 12);
  // The last step is a flush, so that nothing comes after it.
  CHECK(count(Stratum::after_token_flush) + count(Stratum::after_window_flush) == 15);
}

}  // namespace test_sampling_plan
