#include <catch2/catch.hpp>

#include "base/error.h"
#include "host_runtime/core/plan/sparf_budget.h"

namespace test_sparf_budget {

using namespace csdsim;
using namespace csdsim::host;

TEST_CASE("ratio 1/8, uniform: r = d/8, k = S/8, 0.1875 of the elements") {
  const SparfBudget b({.ratio = {1, 8}}, 128);
  CHECK(b.components() == 16);
  CHECK(b.top_k(1536) == 192);
  CHECK(b.local(1536) == 48);
  CHECK(b.traffic(1536) == Approx(0.1875));
  CHECK(b.describe(1536) == "r = 16 of 128, k = 192, l = 48 at 1536 tokens: 0.1875 of the dense elements");
}

TEST_CASE("ratio 1/8, traffic: with r = 16 k = S/16 and 1/8 of the elements") {
  const SparfBudget b({.ratio = {1, 8}, .mode = RatioMode::traffic}, 128);
  CHECK(b.components() == 16);
  CHECK(b.top_k(1536) == 96);
  CHECK(b.traffic(1536) == Approx(0.125));
  const SparfBudget wide({.ratio = {1, 8}, .mode = RatioMode::traffic, .r = 24}, 128);
  CHECK(wide.top_k(2048) == 64);  // (32 - 24) / 256 of 2048
  CHECK(wide.traffic(2048) == Approx(0.125));
}

TEST_CASE("stated values override the ratio") {
  const SparfBudget b({.ratio = {1, 8}, .r = 32, .k = 128, .local = 10}, 128);
  CHECK(b.components() == 32);
  CHECK(b.top_k(2048) == 128);
  CHECK(b.top_k(100) == 100);  // never more than there is
  CHECK(b.local(2048) == 10);
  CHECK(b.local(6) == 6);
  // SparQ's published elements at d = 128, S = 2048, k = 128: 0.126, 0.188, 0.313 for r = 16, 32, 64 (with small
  // terms).
  for (const auto& [r, traffic] : {std::pair{16U, 0.125}, {32U, 0.1875}, {64U, 0.3125}})
    CHECK(SparfBudget({.ratio = {1, 8}, .r = r, .k = 128}, 128).traffic(2048) == Approx(traffic));
}

TEST_CASE("k rounds half up and is at least one token") {
  const SparfBudget b({.ratio = {1, 8}}, 8);
  CHECK(b.components() == 1);
  CHECK(b.top_k(1) == 1);
  CHECK(b.top_k(11) == 1);
  CHECK(b.top_k(12) == 2);
  CHECK(b.top_k(19) == 2);
  CHECK(b.top_k(20) == 3);
}

TEST_CASE("budget mistakes are named") {
  CHECK_THROWS_AS(SparfBudget({.ratio = {0, 8}}, 128), UserError);
  CHECK_THROWS_AS(SparfBudget({.ratio = {9, 8}}, 128), UserError);
  CHECK_THROWS_AS(SparfBudget({.ratio = {1, 0}}, 128), UserError);
  CHECK_THROWS_AS(SparfBudget({.ratio = {1, 8}, .r = 129}, 128), UserError);
  CHECK_THROWS_AS(SparfBudget({.ratio = {1, 8}, .r = 0}, 128), UserError);
  CHECK_THROWS_AS(SparfBudget({.ratio = {1, 8}, .k = 0}, 128), UserError);
  CHECK_THROWS_WITH(SparfBudget({.ratio = {1, 8}, .mode = RatioMode::traffic, .r = 32}, 128),
                    Catch::Contains("at most r = 31"));
}

}  // namespace test_sparf_budget
