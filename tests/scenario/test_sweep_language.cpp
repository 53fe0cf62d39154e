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

TEST_CASE("both sides of a comparison have the same unit") {
  const std::vector<Condition::Axis> axes{
      {{"channels"}, {"4", "8"}},      {{"latency"}, {"20 us", "40 us"}}, {{"bandwidth"}, {"1 GB/s", "2 GB/s"}},
      {{"page"}, {"4 KiB", "16 KiB"}}, {{"set"}, {"0.5", "1 GiB"}},       {{"clock"}, {"100 MHz", "200 MHz"}},
      {{"power"}, {"1 W", "2 W"}}};
  const auto holds = [&](const std::string& text) {
    CAPTURE(text);
    const Condition condition(text, axes);
    return std::pair(condition.holds({0, 0, 0, 0, 0, 0, 0}), condition.holds({1, 1, 1, 1, 1, 1, 1}));
  };
  const auto refused = [&](const std::string& text, const std::string& says) {
    CAPTURE(text);
    CHECK_THROWS_WITH(Condition(text, axes), Contains(says));
  };
  const std::pair first{true, false}, second{false, true}, both{true, true};
  CHECK(holds("latency < 30 us") == first);
  CHECK(holds("latency < 0.03ms") == first);
  CHECK(holds("latency / us < 30") == first);
  CHECK(holds("latency * channels < 100 us") == first);  // 80 us, 320 us
  CHECK(holds("page / bandwidth > 5 us") == second);     // 4.1 us, 8.2 us
  CHECK(holds("bandwidth * latency >= page") == both);   // 20 kB, 80 kB
  CHECK(holds("latency * clock < 3000") == first);       // 2,000 and 8,000 cycles
  CHECK(holds("power * latency < 50 uJ") == first);      // 20 uJ, 80 uJ
  CHECK(holds("max(latency, 30 us) + 5 us < 36 us") == first);
  CHECK(holds("page/KiB == channels") == first);
  CHECK(holds("8 KiB/channels < 1500 B") == second);  // 2,048 B, 1,024 B
  CHECK(holds("set == \"1 GiB\"") == second);
  refused("latency < 30", "latency is a time, and 30 is a bare number; write a time, such as 50 us, in place of 30");
  refused("30 < latency", "write a time, such as 50 us, in place of 30");
  refused("latency < 30 KiB", "latency is a time, and 30 KiB is a size; write a time, such as 50 us");
  refused("latency*channels < 60", "latency*channels is a time, and 60 is a bare number");
  refused("channels > page", "channels is a bare number, and page is a size");
  refused("latency + 5 < 30 us", "latency is a time, and 5 is a bare number");
  refused("min(latency, 5) < 30 us", "latency is a time, and 5 is a bare number");
  refused("page * latency > 1", "page * latency is a number of bytes * seconds, and 1 is a bare number");
  refused("latency ^ 2 > 1", "^ takes bare numbers, and latency is a time");
  refused("sqrt(latency) > 1", "sqrt takes bare numbers");
  refused("set > 1 MiB", "the value 1 GiB of set is a size, and 0.5 is a bare number");
}

TEST_CASE("a condition compares, and its numbers are finite") {
  const std::vector<Condition::Axis> axes{{{"channels"}, {"1", "2"}}, {{"kind"}, {"a", "b"}}};
  const auto refused = [&](const std::string& text, const std::string& says) {
    CAPTURE(text);
    CHECK_THROWS_WITH(Condition(text, axes), Contains(says));
  };
  refused("channels", "channels compares nothing; write a comparison, such as channels == 1");
  refused("1", "1 compares nothing");
  refused("channels and kind == a", "channels compares nothing");
  refused("kind == a or channels - 1", "channels - 1 compares nothing");
  refused("1 < 2", "names no axis of this sweep; exists: channels, kind");
  refused("1 < channels < 3", "compare two values at a time");
  refused("(channels > 1) + 1 > 1", "(channels > 1) is a comparison, and a number is expected");
  refused("channels = 1", "write == to compare");
  refused("channels / 0 > 1", "the divisor 0 is zero");
  refused("mni(channels) > 1", "there is no function mni (did you mean min?)");
  refused("abs(channels, 1) > 1", "abs takes one value");
  refused("(channels > 1", "a bracket has no end");
  refused("kind == \"a", "a quote has no end");
  refused("channels > 1 kind == a", "'1 kind' is no quantity");
  refused(std::string(200, '(') + "channels", "more than 100 brackets inside each other");
  refused(std::string(200, '-') + "channels > 0", "more than 100 brackets inside each other");
  refused("channels > " + std::string(4000, '1'), "at most 4000 characters");
  CHECK_THROWS_WITH(Condition("1 / (channels - 1) > 0", axes).holds({0, 0}),
                    Contains("the divisor (channels - 1) is zero"));
  CHECK(Condition("1 / (channels - 1) > 0", axes).holds({1, 0}));
  CHECK_FALSE(Condition("channels > 1 and 1 / (channels - 1) > 0", axes).holds({0, 0}));
  CHECK(Condition("channels == 1 or 1 / (channels - 1) > 0", axes).holds({0, 0}));
  CHECK_THROWS_WITH(Condition("ln(1 - channels) < 1", axes).holds({0, 0}),
                    Contains("ln(1 - channels) is no finite number"));
  // The strongest binds first, and equal ones from the left, but for powers.
  for (const char* const text :
       {"10 - 2 - 3 == 5 * channels", "2 ^ 3 ^ 2 == 512 * channels", "-2 ^ 2 == -4 * channels",
        "12 / 3 / 2 == 2 * channels", "2 + 3 * 4 == 14 * channels", "channels == 1 or channels == 2 and kind == b",
        "(2 + 3) * 4 == 20 * channels", "sum(1, 2, 3) == 6 && avg(1, 2) * 2 == 3 * channels", "1e-1 * 10 == channels",
        "log2(8) + log10(100) + ln(exp(1)) + sqrt(4) + abs(-1) + rint(0.6) == 10 * channels"}) {
    CAPTURE(text);
    CHECK(Condition(text, axes).holds({0, 0}));
    CHECK_FALSE(Condition(text, axes).holds({1, 0}));
  }
}

TEST_CASE("an error of a condition has the place of its line") {
  const auto refused = [](const std::string& where, const std::string& says) {
    CHECK_THROWS_WITH(
        load("sweep:\n  axes: {workload.batch: [1, 2], platform.device.flash.read_latency: [20 us, 40 us]}\n"
             "  where:\n    - batch >= 1\n    - " +
             where + "\n"),
        Contains("s.yaml:10:") && Contains("sweep.where: '" + where + "'") && Contains(says));
  };
  refused("read_latency < 30", "write a time, such as 50 us, in place of 30");
  refused("1 / (batch - 1) > 0", "the divisor (batch - 1) is zero, at batch=1,read_latency=20us");
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
