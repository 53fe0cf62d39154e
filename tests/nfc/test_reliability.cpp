#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <vector>

#include "base/error.h"
#include "nfc/core/reliability.h"

namespace test_reliability {

using namespace csdsim;
using namespace csdsim::nfc;

namespace {

/// P(X > k) from the whole distribution, built up trial by trial.
double tail_by_trials(std::uint32_t n, double p, std::uint32_t k) {
  std::vector<long double> mass(n + 1, 0.0L);
  mass[0] = 1;
  for (std::uint32_t trial = 1; trial <= n; ++trial)
    for (std::uint32_t i = trial + 1; i-- > 0;)
      mass[i] = mass[i] * (1 - static_cast<long double>(p)) + (i > 0 ? mass[i - 1] * p : 0);
  long double sum = 0;
  for (std::uint32_t i = n; i > k; --i) sum += mass[i];
  return static_cast<double>(sum);
}

/// Worn TLC: a quarter of the reads of a page fail the first attempt.
ReliabilityParams worn_tlc() {
  ReliabilityParams config;
  config.rber = tlc_rber();
  config.initial_cycles = 1500;
  config.retention_days = 240;
  config.pages_per_block = 768;
  config.codewords = 16;
  config.retry_factor = 0.95;
  config.max_retries = 3;
  config.seed = 7;
  return config;
}

}  // namespace

TEST_CASE("the tail of the binomial distribution is exact") {
  for (const std::uint32_t n : {1u, 2u, 17u, 100u, 700u})
    for (const double p : {1e-6, 0.003, 0.1, 0.5, 0.97})
      for (const std::uint32_t k : {0u, 1u, 5u, 40u, 99u, 350u}) {
        INFO("n = " << n << ", p = " << p << ", k = " << k);
        const double exact = k < n ? tail_by_trials(n, p, k) : 0;
        // Near 1 the complement is what is summed: exact to the last places of 1.
        if (exact > 1e-300) CHECK(binomial_tail(n, p, k) == Approx(exact).epsilon(1e-9).margin(1e-14));
      }
  CHECK(binomial_tail(100, 0, 0) == 0);
  CHECK(binomial_tail(100, 1, 99) == 1);
  CHECK(binomial_tail(100, 0.3, 100) == 0);
  // A codeword of 9,200 bits, 72 of them correctable, far from and near to its limit.
  CHECK(binomial_tail(9200, 72.0 / 9200, 72) == Approx(tail_by_trials(9200, 72.0 / 9200, 72)).epsilon(1e-9));
  CHECK(binomial_tail(9200, 2e-3, 72) == Approx(tail_by_trials(9200, 2e-3, 72)).epsilon(1e-9));
}

TEST_CASE("the raw bit error rate is the published sum of wear, retention and read disturb") {
  const RberCoefficients tlc = tlc_rber();
  CHECK(tlc.rate(0, 0, 0) == 1.48e-3);
  CHECK(tlc.rate(3000, 0, 0) == Approx(1.48e-3 + 3.90e-10 * std::pow(3000, 2.05)));
  CHECK(tlc.rate(3000, 365, 0) - tlc.rate(3000, 0, 0) == Approx(6.28e-5 * std::pow(3000, 0.14) * std::pow(365, 0.54)));
  CHECK(tlc.rate(3000, 0, 100) - tlc.rate(3000, 0, 0) == Approx(3.73e-9 * std::pow(3000, 0.33) * std::pow(100, 1.71)));
  CHECK(tlc.rate(1e9, 1e9, 1e9) == 0.5);
  CHECK(RberCoefficients{}.rate(5000, 365, 1000) == 0);
}

TEST_CASE("each cell type has more errors than the one below, and more with every stress") {
  const std::array<RberCoefficients, 4> cells{slc_rber(), mlc_rber(), tlc_rber(), qlc_rber()};
  for (std::size_t i = 0; i < cells.size(); ++i) {
    INFO("cell " << i);
    if (i > 0) CHECK(cells[i].rate(1000, 90, 10) > cells[i - 1].rate(1000, 90, 10));
    CHECK(cells[i].rate(2000, 90, 10) > cells[i].rate(1000, 90, 10));
    CHECK(cells[i].rate(1000, 180, 10) > cells[i].rate(1000, 90, 10));
    CHECK(cells[i].rate(1000, 90, 100) > cells[i].rate(1000, 90, 10));
  }
}

TEST_CASE("SLC has a hundredth of each rate of MLC, QLC twice the base of TLC and four times its other rates") {
  // Differences of rates from one condition to the next, which stand for one coefficient each.
  const auto parts = [](const RberCoefficients& c) {
    const double base = c.rate(0, 0, 0), wear = c.rate(1000, 0, 0) - base;
    return std::array{base, wear, c.rate(1000, 90, 0) - base - wear, c.rate(1000, 0, 100) - base - wear};
  };
  const auto slc = parts(slc_rber()), mlc = parts(mlc_rber()), tlc = parts(tlc_rber()), qlc = parts(qlc_rber());
  for (std::size_t i = 0; i < 4; ++i) {
    INFO("base, wear, retention, disturb: " << i);
    CHECK(slc[i] * 100 == Approx(mlc[i]));
    CHECK(qlc[i] == Approx((i == 0 ? 2 : 4) * tlc[i]));
  }
}

TEST_CASE("retries are distributed as the tails of the attempts say") {
  const ReliabilityParams config = worn_tlc();
  Reliability model(config);
  const std::uint32_t erases = 20;
  const std::uint64_t reads = 30;
  // Straight from the definitions: all 16 codewords of an attempt within 72 errors.
  std::vector<double> fails;
  for (std::uint32_t i = 0; i <= config.max_retries; ++i) {
    const double rate = model.rber(erases, reads) * std::pow(config.retry_factor, i);
    const double codeword = binomial_tail(config.codeword_bits, rate, config.correctable_bits);
    fails.push_back(1 - std::pow(1 - codeword, config.codewords));
    CHECK(model.attempt_failure(i, erases, reads) == Approx(fails.back()).epsilon(1e-9));
  }
  REQUIRE(fails[0] > 0.1);
  REQUIRE(fails[3] > 1e-4);
  std::vector<double> expected{1 - fails[0]};
  for (std::size_t i = 1; i < fails.size(); ++i) expected.push_back(fails[i - 1] - fails[i]);
  expected.push_back(fails.back());

  constexpr std::uint64_t kPages = 400'000;
  std::vector<std::uint64_t> seen(expected.size());
  for (std::uint64_t page = 0; page < kPages; ++page) {
    const ReadOutcome outcome = model.read({page}, erases, reads);
    if (outcome.uncorrectable) CHECK(outcome.retries == config.max_retries);
    ++seen[outcome.uncorrectable ? expected.size() - 1 : outcome.retries];
  }
  double chi_square = 0;
  for (std::size_t i = 0; i < seen.size(); ++i) {
    const double mean = expected[i] * static_cast<double>(kPages);
    INFO(i << ": " << seen[i] << " of " << mean);
    REQUIRE(mean > 20);
    chi_square += (static_cast<double>(seen[i]) - mean) * (static_cast<double>(seen[i]) - mean) / mean;
  }
  CHECK(chi_square < 18.47);  // 99.9 % of 4 degrees of freedom
}

TEST_CASE("cycles, age and reads make reads fail more, correction and retries less") {
  const ReliabilityParams base = worn_tlc();
  const auto first = [](const ReliabilityParams& c, std::uint32_t erases, std::uint64_t reads) {
    return Reliability(c).attempt_failure(0, erases, reads);
  };
  const auto with = [&](const std::function<void(ReliabilityParams&)>& change) {
    ReliabilityParams c = base;
    change(c);
    return first(c, 0, 0);
  };
  const double now = first(base, 0, 0);
  CHECK(first(base, 500, 0) > now);
  CHECK(first(base, 0, 100'000) > now);
  CHECK(with([](auto& c) { c.initial_cycles = 2000; }) > now);
  CHECK(with([](auto& c) { c.retention_days = 300; }) > now);
  CHECK(with([](auto& c) { c.codewords = 32; }) > now);
  CHECK(with([](auto& c) { c.codeword_bits = 9500; }) > now);
  CHECK(with([](auto& c) { c.correctable_bits = 80; }) < now);
  const Reliability model(base);
  for (std::uint32_t i = 1; i <= base.max_retries; ++i)
    CHECK(model.attempt_failure(i, 0, 0) < model.attempt_failure(i - 1, 0, 0));
  // Never less with more of anything, over the rounding to steps too.
  double before = 0;
  for (std::uint32_t erases = 0; erases < 3000; erases += 7) {
    const double here = first(base, erases, 0);
    CHECK(here >= before);
    before = here;
  }
  before = 0;
  for (std::uint64_t reads = 1; reads < 2'000'000; reads += 1 + reads / 20) {
    const double here = first(base, 0, reads);
    CHECK(here >= before);
    before = here;
  }
}

TEST_CASE("rounding to steps moves the state by 3 % at most") {
  ReliabilityParams config;
  config.rber = {.base = 0, .wear = 1e-7, .wear_exponent = 1};
  const Reliability by_cycles(config);
  for (std::uint32_t c = 0; c < 100'000; c += 1 + c / 50)
    CHECK(by_cycles.rber(c, 0) == Approx(1e-7 * c).epsilon(c < 32 ? 1e-12 : 0.031));
  config.rber = {.base = 0, .disturb = 1e-12, .disturb_exponent = 1};
  const Reliability by_reads(config);
  for (std::uint64_t r = 0; r < 100'000'000; r += 1 + r / 50)
    CHECK(by_reads.rber(0, r) == Approx(1e-12 * static_cast<double>(r)).epsilon(r < 32 ? 1e-12 : 0.031));
}

TEST_CASE("cycles before the run are not rounded, nor with the erases of the run") {
  for (std::uint32_t c = 0; c < 100'000; c += 1 + c / 50) {
    ReliabilityParams config;
    config.rber = {.base = 0, .wear = 1e-7, .wear_exponent = 1};
    config.initial_cycles = c;
    const Reliability model(config);
    for (const std::uint32_t erases : {0u, 1u, 31u})
      CHECK(model.rber(erases, 0) == Approx(1e-7 * (c + erases)).epsilon(1e-12));
  }
}

TEST_CASE("program and erase failures come at their rates, and grow with cycles") {
  ReliabilityParams config;
  config.initial_cycles = 3000;
  config.rated_cycles = 3000;
  config.program_failure = 0.01;
  config.erase_failure = 0.04;
  const Reliability model(config);
  CHECK(model.program_failure(0) == Approx(0.01).epsilon(0.031));
  CHECK(model.program_failure(3000) == Approx(2 * 0.01).epsilon(0.031));
  CHECK(model.erase_failure(3000) == Approx(2 * 0.04).epsilon(0.031));
  constexpr std::uint32_t kDraws = 100'000;
  std::uint32_t programs = 0, erases = 0;
  for (std::uint32_t i = 0; i < kDraws; ++i) {
    programs += model.program_fails({i}, 0) ? 1 : 0;
    erases += model.erase_fails(BlockId{i}, 0) ? 1 : 0;
  }
  const auto within = [&](std::uint32_t count, double p) {
    return std::abs(count - p * kDraws) < 4 * std::sqrt(p * (1 - p) * kDraws);
  };
  CHECK(within(programs, model.program_failure(0)));
  CHECK(within(erases, model.erase_failure(0)));
  config.failure_exponent = 3;
  CHECK(Reliability(config).erase_failure(3000) == Approx(8 * 0.04).epsilon(0.1));
}

TEST_CASE("draws depend on the seed and their place only, and are not each other's") {
  ReliabilityParams config = worn_tlc();
  config.program_failure = config.erase_failure = 0.3;
  Reliability a(config), b(config);
  config.seed = 8;
  Reliability other(config);
  std::uint32_t same_reads = 0, same_programs = 0, same_erases = 0, same_generation = 0;
  constexpr std::uint32_t kPages = 4000;
  for (std::uint32_t page = kPages; page-- > 0;) a.read({page}, 3, page);
  for (std::uint32_t page = 0; page < kPages; ++page) {
    CHECK(a.read({page}, 3, page) == b.read({page}, 3, page));
    CHECK(a.program_fails({page}, 3) == b.program_fails({page}, 3));
    CHECK(a.erase_fails(BlockId{page}, 3) == b.erase_fails(BlockId{page}, 3));
    same_reads += a.read({page}, 3, 10) == other.read({page}, 3, 10) ? 1 : 0;
    same_generation += a.read({page}, 3, 10) == a.read({page}, 4, 10) ? 1 : 0;
    same_programs += a.program_fails({page}, 3) == other.program_fails({page}, 3) ? 1 : 0;
    same_erases += a.erase_fails(BlockId{page}, 3) == a.program_fails({page}, 3) ? 1 : 0;
  }
  for (const std::uint32_t same : {same_reads, same_programs, same_erases, same_generation}) {
    CHECK(same > kPages / 3);
    CHECK(same < kPages);
  }
}

TEST_CASE("a page keeps its luck until its block is erased: it gets no better, and what is lost stays lost") {
  ReliabilityParams config = worn_tlc();
  config.max_retries = 3;
  config.rber.disturb = 1e-7;
  Reliability model(config);
  std::uint32_t lost_at_once = 0, lost_later = 0, back_after_erase = 0;
  for (std::uint64_t page = 0; page < 20'000; ++page) {
    const ReadOutcome first = model.read({page}, 5, 0);
    ReadOutcome before = first;
    for (std::uint64_t reads = 1; reads < 200'000; reads = 1 + reads * 3) {
      const ReadOutcome now = model.read({page}, 5, reads);
      REQUIRE(now == model.read({page}, 5, reads));
      REQUIRE(now.retries >= before.retries);
      REQUIRE(now.uncorrectable >= before.uncorrectable);
      before = now;
    }
    lost_at_once += first.uncorrectable ? 1 : 0;
    lost_later += before.uncorrectable && !first.uncorrectable ? 1 : 0;
    back_after_erase += first.uncorrectable && !model.read({page}, 6, 0).uncorrectable ? 1 : 0;
  }
  CHECK(lost_at_once > 10);
  CHECK(lost_later > 10);
  CHECK(back_after_erase > lost_at_once / 2);
}

TEST_CASE("zero means never") {
  Reliability none{ReliabilityParams{}};
  for (std::uint64_t page = 0; page < 20'000; ++page) {
    REQUIRE(none.read({page}, 100'000, page << 20) == ReadOutcome{});
    REQUIRE_FALSE(none.program_fails({page}, 100'000));
    REQUIRE_FALSE(none.erase_fails(BlockId{static_cast<std::uint32_t>(page)}, 100'000));
  }
  // No retries: what the first attempt does not correct is lost.
  ReliabilityParams config = worn_tlc();
  config.max_retries = 0;
  Reliability once(config);
  std::uint32_t lost = 0;
  for (std::uint64_t page = 0; page < 1000; ++page) {
    const ReadOutcome outcome = once.read({page}, 0, 0);
    CHECK(outcome.retries == 0);
    lost += outcome.uncorrectable ? 1 : 0;
  }
  CHECK(lost > 0);
}

TEST_CASE("a reliability configuration out of range is refused by name") {
  const auto message = [](const std::function<void(ReliabilityParams&)>& change) {
    ReliabilityParams config;
    change(config);
    try {
      Reliability{config};
    } catch (const UserError& e) {
      return std::string(e.what());
    }
    return std::string("accepted");
  };
  CHECK_THAT(message([](auto& c) { c.rber.wear = -1; }), Catch::StartsWith("reliability.wear:"));
  CHECK_THAT(message([](auto& c) { c.retry_factor = 1.5; }), Catch::StartsWith("reliability.retry_factor:"));
  CHECK_THAT(message([](auto& c) { c.erase_failure = NAN; }), Catch::StartsWith("reliability.erase_failure:"));
  CHECK_THAT(message([](auto& c) { c.correctable_bits = 9200; }), Catch::StartsWith("reliability.correctable_bits:"));
  CHECK_THAT(message([](auto& c) { c.max_retries = 256; }), Catch::StartsWith("reliability.max_retries:"));
  CHECK_THAT(message([](auto& c) { c.codewords = 0; }), Catch::StartsWith("reliability.codewords:"));
}

}  // namespace test_reliability
