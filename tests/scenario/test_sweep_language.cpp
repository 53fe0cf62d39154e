// Ranges, zipped lists, conditions and searches of a sweep, as its section is read.
#include <catch2/catch.hpp>

#include "base/error.h"
#include "scenario/axis_range.h"
#include "scenario/condition.h"
#include "tests/scenario/scenario_support.h"

namespace test_sweep_language {

using namespace csdsim;
using namespace csdsim::scenario;
using namespace csdsim::test;
using Catch::Matchers::Contains;
using Texts = std::vector<std::string>;

namespace {

const std::string kBase =
    "csdsim: 1\nmodel: {preset: opt-13b}\nplatform: {device: {preset: instcsd-zynq7045}}\n"
    "system: {kind: instinfer-sparf, ratio: 1/4}\nworkload: {kind: generation, output_tokens: 8}\n";

Loaded load(const std::string& sweep, const std::vector<std::string>& sets = {}) {
  return load_scenario_text(kBase + sweep, "s.yaml", ".", sets);
}

Texts names(const Loaded& loaded) {
  Texts all;
  for (const SweepPoint& point : loaded.points) all.push_back(point.name);
  return all;
}

Texts range(const std::string& text, std::size_t most = 100) { return expand_range(text, most).value(); }

}  // namespace

TEST_CASE("ranges of counts, quantities and shares hold both ends") {
  CHECK(range("2..8 step 2") == Texts{"2", "4", "6", "8"});
  CHECK(range("1..16 times 2") == Texts{"1", "2", "4", "8", "16"});
  CHECK(range("1..100 log 3") == Texts{"1", "10", "100"});
  CHECK(range("0.7 GB/s..1.4 GB/s step 350 MB/s") == Texts{"700 MB/s", "1.05 GB/s", "1.4 GB/s"});
  CHECK(range("0.5..2 GB/s times 2") == Texts{"500 MB/s", "1 GB/s", "2 GB/s"});
  CHECK(range("4 KiB..1 MiB times 16") == Texts{"4 KiB", "64 KiB", "1 MiB"});
  CHECK(range("10..40 us step 10") == Texts{"10 us", "20 us", "30 us", "40 us"});
  CHECK(range("0.1..0.3 step 0.1").size() == 3);
  CHECK(range("1..2 step 0.5").size() == 3);
  CHECK(range("1/16..1/4 times 2").size() == 3);
  CHECK(range("1..4 log 9") == Texts{"1", "2", "3", "4"});  // equal after rounding
  CHECK(!expand_range("instinfer-sparf", 9));
  CHECK(!expand_range("../models/opt-6m", 9));
}

TEST_CASE("a range with logarithmic steps has equal ratios") {
  const Texts values = range("100 MB/s..1.6 GB/s log 5");
  REQUIRE(values.size() == 5);
  CHECK(values == Texts{"100 MB/s", "200 MB/s", "400 MB/s", "800 MB/s", "1.6 GB/s"});
  const Texts odd = range("1..2 us log 4");
  CHECK(odd == Texts{"1 us", "1.26 us", "1.59 us", "2 us"});
}

TEST_CASE("what makes no range is refused") {
  CHECK_THROWS_WITH(range("2..9 step 2"), Contains("no whole number of steps leads from 2 to 9"));
  CHECK_THROWS_WITH(range("1..9 times 2"), Contains("no whole number of multiplications"));
  CHECK_THROWS_WITH(range("2..8 step 0"), Contains("the step is 0"));
  CHECK_THROWS_WITH(range("8..2 step 2"), Contains("from the smaller to the larger"));
  CHECK_THROWS_WITH(range("0..8 times 2"), Contains("0 has no multiples"));
  CHECK_THROWS_WITH(range("0..8 log 2"), Contains("0 has no logarithm"));
  CHECK_THROWS_WITH(range("1..8 times 1"), Contains("above 1"));
  CHECK_THROWS_WITH(range("1..8 log 1"), Contains("2 or more"));
  CHECK_THROWS_WITH(range("a..b step c"), Contains("'b' is no number"));
  CHECK_THROWS_WITH(range("1 us..2 GB/s step 1"), Contains("not of one unit"));
  CHECK_THROWS_WITH(range("1..1000000000 step 1"), Contains("more than 100 values"));
  CHECK_THROWS_WITH(range("1..1000000000 log 1000000000"), Contains("more than 100 values"));
}

TEST_CASE("a condition compares numbers, quantities and names") {
  const std::vector<Condition::Axis> axes{{{"channels", "flash.channels"}, {"4", "8"}},
                                          {{"bandwidth"}, {"0.7 GB/s", "1.4 GB/s"}},
                                          {{"kind"}, {"host-kv", "instinfer-dense"}},
                                          {{"ratio"}, {"1/8", "0.5"}}};
  const auto holds = [&](const std::string& text, std::vector<std::size_t> at) {
    return Condition(text, axes).holds(at);
  };
  CHECK(holds("channels * 2 <= 8", {0, 0, 0, 0}));
  CHECK_FALSE(holds("channels * 2 <= 8", {1, 0, 0, 0}));
  CHECK(holds("flash.channels == 8", {1, 0, 0, 0}));
  CHECK(holds("channels * bandwidth <= 5.6 GB/s", {0, 1, 0, 0}));
  CHECK_FALSE(holds("channels * bandwidth < 5.6GB/s", {0, 1, 0, 0}));
  CHECK(holds("kind == host-kv", {0, 0, 0, 0}));
  CHECK_FALSE(holds("kind == host-kv", {0, 0, 1, 0}));
  CHECK(holds("kind != \"host-kv\" or channels > 4", {1, 0, 0, 0}));
  CHECK_FALSE(holds("kind != host-kv and channels > 4", {1, 0, 0, 0}));
  CHECK(holds("ratio < 1/4", {0, 0, 0, 0}));
  CHECK_FALSE(holds("ratio < 25 %", {0, 0, 0, 1}));
  CHECK_THROWS_WITH(Condition("chanels > 4", axes), Contains("'chanels' is no axis") && Contains("mean channels"));
  CHECK_THROWS_WITH(Condition("kind == host-vk", axes), Contains("kind never is 'host-vk' (did you mean host-kv?)"));
  CHECK_THROWS_WITH(Condition("kind > 4", axes), Contains("is no number"));
  CHECK_THROWS_WITH(Condition("bandwidth > 1.4 GB/x", axes), Contains("'1.4 GB/x' is no quantity"));
  CHECK_THROWS_WITH(Condition("channels >", axes), Contains("is not a formula"));
}

TEST_CASE("ranges are values of an axis, alone or in a list") {
  CHECK(names(load("sweep: {axes: {workload.batch: 2..6 step 2}}\n")) == Texts{"batch=2", "batch=4", "batch=6"});
  CHECK(names(load("sweep: {axes: {workload.batch: [1, 2..4 step 1, 16]}}\n")) ==
        Texts{"batch=1", "batch=2", "batch=3", "batch=4", "batch=16"});
  CHECK(names(load("", {"sweep.axes.workload.batch=1..4 times 2"})) == Texts{"batch=1", "batch=2", "batch=4"});
}

TEST_CASE("zipped axes advance together, faster than the others") {
  const Loaded l = load(
      "sweep: {zip: {workload.input_tokens: [64, 32], workload.output_tokens: [8, 16]}, "
      "axes: {workload.batch: [1, 2]}}\n");
  CHECK(names(l) == Texts{"batch=1,input_tokens=64,output_tokens=8", "batch=1,input_tokens=32,output_tokens=16",
                          "batch=2,input_tokens=64,output_tokens=8", "batch=2,input_tokens=32,output_tokens=16"});
  const auto& workload = workload_as<GenerationWorkload>(l.points[3].scenario);
  CHECK(workload.input_tokens == 32);
  CHECK(workload.output_tokens == 16);
  CHECK(workload.batch == 2);
}

TEST_CASE("points that do not meet a condition are left out") {
  const std::string axes = "axes: {workload.batch: 1..4 step 1, platform.device.count: [1, 2]}";
  CHECK(names(load("sweep: {" + axes + ", where: batch * count <= 3}\n")) ==
        Texts{"batch=1,count=1", "batch=1,count=2", "batch=2,count=1", "batch=3,count=1"});
  CHECK(names(load("sweep: {" + axes + ", where: [batch > 1, count == 2, batch < 4]}\n")) ==
        Texts{"batch=2,count=2", "batch=3,count=2"});
  CHECK_THROWS_WITH(load("sweep: {" + axes + ", where: batch > 4}\n"), Contains("no point meets the conditions"));
  // 160,000 points before the condition, 40 after it.
  const std::string large = "axes: {workload.batch: 1..400 step 1, seed: 1..400 step 1}";
  CHECK(load("sweep: {" + large + ", where: batch * seed <= 14}\n").points.size() == 41);
  CHECK_THROWS_WITH(load("sweep: {" + large + "}\n"), Contains("more than 10000 points"));
}

TEST_CASE("mistakes of a sweep are found before its first point") {
  const auto refused = [](const std::string& sweep, const std::string& says) {
    CHECK_THROWS_WITH(load("sweep: {" + sweep + "}\n"), Contains(says));
  };
  refused("axes: {workload.batch: []}", "workload.batch needs a list of values, or a range");
  refused("axes: {workload.batch: 1..8}", "workload.batch needs a list of values, or a range");
  refused("axes: {workload.bach: [1]}", "unknown path 'workload.bach' (did you mean workload.batch?)");
  refused("zip: {workload.batch: [1, 2], seed: [1]}", "seed has 1 values, workload.batch has 2");
  refused("axes: {workload.batch: [1]}, zip: {workload.batch: [2]}", "workload.batch is in axes, too");
  refused("axes: {workload.batch: 1..1000000000 step 1}", "more than 10000 values");
  refused("axes: {workload.batch: 1..2000 step 1, seed: 1..2000 step 1, platform.device.count: 1..20 step 1}",
          "more than 10000 points");
  refused("axes: {workload.batch: 1..2000 step 1, seed: 1..2000 step 1}, where: batch == seed",
          "more than 1000000 points before the conditions");
  refused("axes: {workload.batch: [1]}, maximize: decode_token_per_s",
          "has no metric 'decode_token_per_s' (did you mean decode_tokens_per_s?)");
  refused("axes: {workload.batch: [1]}, maximize: iops", "a run of workload generation has no metric 'iops'");
  refused("axes: {workload.batch: [1]}, subject_to: energy_j <", "is not a formula");
  refused("axes: {workload.batch: [1]}, subject_to: [energy_per_tokn_j < 3]", "has no metric 'energy_per_tokn_j'");
  refused("axes: {workload.batch: [1]}, subject_to: 1 < 3", "names no metric");
  refused("axes: {workload.batch: [1]}, maximise: ttft_s", "unknown key 'maximise' in sweep (did you mean maximize?)");
}

TEST_CASE("a search is read with the sweep") {
  const Loaded l = load(
      "sweep: {axes: {workload.batch: [1]}, maximize: [tokens_per_s], minimize: energy_per_token_j, "
      "subject_to: [ttft_s < 3, resources.fits == 1]}\n");
  REQUIRE(l.search.objectives.size() == 2);
  CHECK(l.search.objectives[0].maximize);
  CHECK_FALSE(l.search.objectives[1].maximize);
  CHECK(l.search.names() == Texts{"energy_per_token_j", "resources.fits", "tokens_per_s", "ttft_s"});
}

}  // namespace test_sweep_language
