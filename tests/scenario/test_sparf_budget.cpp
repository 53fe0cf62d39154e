#include <catch2/catch.hpp>

#include "csd_model/scenario/scenario.h"

using namespace csdsim;
using namespace csdsim::scenario;

TEST_CASE("budgets of SparF follow the algorithms note") {
  InstinferSparf s;
  SparfBudget b = sparf_budget(s, 128, 2048);
  CHECK(b.r == 16);
  CHECK(b.k == 256);
  CHECK(b.l == 64);
  CHECK(b.traffic == 0.1875);

  s.ratio_mode = RatioMode::traffic;
  b = sparf_budget(s, 128, 2048);
  CHECK(b.r == 16);
  CHECK(b.k == 128);  // S/16
  CHECK(b.traffic == 0.125);

  s.r = 32;  // takes the whole budget: one token stays
  b = sparf_budget(s, 128, 2048);
  CHECK(b.r == 32);
  CHECK(b.k == 1);
  CHECK(b.l == 0);
}

TEST_CASE("given r, k, l are taken, up to what there is") {
  InstinferSparf s;
  s.r = 200;
  s.k = 5000;
  s.l = 4000;
  const SparfBudget b = sparf_budget(s, 64, 100);
  CHECK(b.r == 64);
  CHECK(b.k == 100);
  CHECK(b.l == 100);
  s.r.reset();
  s.k.reset();
  s.l.reset();
  s.ratio = Ratio::of(1, 1024);
  CHECK(sparf_budget(s, 64, 1).r == 1);
  CHECK(sparf_budget(s, 64, 1).k == 1);
  s.ratio = {1, 1};
  CHECK(sparf_budget(s, 64, 77).k == 77);
}

TEST_CASE("rounding is to nearest") {
  InstinferSparf s;
  CHECK(sparf_budget(s, 64, 1027).k == 128);  // 128.375
  CHECK(sparf_budget(s, 64, 1028).k == 129);  // 128.5
  s.ratio_mode = RatioMode::traffic;
  CHECK(sparf_budget(s, 64, 1031).k == 64);  // 64.4375
  CHECK(sparf_budget(s, 64, 1032).k == 65);  // 64.5
}
