// Runs of the workload objects: counts without time against those of the timed drive, and against closed forms.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>

#include "base/error.h"
#include "base/rng.h"
#include "experiment/assemble.h"
#include "experiment/endurance/certificate.h"
#include "experiment/endurance/tier_writers.h"
#include "experiment/experiments.h"
#include "experiment/objects/wear_run.h"
#include "experiment/runner.h"
#include "ftl/block/block_reserve.h"
#include "host_runtime/core/serving/engine/file_system.h"
#include "report/result_document.h"
#include "tests/ftl/write_amplification.h"

namespace test_object_runs {

using namespace csdsim;
using nlohmann::ordered_json;
using Sets = std::vector<std::string>;

namespace {

scenario::Scenario load(const std::string& text, const Sets& sets = {}) {
  return experiment::load_scenario_text(text, "objects", ".", sets).base.scenario;
}

ordered_json run(const std::string& text, const Sets& sets = {}) {
  const scenario::RunResult result = experiment::run_scenario(load(text, sets));
  INFO(result.failure);
  REQUIRE(result.failure.empty());
  return result.document;
}

double late(const ordered_json& document) { return document["metrics"]["write_amplification_late"].get<double>(); }

constexpr std::uint32_t kPages = 64;

/// A drive of one plane whose blocks hold 64 pages of 4 KiB.
std::string plane(std::uint32_t blocks, const std::string& over_provisioning, const std::string& writers,
                  const std::string& more = "") {
  return fmt::format(
      "csdsim: 1\n"
      "platform: {{device: {{flash: {{channels: 1, dies_per_channel: 1, planes_per_die: 1, blocks_per_plane: {},"
      " pages_per_block: {}, page_size: 4 KiB}}, ftl: {{mapping: {{kind: page}}, over_provisioning: {},"
      " placement: {{handles: 2}}}}}}}}\n"
      "workload: {{kind: objects, request_size: 4 KiB, writers: {}{}}}\n"
      "simulation: {{data: wear}}\n",
      blocks, kPages, over_provisioning, writers, more);
}

/// A third of the drives have reclaim units over all planes. In these, the class of a write is its placement
/// identifier.
std::string random_scenario(std::uint64_t seed, const std::string& allocation) {
  Rng rng(seed, "scenario");
  const auto pick = [&](std::initializer_list<const char*> of) { return of.begin()[rng.below(of.size())]; };
  const auto list = [&](std::initializer_list<const char*> of, std::size_t n) {
    std::string text;
    for (std::size_t i = 0; i < n; ++i) text += std::string(i == 0 ? "" : ", ") + pick(of);
    return text;
  };
  const std::size_t writers = 1 + rng.below(4);
  const std::string policy = pick({"greedy", "cost_benefit", "fifo", "random_greedy"});
  std::string text = fmt::format("csdsim: 1\nseed: {}\nplatform:\n  device:\n", seed);
  const std::uint64_t channels = 1 + rng.below(3), planes_per_die = 1 + rng.below(2);
  text += fmt::format("    flash: {{channels: {}, dies_per_channel: 1, ", channels);
  text += fmt::format("planes_per_die: {}, blocks_per_plane: 40, pages_per_block: 16, page_size: 4 KiB}}\n",
                      planes_per_die);
  text += fmt::format("    ftl:\n      mapping: {{kind: page}}\n      allocation: {}\n      over_provisioning: {}\n",
                      allocation, pick({"0.1", "0.2", "0.3"}));
  text += fmt::format("      gc_free_blocks: {}\n", 1 + rng.below(3));
  text += fmt::format("      gc: {{pace: {}, policy: {{kind: {}}}}}\n", pick({"steps", "blocks"}), policy);
  const bool placed = seed % 3 == 0, levels = rng.below(2) == 1;
  text += fmt::format("      wear_levelling: {{spread: {}}}\n", levels ? 3 : 0);
  if (placed) {
    text += fmt::format("      reclaim_unit_blocks: {}\n", channels * planes_per_die * (1 + 2 * rng.below(2)));
    const bool persistently = !levels && rng.below(2) == 1;
    text += fmt::format("      placement: {{handles: {}, isolation: {}}}\n", writers,
                        persistently ? "persistently" : "initially");
  }
  text += fmt::format("    write_buffer: {{capacity: 1 MiB}}\n    nvme: {{block_size: 512 B{}}}\n",
                      placed ? ", fdp: {}" : "");
  text +=
      fmt::format("workload:\n  kind: objects\n{}  writes: 3\n  segment_size: 64 KiB\n  request_size: {}\n  writers:\n",
                  placed ? "  placement: by_class\n" : "", pick({"4 KiB", "12 KiB", "32 KiB", "1 MiB"}));
  text += fmt::format("    object_sizes: [{}]\n", list({"4 KiB", "6 KiB", "12 KiB", "24 KiB"}, writers));
  text += fmt::format("    orders: [{}]\n", list({"uniform", "in_turn", "zipf"}, writers));
  return text + fmt::format("    stores: [{}]\n", list({"slots", "files", "log", "buckets"}, writers));
}

/// Erases of the blocks of the drive of a timed run.
std::map<std::string, double> erases_of(const ordered_json& timed) {
  std::map<std::string, double> erases;
  const std::function<void(const ordered_json&)> find = [&](const ordered_json& node) {
    for (const auto& [name, value] : node.items())
      if (name.starts_with("erases_"))
        erases[name] = value.is_object() ? value["value"].get<double>() : value.get<double>();
      else if (value.is_structured())
        find(value);
  };
  find(timed["stats"]["drives"][0]);
  return erases;
}

}  // namespace

TEST_CASE("100 random workloads without time: the counts are those of the timed drive") {
  std::uint64_t collecting = 0;
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    const std::string text = random_scenario(seed, "static");
    INFO(text);
    const ordered_json timed = run(text), wear = run(text, {"simulation.data=wear"});
    const ordered_json &a = timed["metrics"], &b = wear["metrics"];
    for (const auto& [name, value] : a.items())
      if (name.starts_with("write_amplification")) REQUIRE(value == b[name]);
    std::map<std::string, double> erases = erases_of(timed);
    REQUIRE(b["erases_max"].get<double>() == erases["erases_max"]);
    REQUIRE(b["erases_mean"].get<double>() == Approx(erases["erases_mean"]).epsilon(1e-12));
    collecting += b["erases_max"].get<double>() > 0 ? 1 : 0;
  }
  CHECK(collecting > 90);
}

TEST_CASE("dynamic allocation: without time the planes work equally long, and counts stay close to the timed drive's") {
  // The timed drive takes the plane with the least work in front of it, which is a matter of time. The drives have at
  // most six planes of 40 blocks of 16 pages: larger ones differ less.
  double sum = 0;
  constexpr std::uint64_t kRuns = 40;
  for (std::uint64_t seed = 1; seed <= kRuns; ++seed) {
    const std::string text = random_scenario(seed, "dynamic");
    INFO(text);
    const double timed = run(text)["metrics"]["write_amplification"].get<double>();
    const double wear = run(text, {"simulation.data=wear"})["metrics"]["write_amplification"].get<double>();
    const double off = std::abs(wear / timed - 1);
    INFO("timed " << timed << ", without time " << wear);
    CHECK(off < 0.1);
    sum += off;
  }
  CHECK(sum / kRuns < 0.015);
}

TEST_CASE("greedy collection of uniform overwrites: the closed form with the spare that is there") {
  for (const char* const over_provisioning : {"7 %", "15 %", "28 %"}) {
    const std::string text =
        plane(1024, over_provisioning, "{object_sizes: [4 KiB], parts: [1]}", ", writes: 6, warmup: 4");
    const Sets one{"platform.device.ftl.placement.handles=1"};
    const double spare = ftl::effective_spare(ftl::block_ftl_config(load(text, one).platform.device.ftl), 1023);
    const double expected = ftl::test::greedy_mean_field(1 - spare, kPages);
    const double measured = run(text, one)["metrics"]["write_amplification"].get<double>();
    CAPTURE(over_provisioning, measured, expected);
    CHECK(measured == Approx(expected).epsilon(0.05));
  }
}

TEST_CASE("victims of d blocks drawn at random: the mean field") {
  for (const std::uint32_t choices : {2, 8, 32}) {
    const std::string text = plane(1024, "15 %", "{object_sizes: [4 KiB], parts: [1]}", ", writes: 6, warmup: 4");
    const Sets sets{"platform.device.ftl.placement.handles=1",
                    fmt::format("platform.device.ftl.gc.policy={{kind: random_greedy, choices: {}}}", choices)};
    const double spare = ftl::effective_spare(ftl::block_ftl_config(load(text, sets).platform.device.ftl), 1023);
    const double expected = ftl::test::choices_mean_field(1 - spare, kPages, choices);
    const double measured = run(text, sets)["metrics"]["write_amplification"].get<double>();
    CAPTURE(choices, measured, expected);
    CHECK(measured == Approx(expected).epsilon(0.05));
  }
}

TEST_CASE("hot and cold data: the mean field") {
  // Alike, they are the closed form of uniform data.
  CHECK(ftl::test::hot_cold_mean_field(0.85, kPages, {0.3, 0.3}) ==
        Approx(ftl::test::greedy_mean_field(0.85, kPages)).epsilon(1e-6));
  struct Case {
    const char* over_provisioning;
    double f, r;
    const char* writers;
  };
  for (const auto& [over_provisioning, f, r, writers] :
       {Case{"15 %", 0.2, 0.8, "parts: [20 %, 79.9 %], shares: [80, 20]"},
        Case{"28 %", 0.2, 0.8, "parts: [20 %, 79.9 %], shares: [80, 20]"},
        Case{"28 %", 0.1, 0.9, "parts: [10 %, 89.9 %], shares: [90, 10]"},
        Case{"15 %", 0.5, 0.9, "parts: [50 %, 49.9 %], shares: [90, 10]"}}) {
    const std::string text =
        plane(1024, over_provisioning, fmt::format("{{object_sizes: [4 KiB, 4 KiB], {}}}", writers),
              ", writes: 60, warmup: 40");
    const Sets one{"platform.device.ftl.placement.handles=1"};
    const double spare = ftl::effective_spare(ftl::block_ftl_config(load(text, one).platform.device.ftl), 1023);
    const double rho = 0.999 * (1 - spare);
    const double expected = ftl::test::hot_cold_mean_field(rho, kPages, {f, r});
    const double uniform = ftl::test::greedy_mean_field(rho, kPages);
    const double measured = run(text, one)["metrics"]["write_amplification"].get<double>();
    CAPTURE(over_provisioning, f, r, measured, expected, uniform);
    CHECK(measured == Approx(expected).epsilon(0.05));
    CHECK(measured > 1.02 * uniform);
  }
}

TEST_CASE("parts of 100 % fill the namespace, whatever their shares") {
  // Regions begin at whole pages, so that together they end up to a page behind their own sum.
  for (const char* const parts : {"[0.2, 0.8]", "[1/3, 1/3, 1/3]", "[0.1, 0.2, 0.3, 0.4]"}) {
    const std::size_t count = static_cast<std::size_t>(std::ranges::count(std::string_view(parts), ',')) + 1;
    std::string sizes = "4 KiB";
    for (std::size_t i = 1; i < count; ++i) sizes += ", 4 KiB";
    const std::string text =
        plane(64, "15 %", fmt::format("{{object_sizes: [{}], parts: {}}}", sizes, parts), ", writes: 2, warmup: 1");
    const ordered_json result = run(text, {"platform.device.ftl.placement.handles=1"});
    CAPTURE(parts);
    CHECK(result["breakdown"]["writers"].size() == count);
  }
}

TEST_CASE("separate streams: the sum of the parts' closed forms") {
  // A third of the data is written eight times as often as the rest. Greedy collection takes the emptiest block of both
  // streams, so that victims of both have the same share of valid pages: each part has the closed form with the spare
  // of both.
  const std::string text = plane(2048, "15 %", "{object_sizes: [4 KiB, 4 KiB], parts: [33 %, 66 %], shares: [4, 1]}",
                                 ", writes: 16, warmup: 10, placement: by_class");
  const ordered_json separate = run(text, {"platform.device.ftl.placement.isolation=persistently"});
  // Two blocks are kept free, and the open ones are half empty: two of the host, two of collection.
  const double blocks = 2047, data = 0.85 * 0.99 * blocks, empty = 2 + 4 / 2.0;
  const double expected = ftl::test::greedy_mean_field(data / (blocks - empty), kPages);
  const auto of = [&](int writer) {
    return separate["breakdown"]["writers"][writer]["write_amplification"].get<double>();
  };
  CAPTURE(expected, of(0), of(1));
  CHECK(of(0) == Approx(expected).epsilon(0.05));
  CHECK(of(1) == Approx(expected).epsilon(0.05));
  const double sum = 0.8 * of(0) + 0.2 * of(1);
  CHECK(separate["metrics"]["write_amplification"].get<double>() == Approx(sum).epsilon(1e-6));
}

TEST_CASE("files: trims tell the drive what is free") {
  const std::string text = plane(512, "7 %", "{object_sizes: [16 KiB], parts: [1], stores: [files]}",
                                 ", writes: 6, warmup: 4, free_space: 20 %");
  const double trimmed = late(run(text)), kept = late(run(text, {"workload.trims=false"}));
  CAPTURE(trimmed, kept);
  // Without trims the drive holds the free space of the file system as data.
  CHECK(trimmed < 0.6 * kept);
}

TEST_CASE("nine writers: smaller copies have the write amplification of the whole drive") {
  // Flash, footprints, objects and requests are all divided by the same number; the whole one has 2.450 and 1.807.
  const auto scaled = [](std::uint32_t by, const std::string& placement) {
    const scenario::Loaded whole = experiment::load_scenario(
        CSDSIM_SOURCE_DIR "/scenarios/endurance/nine_writers.yaml",
        {fmt::format("platform.device.flash.pages_per_block={}", 2048 / by),
         fmt::format(
             "workload.writers.object_sizes=[{0} KiB, {0} KiB, {1} KiB, {2} KiB, {2} KiB, {3} KiB, {3} KiB, {3} "
             "KiB, {4} KiB]",
             4096 / by, 32'768 / by, 16'384 / by, 2048 / by, 1024 / by),
         fmt::format("workload.writers.footprints=[{0} MiB, {0} MiB, {1} MiB, {0} MiB, {0} MiB, {0} MiB, {0} MiB, {0} "
                     "MiB, {2} MiB]",
                     92'160 / by, 184'320 / by, 46'080 / by),
         fmt::format("workload.request_size={} KiB", 1024 / by), "workload.placement=" + placement});
    return experiment::run_scenario(whole.base.scenario).document["metrics"]["write_amplification"].get<double>();
  };
  const double none = scaled(16, "none"), by_class = scaled(16, "by_class");
  CAPTURE(none, by_class);
  CHECK(scaled(8, "none") == Approx(none).epsilon(0.03));
  CHECK(scaled(8, "by_class") == Approx(by_class).epsilon(0.03));
  CHECK(none == Approx(2.450).epsilon(0.03));
  CHECK(by_class == Approx(1.807).epsilon(0.03));
  CHECK(by_class < 0.8 * none);
}

TEST_CASE("the error of windows") {
  const auto windows = [](const std::vector<std::uint64_t>& moved) {
    std::vector<experiment::WriteSample> all;
    for (const std::uint64_t pages : moved) {
      ftl::WriteWork work;
      work.written = work.host = 1000;
      work.collection = pages;
      all.push_back({double(all.size()), work});
    }
    return all;
  };
  std::vector<std::uint64_t> same(40, 1000), noisy, drifting, grouped;
  for (std::uint64_t i = 0; i < 40; ++i) {
    noisy.push_back(i % 2 == 0 ? 900 : 1100);
    drifting.push_back(i < 20 ? 900 : 1100);
    grouped.push_back(i / 4 % 2 == 0 ? 900 : 1100);
  }
  CHECK_FALSE(experiment::error_of_windows(windows(std::vector<std::uint64_t>(19, 1000))));
  CHECK(*experiment::error_of_windows(windows(same)) == 0);
  // A standard deviation of 0.1013 in 40 windows, t(39) = 2.023, a mean of 2.
  CHECK(*experiment::error_of_windows(windows(noisy)) == Approx(2.023 * 0.10127 / std::sqrt(40.0) / 2).epsilon(0.002));
  // The halves are 0.2 apart.
  CHECK(*experiment::error_of_windows(windows(drifting)) == Approx(0.1 / 2));
  // Ten groups of four alike: t(9) = 2.262, a deviation of 0.1054.
  CHECK(*experiment::error_of_windows(windows(grouped)) ==
        Approx(2.262 * 0.10541 / std::sqrt(10.0) / 2).epsilon(0.005));
}

TEST_CASE("a sampled run is as close to the whole one as it says") {
  const std::string text =
      plane(128, "15 %", "{object_sizes: [4 KiB], parts: [1]}", ", writes: 200, warmup: 6, samples: 500");
  const ordered_json whole = run(text);
  CHECK_FALSE(whole["metrics"].contains("write_amplification_error"));
  int within = 0;
  constexpr std::uint64_t kRuns = 20;
  for (std::uint64_t seed = 1; seed <= kRuns; ++seed) {
    const ordered_json part = run(text, {fmt::format("seed={}", seed + 100), "workload.sampling_error=0.3 %"});
    CAPTURE(seed, part["stats"]["simulated"], part["metrics"], whole["metrics"]);
    REQUIRE(part["metrics"].contains("write_amplification_error"));
    const double error = part["metrics"]["write_amplification_error"].get<double>();
    REQUIRE(error <= 0.003);
    CHECK(part["metrics"]["bytes_new"].get<double>() < 0.5 * whole["metrics"]["bytes_new"].get<double>());
    const double is = part["metrics"]["write_amplification"], should = whole["metrics"]["write_amplification"];
    within += std::abs(is / should - 1) <= error ? 1 : 0;
  }
  // 95 % of the runs, and so many by chance: 16 or fewer of 20 come once in 60 times.
  CHECK(within >= 17);
}

TEST_CASE("what a drive cannot do is refused where it stands") {
  const std::string text = plane(64, "20 %", "{object_sizes: [4 KiB, 8 KiB]}");
  const auto refused = [&](const Sets& sets, const std::string& key, const std::string& why) {
    INFO(key << ": " << why);
    try {
      load(text, sets);
      FAIL("accepted");
    } catch (const UserError& error) {
      CHECK_THAT(error.what(), Catch::Contains(key) && Catch::Contains(why));
    }
  };
  refused({"workload.placement=by_class", "platform.device.ftl.placement.handles=1"}, "workload.writers.classes",
          "class 1 of writer 2 needs 2 placement handles, the drive has 1");
  refused({"platform.device.ftl.reclaim_unit_blocks=5"}, "platform.device.ftl.reclaim_unit_blocks", "do not divide");
  refused({"workload.writers.footprints=[10 MiB, 10 MiB]"}, "workload.writers.footprints", "the namespace has");
  refused({"workload.writers.parts=[10 %]"}, "workload.writers.parts", "1 items for 2 object_sizes");
  refused({"workload.writers.shares=[1, 0]"}, "workload.writers.shares", "writes nothing");
  refused({"workload.sampling_error=1 %"}, "workload.sampling_error", "16 samples show no error: use at least 20");
  refused({"workload.sampling_error=1 %", "workload.samples=20", "simulation.data=timing"}, "workload.sampling_error",
          "with time is not sampled");
  refused({"workload.writers.parts=[60 %, 60 %]"}, "workload.writers.parts", "of writer 2 end at byte");
  refused({"workload.writers.object_sizes=[4 KiB, 1 GiB]"}, "workload.writers.parts", "of writer 2 holds no object");
  refused({"workload.writers.stores=[log, slots]", "workload.segment_size=4 MiB"}, "workload.writers.parts",
          "of writer 1 holds 1 segments, a store needs at least 4");
  refused({"workload.writers.object_sizes=[4 KiB, 5 KiB]"}, "workload.writers.object_sizes", "not a multiple");
  refused({"workload.writers.footprints=[1 MiB, 1 MiB]", "workload.writers.parts=[10 %, 10 %]"},
          "workload.writers.footprints", "leave one of the two out");
  refused({"workload.warmup=4"}, "workload.warmup", "leave nothing to measure");
  refused({"workload.placement=by_class", "simulation.data=timing"}, "workload.placement", "Flexible Data Placement");
  refused({"workload.placement=by_class", "simulation.data=timing", "platform.device.nvme.fdp={}",
           "platform.device.flash.channels=2"},
          "workload.placement", "first of 2 reclaim groups");
  refused({"simulation.data=timing", "platform.device.ftl.reclaim_unit_blocks=5"},
          "platform.device.ftl.reclaim_unit_blocks", "do not divide");
  refused({"platform.device.ftl.gc={background: {}}"}, "platform.device.ftl.gc.background", "needs time");
  refused({"platform.device.ftl.wear_levelling.spread=4", "platform.device.ftl.placement.isolation=persistently"},
          "platform.device.ftl.placement.isolation", "wear levelling");
  CHECK_THROWS_WITH(load("csdsim: 1\nworkload: {kind: block_io}\nsimulation: {data: wear}\n"),
                    Catch::Contains("simulation.data") && Catch::Contains("objects"));
}

TEST_CASE("a smaller copy with short requests says that it is none") {
  const std::string text = plane(64, "20 %", "{object_sizes: [32 KiB]}");
  const auto notes = [&](const Sets& sets) {
    std::string all;
    for (const std::string& note : experiment::load_scenario_text(text, "objects", ".", sets).base.notes)
      all += note + "\n";
    return all;
  };
  CHECK_THAT(notes({"platform.device.ftl.scaled_from_blocks=1024"}), Catch::Contains("workload.request_size"));
  CHECK_THAT(notes({"platform.device.ftl.scaled_from_blocks=1024", "workload.request_size=16 KiB"}),
             !Catch::Contains("workload.request_size"));
  CHECK_THAT(notes({}), !Catch::Contains("workload.request_size"));
}

TEST_CASE("a serving run's drives get a certificate") {
  const std::string text =
      "csdsim: 1\nmodel: {preset: opt-1.3b}\n"
      "platform:\n  gpu: {preset: l40s}\n  host: {memory: 64 GiB}\n"
      "  device:\n    flash: {channels: 4, dies_per_channel: 2, planes_per_die: 1, blocks_per_plane: 64,"
      " pages_per_block: 64, page_size: 16 KiB}\n"
      "    dram: {capacity: 1 GiB}\n    write_buffer: {capacity: 16 MiB}\n    ftl: {mapping: {kind: page}}\n"
      "workload:\n  kind: serving\n"
      "  generate: {kind: chats, requests: 40, turns: 2, input_tokens: 200, output_tokens: 50, prefixes: 4,"
      " prefix_tokens: 256, block_tokens: 16, gap: 200 ms, delay: 5 s, most_tokens: 2000}\n"
      "  tiers: {host: \"off\", drives: {capacity: 384 MiB}, store: prompt_only, block_tokens: 16}\n";
  const scenario::Scenario served = load(text);
  const ordered_json document = experiment::run_scenario(served).document;
  // Pieces of the run's writes add up to all of them.
  const ordered_json& pieces = document["breakdown"]["write_samples"];
  REQUIRE(pieces.size() > 8);
  CHECK(document["series"]["curves"]["write amplification"]["all"].size() == document["series"]["time_s"].size());
  CHECK(pieces.back()["time_s"].get<double>() > pieces.front()["time_s"].get<double>());

  const experiment::Certificate made = experiment::certificate(served, {.seeds = 1, .finished = document});
  const ordered_json& c = made.json;
  const double per_day =
      document["metrics"]["drive_writes_per_day"].get<double>() * double(experiment::exported_capacity(served).value);
  CHECK(c["bytes_per_day"]["new"].get<double>() == Approx(per_day));
  const double late = c["write_amplification"]["late"].get<double>();
  CHECK(late > 1);
  const double flash = 8.0 * 64 * 64 * 16384;
  CHECK(c["flash_bytes"].get<double>() == Approx(flash).epsilon(0.05));
  CHECK(c["drive_lifetime_years"]["mean"].get<double>() ==
        Approx(c["flash_bytes"].get<double>() * 3000 / late / per_day / 365));
  CHECK(c["served"]["write_amplification"] == document["metrics"]["write_amplification"]);
  std::map<std::string, ordered_json> changes;
  for (const ordered_json& row : c["changes"]) changes[row["change"].get<std::string>()] = row;
  REQUIRE(changes.size() == 4);
  const ordered_json& second = changes.at("stored on the second sighting");
  CHECK(second["new_bytes_per_day"].get<double>() < 0.8 * per_day);
  CHECK(second["write_amplification_late"].get<double>() == late);
  CHECK(second["times"].get<double>() == Approx(per_day / second["new_bytes_per_day"].get<double>()));
  CHECK(changes.at("a quarter less data")["write_amplification_late"].get<double>() < late);
  CHECK(changes.at("10 % more flash, the same capacity")["write_amplification_late"].get<double>() < late);
  CHECK(changes.at("blocks fall out in the order in which they were written")["write_amplification_late"] == 1);
  // Given writes per day replace those of the run, and changes keep their proportion.
  const ordered_json given =
      experiment::certificate(served, {.writes_per_day = Bytes{1'000'000'000}, .seeds = 1, .finished = document}).json;
  for (const ordered_json& row : given["changes"]) {
    INFO(row);
    CHECK(row["times"].get<double>() == Approx(changes.at(row["change"].get<std::string>())["times"].get<double>()));
  }

  const report::Page page = experiment::certificate_page(made);
  REQUIRE(page.points.size() == 5);
  for (const report::PagePoint& point : page.points) {
    report::check_result(point.result, "certificate");
    CHECK(point.result["series"]["at"]["values"].size() == 16);
  }
  CHECK(report::headline(page.points.front().result["metrics"]) == "drive_lifetime_years");
  CHECK_THAT(report::html_page(page, [](const std::string&) { return std::nullopt; }),
             Catch::Contains("capacities written") && Catch::Contains("stored on the second sighting"));
  CHECK_THROWS_WITH(experiment::certificate(load(text, {"workload.tiers.drives.model=rates"}), {}),
                    Catch::Contains("model: simulated"));
}

TEST_CASE("a tier that keeps files wears the places of its file system") {
  const std::string text =
      "csdsim: 1\nmodel: {preset: opt-1.3b}\n"
      "platform:\n  gpu: {preset: l40s}\n  host: {memory: 64 GiB, file: {access: direct}}\n"
      "  device:\n    flash: {channels: 8, dies_per_channel: 1, planes_per_die: 1, blocks_per_plane: 64,"
      " pages_per_block: 64, page_size: 16 KiB}\n"
      "    dram: {capacity: 1 GiB}\n    write_buffer: {capacity: 16 MiB}\n    ftl: {mapping: {kind: page}}\n"
      "workload:\n  kind: serving\n"
      "  generate: {kind: chats, requests: 10, turns: 2, input_tokens: 200, output_tokens: 50, prefixes: 4,"
      " prefix_tokens: 256, block_tokens: 16, gap: 200 ms, delay: 5 s, most_tokens: 2000}\n"
      "  tiers: {host: \"off\", store: prompt_only, block_tokens: 16,"
      " drives: {capacity: 400 MiB, files: {journal: 4 MiB, directories: 64}}}\n";
  const scenario::Scenario served = load(text);
  experiment::WornDrive worn = experiment::worn_by_tier(served, *experiment::serving_of(served));
  const experiment::ObjectWorkload& objects = experiment::objects_of(worn.scenario);
  CHECK(objects.writers.stores == std::vector{experiment::ObjectStore::files});
  CHECK_FALSE(objects.trims);
  const Bytes file = objects.writers.object_sizes.front() * worn.scale;
  host::KvFilesConfig files;
  files.journal = Bytes::mib(4);
  files.directories = 64;
  const host::FileSystemLayout layout(files, Bytes::mib(400), file);
  CHECK(objects.writers.footprints.front().value * worn.scale == layout.places * file.value);
  CHECK(objects.free_space.value() == Approx(1 - double(layout.files) / double(layout.places)));
  CHECK(objects.free_space.value() > 0.04);

  // The drive moves what has been deleted, until it is told.
  const ordered_json c = experiment::certificate(served, {.writes_per_day = Bytes{1'000'000'000}, .seeds = 1}).json;
  const double late = c["write_amplification"]["late"].get<double>();
  const auto trimmed = std::ranges::find_if(
      c["changes"], [](const ordered_json& row) { return row["change"] == "deleted files are trimmed"; });
  REQUIRE(trimmed != c["changes"].end());
  CHECK((*trimmed)["write_amplification_late"].get<double>() < 0.98 * late);
}

TEST_CASE("a drive of a tier that is scaled down lives as long as the whole one") {
  const std::string text =
      "csdsim: 1\nmodel: {preset: opt-1.3b}\n"
      "platform:\n  gpu: {preset: l40s}\n  host: {memory: 64 GiB}\n"
      "  device:\n    flash: {channels: 16, dies_per_channel: 4, planes_per_die: 1, blocks_per_plane: 256,"
      " pages_per_block: 128, page_size: 4 KiB}\n"
      "    dram: {capacity: 1 GiB}\n    write_buffer: {capacity: 16 MiB}\n    ftl: {mapping: {kind: page}}\n"
      "workload:\n  kind: serving\n"
      "  generate: {kind: chats, requests: 4, input_tokens: 100, output_tokens: 10, prefix_tokens: 64, most_tokens: "
      "1000}\n"
      "  tiers: {host: \"off\", drives: {}, block_tokens: 64}\n";
  const scenario::Scenario served = load(text);
  const experiment::WornDrive small = experiment::worn_by_tier(served, *experiment::serving_of(served));
  CHECK(small.scale == 2);
  const auto late_of = [](const scenario::Scenario& s) { return late(experiment::run_scenario(s).document); };
  // The same at twice the scale.
  experiment::WornDrive smaller = small;
  experiment::ObjectWorkload& work = experiment::objects_of(smaller.scenario);
  smaller.scenario.platform.device.flash.geometry.channels /= 2;
  work.writers.object_sizes.front().value /= 2;
  work.writers.footprints.front().value /= 2;
  CHECK(late_of(smaller.scenario) == Approx(late_of(small.scenario)).epsilon(0.03));
}

TEST_CASE("a certificate adds up") {
  const std::string text = plane(64, "20 %", "{object_sizes: [4 KiB, 8 KiB], orders: [uniform, in_turn]}");
  const ordered_json c =
      experiment::certificate(load(text), {.writes_per_day = Bytes{1'000'000'000}, .rating = 1, .seeds = 2}).json;
  CHECK_THAT(experiment::certificate_text(c),
             Catch::Contains("flash.rated_cycles: 3000 program/erase cycles (assumed: common for 3D TLC"));
  const double amplification = c["write_amplification"]["late"].get<double>();
  CHECK(c["bytes_per_day"]["flash"].get<double>() == Approx(1e9 * amplification));
  CHECK(c["drive_writes_per_day"]["asked"].get<double>() == Approx(1e9 / c["capacity_bytes"].get<double>()));
  const double years = 63 * 64 * 4096 * c["rated_cycles"].get<double>() / (1e9 * amplification) / 365;
  const ordered_json& life = c["drive_lifetime_years"];
  CHECK(life["min"].get<double>() <= years);
  CHECK(life["max"].get<double>() >= years * (1 - 1e-9));
  CHECK(life["worst_block"].get<double>() < life["mean"].get<double>());
  REQUIRE(c["changes"].size() == 3);
  for (const ordered_json& row : c["changes"])
    CHECK(row["times"].get<double>() == Approx(row["drive_lifetime_years"].get<double>() / years));
  // Less data on the same flash is moved less often.
  const auto less = std::ranges::find_if(
      c["changes"], [](const ordered_json& row) { return row["change"] == "a quarter less data"; });
  REQUIRE(less != c["changes"].end());
  CHECK((*less)["write_amplification_late"].get<double>() < amplification);
  CHECK_THROWS_AS(experiment::certificate(load("csdsim: 1\nworkload: {kind: block_io}\n"), {}), UserError);
  CHECK(load(experiment::plain_certificate_scenario(Bytes::mib(4))).name == "certificate");
}

TEST_CASE("life counts bytes, not mapping units, where writes are parts of units") {
  // Objects of 1 KiB on pages of 4 KiB: each write programs a whole page, so that four bytes are programmed per new
  // byte.
  const scenario::Scenario s = load(plane(64, "20 %", "{object_sizes: [1 KiB]}", ", writes: 12"),
                                    {"workload.request_size=1 KiB", "platform.device.nvme.block_size=512 B"});
  const ordered_json c = experiment::certificate(s, {.writes_per_day = Bytes{1'000'000'000}, .seeds = 1}).json;
  const double units = c["write_amplification"]["late"].get<double>();
  CHECK(c["write_amplification"]["programmed_per_byte"].get<double>() == Approx(4 * units).epsilon(1e-3));
  CHECK(c["bytes_per_day"]["flash"].get<double>() == Approx(4e9 * units).epsilon(1e-3));
  CHECK(c["drive_lifetime_years"]["mean"].get<double>() ==
        Approx(63 * 64 * 4096 * 3000.0 / (4e9 * units) / 365).epsilon(1e-3));
  // The sentence says what the metrics do.
  const scenario::RunResult result = experiment::run_scenario(s);
  const ordered_json& metrics = result.document["metrics"];
  CHECK_THAT(result.meaning, Catch::StartsWith(fmt::format(
                                 "{:.2f} bytes were programmed per byte",
                                 metrics["bytes_programmed"].get<double>() / metrics["bytes_written"].get<double>())));
}

TEST_CASE("life takes what a store copies from the same writes as write amplification") {
  // While the log fills its region it copies nothing. Life is that of the time after it, however much of the run the
  // filling is.
  const std::string text =
      plane(128, "20 %", "{object_sizes: [16 KiB], parts: [100 %], orders: [uniform], stores: [log]}",
            ", segment_size: 256 KiB, free_space: 20 %");
  const auto certified = [&](const char* writes, const char* warmup) {
    const scenario::Scenario s =
        load(text, {std::string("workload.writes=") + writes, std::string("workload.warmup=") + warmup});
    return experiment::certificate(s, {.writes_per_day = Bytes{1'000'000'000}, .seeds = 1}).json;
  };
  const ordered_json from_new = certified("12", "0"), steady = certified("12", "9");
  CHECK(steady["write_amplification"]["store"].get<double>() > 1.5);
  // The last quarter of the one is all that the other measures, whose last quarter is a quarter of that.
  CHECK(from_new["write_amplification"]["store"].get<double>() ==
        Approx(steady["write_amplification"]["store"].get<double>()).epsilon(0.05));
  CHECK(from_new["drive_lifetime_years"]["mean"].get<double>() ==
        Approx(steady["drive_lifetime_years"]["mean"].get<double>()).epsilon(0.05));
  const ordered_json document = run(text, {"workload.writes=12", "workload.warmup=9", "workload.samples=1"});
  CHECK(from_new["write_amplification"]["store"].get<double>() ==
        Approx(document["metrics"]["store_amplification"].get<double>()).epsilon(1e-3));
}

}  // namespace test_object_runs
