#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/counter.h"
#include "base/error.h"
#include "base/metric.h"
#include "base/statistics.h"

namespace test_statistics {

using namespace csdsim;

TEST_CASE("a table of counters is registered, added up and made metrics of") {
  struct Base {
    std::uint64_t lost = 0;
  };
  struct Counts : Base {
    std::uint64_t done = 0;
  };
  static constexpr Counter<Base> kBase[] = {{&Base::lost, {"lost", "pages", "Pages that were lost."}}};
  static constexpr Counter<Counts> kRows[] = {{&Counts::done, {"done", "jobs", "Jobs that ended."}, false}};
  Counts sum;
  Counts more;
  more.done = 3;
  add_counters(sum, more, kRows);
  add_counters(sum, more, kRows);
  add_counters(sum, more, kBase);
  CHECK(sum.done == 6);
  Statistics statistics;
  statistics.counters(sum, kRows);
  statistics.counters(sum, kBase);
  CHECK_FALSE(statistics.dump().contains("lost"));  // it is 0
  sum.lost = 2;
  CHECK(statistics.dump()["lost"]["value"] == 2);
  CHECK(statistics.dump()["lost"]["doc"] == "Pages that were lost.");
  CHECK(statistics.dump()["done"]["unit"] == "jobs");

  CHECK(find_counter(&Counts::lost, kRows) == nullptr);
  const MetricInfo metric = metric_of(*find_counter<Counts>(&Counts::lost, kBase), "kv_lost", "With errors");
  CHECK(metric == MetricInfo{"kv_lost", "pages", "With errors: pages that were lost."});
}

TEST_CASE("statistics are read at the dump, in order of registration") {
  std::uint64_t pages = 0;
  SimTime busy;
  Histogram latency;
  Statistics root;
  Statistics& flash = root.child("flash");
  flash.counter("pages_read", pages, "pages", "Pages read from the array.");
  flash.time("busy", busy, "Time in which a channel moved data.", StatOrigin::calibrated);
  root.child("link");
  root.child("flash").value(
      "hit_ratio", [&] { return static_cast<double>(pages) / 8; }, "1", "Share of hits.");
  root.histogram("latency", latency, 1e-3, "ns", "Latency of requests.", StatOrigin::sampled);
  pages = 6;
  busy = SimTime::microseconds(2);
  latency.add(3000);
  latency.add(5000);
  const auto json = root.dump();
  CHECK(json.dump() ==
        R"({"flash":{"pages_read":{"value":6,"unit":"pages","doc":"Pages read from the array.","origin":"modelled"},)"
        R"("busy":{"value":2e-06,"unit":"s","doc":"Time in which a channel moved data.","origin":"calibrated"},)"
        R"("hit_ratio":{"value":0.75,"unit":"1","doc":"Share of hits.","origin":"modelled"}},"link":{},)"
        R"("latency":{"value":{"count":2,"mean":4.0,"min":3.0,"p50":3.0,"p90":5.0,"p99":5.0,"p99_9":5.0,"max":5.0},)"
        R"("unit":"ns","doc":"Latency of requests.","origin":"sampled"}})");
  CHECK(root.dump() == json);
}

TEST_CASE("what is unknown is absent, never 0") {
  Statistics root;
  root.value(
      "share", [] { return std::numeric_limits<double>::quiet_NaN(); }, "1", "A share of nothing.");
  CHECK(root.dump().empty());
}

TEST_CASE("statistics without name, unit or sentence, and twins, are refused") {
  std::uint64_t n = 0;
  Statistics root;
  root.counter("a", n, "1", "Counts.");
  CHECK_THROWS_AS(root.counter("a", n, "1", "Counts."), InternalError);
  CHECK_THROWS_AS(root.child("a"), InternalError);
  CHECK_THROWS_AS(root.counter("b", n, "", "Counts."), InternalError);
  CHECK_THROWS_AS(root.counter("b", n, "1", ""), InternalError);
  root.child("c");
  CHECK_THROWS_AS(root.counter("c", n, "1", "Counts."), InternalError);
}

TEST_CASE("whether a statistic is written is decided at the dump") {
  std::uint64_t retries = 0;
  std::uint64_t hits = 0;
  std::uint64_t misses = 0;
  SimTime busy;
  Histogram latency;
  Statistics root;
  Statistics& node = root.child("node");
  node.counter("retries", retries, "reads", "Reads repeated.", skip_zero());
  node.time("busy", busy, "Busy time.", skip_zero());
  node.value(
      "share", [&] { return static_cast<double>(retries) / 4; }, "1", "A share.", skip_zero());
  node.histogram("latency", latency, 1, "ps", "Latency.", skip_zero());
  const auto used = [&] { return hits + misses > 0; };
  node.counter("hits", hits, "entries", "Entries found.", written_if(used));
  node.counter("misses", misses, "entries", "Entries not found.", written_if(used));
  CHECK(root.dump().dump() == R"({"node":{}})");
  retries = 2;
  busy = SimTime::picoseconds(1);
  latency.add(3);
  misses = 1;
  const auto json = root.dump()["node"];
  CHECK(json.size() == 6);
  CHECK(json["retries"]["value"] == 2);
  CHECK(json["share"]["value"] == 0.5);
  CHECK(json["hits"]["value"] == 0);  // beside misses, none is a figure
  retries = 0;
  CHECK_FALSE(root.dump()["node"].contains("retries"));
}

TEST_CASE("a node of which nothing is written may be left out, and owners catch up before a dump") {
  std::uint64_t n = 0;
  int updates = 0;
  Statistics root;
  Statistics& firmware = root.child_if_any("firmware");
  firmware.counter("n", n, "1", "Counts.", skip_zero());
  root.child("always");
  CHECK(root.dump().dump() == R"({"always":{}})");
  firmware.before_dump([&] {
    ++updates;
    n = 7;
  });
  CHECK(root.dump()["firmware"]["n"]["value"] == 7);
  CHECK(updates == 1);
}

}  // namespace test_statistics
