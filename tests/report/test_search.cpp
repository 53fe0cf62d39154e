// The best points of a sweep, and comparisons of two.
#include <catch2/catch.hpp>
#include <random>

#include "base/error.h"
#include "report/compare.h"
#include "report/metric_direction.h"
#include "report/search.h"

namespace test_search {

using namespace csdsim;
using namespace csdsim::report;
using Catch::Matchers::Contains;
using nlohmann::ordered_json;
using Points = std::vector<std::size_t>;

namespace {

ordered_json result(double speed, double energy) { return {{"metrics", {{"speed", speed}, {"energy", energy}}}}; }

}  // namespace

TEST_CASE("one objective finds the best of the points that meet the constraints") {
  const std::vector<ordered_json> results{result(1, 1), result(5, 9), result(3, 4), nullptr, result(3, 2)};
  Search search{.objectives = {{"speed", true}}, .constraints = {Formula("energy < 5"), Formula("speed > 1")}};
  const Found found = search_points(search, results);
  CHECK(found.feasible == Points{2, 4});
  CHECK(found.front == Points{2, 4});  // equal in what is asked
  CHECK(found.met == Points{3, 3});
  search.objectives = {{"energy", false}};
  CHECK(search_points(search, results).front == Points{4});
  const std::string text = search_text(search, search_points(search, results), results, {"a", "b", "c", "d", "e"}, 5);
  CHECK_THAT(text, Contains("2 of 5 points meet all constraints: 3 meet energy < 5, 3 meet speed > 1."));
  CHECK_THAT(text, Contains("least energy"));
  CHECK(search_document(search, search_points(search, results), {"a", "b", "c", "d", "e"}, 5)["front"] ==
        ordered_json{"e"});
}

TEST_CASE("several objectives give the points that no other beats, as pairwise comparison finds them") {
  const auto seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937 rng(seed);
  for (int run = 0; run < 50; ++run) {
    std::vector<ordered_json> results;
    for (int i = 0; i < 30; ++i) results.push_back(result(double(rng() % 8), double(rng() % 8)));
    const Search search{.objectives = {{"speed", true}, {"energy", false}}, .constraints = {}};
    Points expected;
    for (std::size_t a = 0; a < results.size(); ++a) {
      const auto at = [&](std::size_t p, const char* name) { return results[p]["metrics"][name].get<double>(); };
      bool beaten = false;
      for (std::size_t b = 0; b < results.size(); ++b)
        beaten = beaten || (at(b, "speed") >= at(a, "speed") && at(b, "energy") <= at(a, "energy") &&
                            (at(b, "speed") > at(a, "speed") || at(b, "energy") < at(a, "energy")));
      if (!beaten) expected.push_back(a);
    }
    CHECK(search_points(search, results).front == expected);
  }
}

TEST_CASE("a metric that no point has is refused, one that some lack leaves these out") {
  std::vector<ordered_json> results{result(1, 1), result(2, 2)};
  CHECK_THROWS_WITH(search_points({.objectives = {{"sped", true}}, .constraints = {}}, results),
                    Contains("no point has the metric 'sped' (did you mean speed?)"));
  results.push_back({{"metrics", {{"energy", 0.0}}}, {"resources", {{"fits", true}}}});
  CHECK(search_points({.objectives = {{"speed", true}}, .constraints = {}}, results).front == Points{1});
  CHECK(search_points({.objectives = {}, .constraints = {Formula("speed < 9")}}, results).feasible == Points{0, 1});
  CHECK(search_points({.objectives = {}, .constraints = {Formula("resources.fits")}}, results).feasible == Points{2});
}

namespace {

ComparedPoint point(int channels, int seed, double speed, double error = 0) {
  return {{{"flash.channels", channels}, {"seed", seed}},
          {{"build", {{"version", "1"}}},
           {"scenario", {{"flash", {{"channels", channels}}}, {"seed", seed}}},
           {"metrics", {{"speed", speed}, {"relative_error_estimate", error}}}}};
}

}  // namespace

TEST_CASE("a difference beyond noise is shown, one within it is not") {
  // Means 10 and 10.4, standard errors 0.577: within noise. 20 against 25: beyond it.
  const std::vector<ComparedPoint> a{point(4, 1, 9), point(4, 2, 10), point(4, 3, 11), point(8, 1, 20)};
  const std::vector<ComparedPoint> b{point(4, 1, 9.4), point(4, 2, 10.4), point(4, 3, 11.4), point(8, 1, 25)};
  const ordered_json found = compare_results(a, b);
  REQUIRE(found["metrics"].size() == 1);
  CHECK(found["metrics"][0]["point"] == "channels=8");
  CHECK(found["metrics"][0]["change"].get<double>() == Approx(0.25));
  CHECK(found["metrics"][0]["noise"] == 0.0);
  CHECK(found["points"] == 2);
  CHECK(found["equal"] == 3);
  CHECK(compare_results(a, a)["metrics"].empty());
  CHECK_THAT(comparison_text(found), Contains("+25 %"));
  CHECK_THAT(comparison_text(compare_results(a, a)), Contains("No metric has changed beyond noise"));
}

TEST_CASE("metrics know which side is better, and a comparison says how many are") {
  for (const char* const name : {"decode_tokens_per_s", "iops", "flow2_iops", "bandwidth_bytes_per_s", "goodput",
                                 "prefix_hit_rate", "slo_attainment", "drive_lifetime_years", "tokens_per_step"})
    CHECK(better_of(name) == Better::more);
  for (const char* const name :
       {"ttft_s", "request_tpot_p99_s", "latency_p99_ns", "read_latency_mean_ns", "energy_per_token_j",
        "write_amplification", "kv_erases", "preemptions", "decode_step_s", "flash_io_s_per_step",
        "stores_dropped_staging", "drive_writes_per_day"})
    CHECK(better_of(name) == Better::less);
  for (const char* const name : {"page_ops_per_wall_s", "wall_s", "relative_error_estimate", "bytes_host_link",
                                 "requests_issued", "tokens_written_per_step", "kv_bytes_peak"})
    CHECK(better_of(name) == Better::neither);
  const auto result = [](int channels, double rate, double wait, double bytes) {
    return ComparedPoint{{{"channels", channels}},
                         {{"metrics", {{"iops", rate}, {"latency_mean_ns", wait}, {"bytes_written", bytes}}}}};
  };
  const std::vector<ComparedPoint> a{result(4, 100, 10, 1), result(8, 100, 10, 1)};
  const std::vector<ComparedPoint> b{result(4, 110, 9, 2), result(8, 150, 12, 1)};
  const ordered_json summary = compare_results(a, b)["summary"];
  CHECK(
      summary["better"].dump() ==
      R"([{"metric":"iops","points":2,"least":0.1,"most":0.5},{"metric":"latency_mean_ns","points":1,"least":-0.1,"most":-0.1}])");
  CHECK(summary["worse"].dump() == R"([{"metric":"latency_mean_ns","points":1,"least":0.2,"most":0.2}])");
  CHECK(summary["changed"].size() == 1);
  CHECK_THAT(comparison_text(compare_results(a, b)),
             Contains("2 points compared: 2 metrics are better, 1 worse, 1 have changed and are neither; 1 figures are "
                      "unchanged.\n  worse: latency_mean_ns in 1 of 2 points, +20 %\n"
                      "  better: iops in 2 of 2 points, +10 % to +50 %\n"));
}

TEST_CASE("the estimated errors of sampled runs are noise") {
  CHECK(compare_results({point(4, 1, 100, 0.01)}, {point(4, 1, 101.9, 0.01)})["metrics"].empty());
  CHECK(compare_results({point(4, 1, 100, 0.01)}, {point(4, 1, 102.1, 0.01)})["metrics"].size() == 1);
}

TEST_CASE("builds, parameters and points that differ are named") {
  ComparedPoint a = point(4, 1, 1), b = point(4, 1, 1);
  b.result["build"]["version"] = "2";
  b.result["scenario"]["flash"]["planes"] = 2;
  const ordered_json found = compare_results({a, point(8, 1, 1)}, {b, point(16, 1, 1)});
  CHECK(found["build"]["version"] == ordered_json{"1", "2"});
  REQUIRE(found["parameters"].size() == 1);
  CHECK(found["parameters"][0]["path"] == "flash.planes");
  CHECK(found["parameters"][0]["b"] == 2);
  CHECK(found["only_in_a"] == ordered_json{"channels=8"});
  CHECK(found["only_in_b"] == ordered_json{"channels=16"});
}

TEST_CASE("metrics that have a value on one side only are named") {
  const auto result = [](int channels, ordered_json metrics) {
    return ComparedPoint{{{"channels", channels}}, {{"metrics", std::move(metrics)}}};
  };
  const std::vector<ComparedPoint> a{result(4, {{"iops", 1}, {"joules", 2}, {"ttft_s", 3}}), result(8, {{"iops", 1}})};
  const std::vector<ComparedPoint> b{result(4, {{"iops", 1}, {"joules", nullptr}, {"lifetime_years", 5}}),
                                     result(8, {{"iops", 1}, {"lifetime_years", 5}})};
  const ordered_json found = compare_results(a, b);
  CHECK(found["metrics_only_in_a"] == ordered_json{"joules", "ttft_s"});
  CHECK(found["metrics_only_in_b"] == ordered_json::array({"lifetime_years"}));
  CHECK_THAT(comparison_text(found), Contains("Metrics with a value in a only: joules, ttft_s.\n") &&
                                         Contains("Metrics with a value in b only: lifetime_years.\n"));
}

TEST_CASE("a seed is named as a cause where it is not one of several samples") {
  const ordered_json single = compare_results({point(4, 1, 1)}, {point(4, 2, 1.1)});
  REQUIRE(single["parameters"].size() == 1);
  CHECK(single["parameters"][0]["path"] == "seed");
  CHECK_THAT(comparison_text(single), Contains("Parameter: seed 1 -> 2 (1 point)\n"));
  CHECK(
      compare_results({point(4, 1, 1), point(4, 2, 1.2)}, {point(4, 3, 1.1), point(4, 4, 1.3)})["parameters"].empty());
}

TEST_CASE("the merit of a point is its objective, or how far it misses the constraints") {
  Search search{.objectives = {{"speed", true}}, .constraints = {Formula("energy < 5"), Formula("speed > 1")}};
  const auto at = [&](double speed, double energy) { return merit(search, result(speed, energy)).value(); };
  CHECK(at(3, 4) == 3);
  CHECK(at(2, 4) > at(9, 6));
  CHECK(at(9, 6) > at(9, 7));
  CHECK(at(9, 7) > at(0.5, 7));
  CHECK(at(9, 5) < at(1.5, 4));
  CHECK_FALSE(merit(search, {{"metrics", {{"energy", 4}}}}).value_or(-1) >= 0);
  search = {.objectives = {{"energy", false}}, .constraints = {Formula("speed > 1 && energy > 2")}};
  CHECK(at(3, 4) == -4);
  CHECK(at(3, 1) == at(0, 4));
  search.constraints = {Formula("(speed > 1)")};
  CHECK(at(0, 4) < at(2, 400));
}

}  // namespace test_search
