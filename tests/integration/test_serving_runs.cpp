// Whole serving runs: drives as a table of rates against simulated ones, what the drives count, bad scenarios.
#include <fmt/format.h>
#include <algorithm>
#include <catch2/catch.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "csd_model/exported_capacity.h"
#include "experiment/experiments.h"
#include "experiment/runner.h"
#include "tests/support/temporary_directory.h"

namespace test_serving_runs {

using namespace csdsim;
using Catch::Matchers::Contains;
using nlohmann::ordered_json;

namespace {

constexpr std::string_view kScenario = R"(
csdsim: 1
name: serving
model: {preset: llama-3.2-1b}
platform:
  gpu: {preset: rtx5090, memory: 3.5 GiB}
  host: {memory: 64 GiB}
  device: {preset: samsung-980-pro-2tb}
workload:
  kind: serving
  generate: {requests: 150, input_tokens: 400, output_tokens: 40, block_tokens: 64, prefixes: 2, prefix_tokens: 512, gap: 30 ms, delay: 200 ms}
  engine: {runtime_memory: 512 MiB, most_running: 16}
  tiers: {host: {capacity: 64 MiB}, drives: {capacity: 8 GiB}}
)";

/// Tiers so small that blocks are stored, evicted and loaded again all the time.
constexpr std::string_view kCarried = R"(
csdsim: 1
name: carried
model: {path: models/llama-gqa-6m}
platform:
  gpu: {preset: rtx5090, memory: 15 MiB}
  host: {memory: 256 MiB}
  device:
    preset: samsung-980-pro-2tb
    flash: {blocks_per_plane: 8}
    ftl: {mapping_unit: page}
workload:
  kind: serving
  generate: {requests: 20, input_tokens: 60, output_tokens: 10, block_tokens: 32, prefixes: 2, prefix_tokens: 96, most_tokens: 300, gap: 100 us, delay: 1 ms}
  engine: {gpu_memory_share: 100 %, runtime_memory: 0 B, most_running: 16, prefix_caching: false}
  tiers: {host: {capacity: 700 KiB}, drives: {capacity: 4 MiB, staging: 512 KiB}}
simulation: {data: carried}
)";

ordered_json run(const std::vector<std::string>& sets = {}, std::string_view scenario = kScenario) {
  const auto loaded = experiment::load_scenario_text(scenario, "serving.yaml", CSDSIM_SOURCE_DIR, sets);
  scenario::RunResult result = experiment::run_scenario(loaded.base.scenario);
  CHECK(result.failure.empty());
  result.document.erase("wall");
  result.document["csv"] = result.files.at(0).text;
  return result.document;
}

std::string refusal(const std::vector<std::string>& sets) {
  try {
    run(sets);
  } catch (const UserError& error) {
    return error.what();
  }
  return "it ran";
}

double metric(const ordered_json& document, const char* name) { return document["metrics"].at(name).get<double>(); }

}  // namespace

TEST_CASE("a serving run says the same twice, and its books agree with the drives'") {
  const ordered_json first = run();
  CHECK(first == run());
  // What the tier wrote is what the drives programmed, in whole mapping units.
  const double written = metric(first, "tier_drives_bytes_written");
  CHECK(written > 0);
  CHECK(first["stats"]["drives"][0]["block_ftl"]["host_bytes_written"]["value"].get<double>() == written);
  CHECK(metric(first, "write_amplification") >= 1);
  // A drive that is written at this rate until its blocks have their rated cycles. Parity wears nothing.
  const csd_model::DeviceConfig device =
      experiment::load_scenario_text(kScenario, "serving.yaml", CSDSIM_SOURCE_DIR, {}).base.scenario.platform.device;
  const FlashGeometry& flash = device.flash.geometry;
  constexpr double kRatedCycles = 546, kDaysPerYear = 365;
  const double raw = double(flash.pages()) * double(flash.page_size.value);
  const double per_day = metric(first, "drive_writes_per_day") * double(csd_model::exported_capacity(device).value);
  CHECK(metric(first, "drive_lifetime_years") ==
        Approx(kRatedCycles * raw / (per_day * metric(first, "write_amplification") * kDaysPerYear)).epsilon(1e-9));
  const double parts =
      metric(first, "gpu_hit_rate") + metric(first, "tier_host_hit_rate") + metric(first, "tier_drives_hit_rate");
  CHECK(metric(first, "prefix_hit_rate") == Approx(parts).epsilon(1e-12));
  CHECK(metric(first, "tier_drives_hit_rate") > 0);
}

TEST_CASE("a serving run has its requests as Prometheus text") {
  const auto loaded = experiment::load_scenario_text(kScenario, "serving.yaml", CSDSIM_SOURCE_DIR,
                                                     {"workload.tiers.drives.model=rates"});
  const scenario::RunResult result = experiment::run_scenario(loaded.base.scenario);
  const auto file = std::ranges::find(result.files, "metrics.prom", &scenario::RunResult::File::name);
  REQUIRE(file != result.files.end());
  CHECK_THAT(file->text, Contains("vllm:time_to_first_token_seconds_count 150\n"));
  CHECK_THAT(file->text, Contains("vllm:time_to_first_token_seconds_bucket{le=\"+Inf\"} 150\n"));
  const double hits =
      metric(result.document, "tier_host_found_blocks") + metric(result.document, "tier_drives_found_blocks");
  CHECK_THAT(file->text, Contains(fmt::format("vllm:external_prefix_cache_hits {}\n", hits)));
  CHECK_THAT(file->text, Contains("vllm:kv_offload_tiering_promotion_allocation_failures 0\n"));
}

TEST_CASE("drives as measured rates come near the simulated ones") {
  const ordered_json simulated = run();
  const ordered_json rates = run({"workload.tiers.drives.model=rates"});
  CHECK(metric(rates, "prefix_hit_rate") == Approx(metric(simulated, "prefix_hit_rate")).epsilon(0.05));
  CHECK(metric(rates, "request_ttft_mean_s") == Approx(metric(simulated, "request_ttft_mean_s")).epsilon(0.1));
  CHECK(metric(rates, "tokens_per_s") == Approx(metric(simulated, "tokens_per_s")).epsilon(0.02));
  CHECK_FALSE(rates["metrics"].contains("drive_lifetime_years"));
  CHECK(rates["stats"]["drive_rates"]["read_bytes_per_s"].get<double>() > 1e9);
}

TEST_CASE("a run says what a table of rates leaves out, and that a drive written more than once collects garbage") {
  const auto meaning = [](const std::vector<std::string>& sets) {
    const auto loaded = experiment::load_scenario_text(kScenario, "serving.yaml", CSDSIM_SOURCE_DIR, sets);
    return experiment::run_scenario(loaded.base.scenario).meaning;
  };
  const std::string rates = "workload.tiers.drives.model=rates";
  const std::vector<std::string> small{rates, "workload.tiers.drives.capacity=255 MiB",
                                       "platform.device.flash.blocks_per_plane=8", "platform.device.flash.channels=1",
                                       "platform.device.flash.dies_per_channel=1"};
  CHECK_THAT(meaning({}), !Contains("table of rates") && Contains("with the write amplification of this run"));
  CHECK_THAT(meaning({rates}), Contains("collect no garbage and do not wear.") && !Contains("times over"));
  CHECK_THAT(meaning(small), Contains("times over, which simulated drives answer with collection"));
}

TEST_CASE("a run says from where the cycles of a life are, and what was written beyond an SLC cache") {
  const auto result = [](const std::vector<std::string>& sets) {
    return experiment::run_scenario(
        experiment::load_scenario_text(kScenario, "serving.yaml", CSDSIM_SOURCE_DIR, sets).base.scenario);
  };
  const std::string rates = "workload.tiers.drives.model=rates", cache = "platform.device.flash.slc_cache=1 MB";
  const scenario::RunResult plain = result({});
  CHECK_THAT(plain.meaning, Contains("and blocks of 546 program/erase cycles (preset samsung-980-pro-2tb, calibrated: "
                                     "Samsung 980 PRO data sheet: 1,200 TB written") &&
                                !Contains("SLC cache"));
  for (const std::vector<std::string>& sets : {std::vector{cache}, {cache, rates}}) {
    const scenario::RunResult beyond = result(sets);
    CHECK_THAT(beyond.meaning, Contains("at the rate of its SLC cache, which holds 0.001 GB"));
    CHECK(beyond.document["stats"]["notes"].size() == 1);
  }
  CHECK_THAT(result({cache, "workload.tiers.drives=off"}).meaning, !Contains("SLC cache"));
}

TEST_CASE("without a tier on drives the drives do not count") {
  const auto load = [](const std::vector<std::string>& sets) {
    return experiment::load_scenario_text(kScenario, "serving.yaml", CSDSIM_SOURCE_DIR, sets).base.scenario;
  };
  // The second drive has another logical block, to which layers of a block are padded on drives.
  const std::string other = "platform.device.preset=xl-flash-512b", off = "workload.tiers.drives=off",
                    layers = "workload.tiers.load=by_layer", fine = "workload.engine.granularity=layer";
  const std::vector<std::string> first{off, layers, fine}, second{off, layers, fine, other};
  CHECK(scenario::effective_config(load(first)) == scenario::effective_config(load(second)));
  CHECK(scenario::effective_config(load({})) != scenario::effective_config(load({other})));
  CHECK(run(first) == run(second));
}

TEST_CASE("distributions of times agree with their percentiles") {
  const ordered_json document = run();
  const ordered_json& shares = document["distributions"]["shares"];
  for (const char* const name : {"request_ttft", "request_tpot", "itl", "request_latency"}) {
    const ordered_json& values = document["distributions"]["values"].at(std::string(name) + "_s");
    CAPTURE(name);
    REQUIRE(values.size() == shares.size());
    CHECK(std::ranges::is_sorted(values.get<std::vector<double>>()));
    for (std::size_t i = 0; i < shares.size(); ++i)
      for (const auto& [share, percentile] : {std::pair{0.5, "p50"}, {0.9, "p90"}, {0.99, "p99"}})
        if (shares[i] == share)
          CHECK(values[i].get<double>() == metric(document, fmt::format("{}_{}_s", name, percentile).c_str()));
  }
  CHECK(shares.back() == 1.0);
  CHECK_FALSE(run({"workload.generate.requests=5", "workload.generate.turns=1"}).contains("distributions"));
}

TEST_CASE("an interrupted run has what had ended until then") {
  const auto rows = [](const ordered_json& document) {
    std::vector<std::string> lines;
    std::istringstream text(document["csv"].get<std::string>());
    for (std::string line; std::getline(text, line);) lines.push_back(line);
    return lines;
  };
  for (const std::vector<std::string>& sets :
       {std::vector<std::string>{}, std::vector<std::string>{"workload.tiers.drives.model=rates"}}) {
    const auto loaded = experiment::load_scenario_text(kScenario, "serving.yaml", CSDSIM_SOURCE_DIR, sets);
    scenario::RunOptions options;
    std::uint64_t ended = 0;
    options.progress = [&ended](std::string_view, std::uint64_t done, std::uint64_t) { ended = done; };
    options.interrupted = [&ended] { return ended >= 60; };
    scenario::RunResult part = experiment::run_scenario(loaded.base.scenario, options);
    CHECK(part.failure.empty());
    part.document["csv"] = part.files.at(0).text;
    const std::vector<std::string> some = rows(part.document), all = rows(run(sets));
    CHECK(some.size() == 1 + ended);
    CHECK(some.size() < all.size());
    for (const std::string& line : some) CHECK(std::ranges::find(all, line) != all.end());
    const ordered_json& partial = part.document["partial"];
    CHECK(partial["requests_ended"] == some.size() - 1);
    CHECK(partial["requests"] == 150);
    CHECK(partial["simulated_s"] == part.document["metrics"]["simulated_s"]);
    CHECK_THAT(part.meaning, Catch::StartsWith("PARTIAL: interrupted after") &&
                                 Contains(fmt::format("when {} of 150 requests had ended", some.size() - 1)));
    CHECK_THAT(part.document["stats"]["simulated"].get<std::string>(),
               Contains("PARTIAL") && Catch::EndsWith("missing most"));  // pages end the sentence
  }
  CHECK_FALSE(run().contains("partial"));
}

TEST_CASE("a sweep notes a long simulation only where a point is one") {
  const auto noted = [](const std::string& drives) {
    const auto loaded = experiment::load_scenario_text(kScenario, "serving.yaml", CSDSIM_SOURCE_DIR,
                                                       {"workload.generate.requests=2001", "platform.gpu.memory=16 GiB",
                                                        "sweep={axes: {workload.tiers.drives: [" + drives + "]}}"});
    return std::ranges::count_if(scenario::all_notes(loaded), [](const std::string& note) {
      return note.find("with every page of the drives simulated may take long") != std::string::npos;
    });
  };
  CHECK(noted("off, {model: rates}") == 0);
  CHECK(noted("off, {model: simulated}") == 1);
}

TEST_CASE("a part of a trace begins with its first request") {
  test::TemporaryDirectory folder;
  const auto of_trace = [&](double first) {
    std::string lines;
    for (int i = 0; i < 4; ++i)
      lines +=
          fmt::format("{{\"timestamp\": {}, \"input_length\": 600, \"output_length\": 4, \"hash_ids\": [{}, {}]}}\n",
                      first + 40 * i, 2 * i, 2 * i + 1);
    const std::string path = (folder / "part.jsonl").string();
    std::ofstream(path) << lines;
    const auto loaded = experiment::load_scenario_text(
        kScenario, "serving.yaml", CSDSIM_SOURCE_DIR,
        {"workload.generate=none", "workload.requests=" + path, "workload.first_requests=9"});
    std::string notes;
    for (const std::string& note : loaded.base.notes) notes += note + "\n";
    CHECK_THAT(notes, Contains("the trace has 4 requests"));
    ordered_json document = experiment::run_scenario(loaded.base.scenario).document;
    return std::pair{document["metrics"], notes};
  };
  const auto [whole, no_note] = of_trace(0);
  const auto [part, note] = of_trace(3'000'000);
  CHECK_THAT(no_note, !Contains("begins with the first request"));
  CHECK_THAT(note, Contains("the run begins with the first request, which arrives after 3000 s"));
  CHECK(part == whole);
}

TEST_CASE("a tier lowers the time to the first token where prompts come back") {
  const double with = metric(run(), "request_ttft_mean_s");
  const double without = metric(run({"workload.generate.turns=1", "workload.engine.most_running=2",
                                     "workload.tiers.host=off", "workload.tiers.drives=off"}),
                                "request_ttft_mean_s");
  CHECK(with < without);
}

TEST_CASE("rates of a service do not depend on the requests of its warm-up") {
  const auto rates = [](const std::string& warmup) {
    return run({"workload.generate.gap=1 ns", "workload.generate.turns=1", "workload.tiers.host=off",
                "workload.tiers.drives=off", "workload.slo.ttft=1000 s", "workload.warmup_requests=" + warmup});
  };
  const ordered_json all = rates("0"), late = rates("120");
  for (const char* const name : {"requests_per_s", "tokens_per_s", "goodput"}) {
    INFO(name);
    CHECK(metric(late, name) == Approx(metric(all, name)).epsilon(1e-5));
  }
  CHECK(metric(late, "request_ttft_mean_s") > 1.2 * metric(all, "request_ttft_mean_s"));
}

TEST_CASE("a service that cannot keep up says so") {
  const auto meaning = [](const std::string& gap) {
    const auto loaded = experiment::load_scenario_text(
        kScenario, "serving.yaml", CSDSIM_SOURCE_DIR,
        {"workload.generate.gap=" + gap, "workload.generate.turns=1", "workload.engine.most_running=2",
         "workload.tiers.host=off", "workload.tiers.drives=off"});
    return experiment::run_scenario(loaded.base.scenario).meaning;
  };
  const std::string too_much = "Requests come faster than they are served: the first quarter waited";
  CHECK_THAT(meaning("1 ms"), Contains(too_much));
  CHECK_THAT(meaning("1 s"), !Contains(too_much));
}

TEST_CASE("tokens of a service over simulated drives are those of each request computed alone") {
  const std::vector<std::string> opt{"model={path: models/opt-6m}",         "workload.tiers.store=on_eviction",
                                     "workload.engine.prefix_caching=true", "platform.gpu.memory=14 MiB",
                                     "workload.engine.preemption=swap",     "workload.engine.swap_space=16 MiB"};
  const std::vector<std::string> by_layer{"workload.tiers.load=by_layer", "workload.engine.granularity=layer",
                                          "workload.tiers.drives.path=direct", "workload.tiers.store=write_back"};
  const std::vector<std::string> files{
      "workload.tiers.drives.files={directories: 16, journal: 64 KiB, discard: true, commit_interval: 1 ms, "
      "write_back_interval: 5 ms, metadata_cache: 16 KiB}",
      "platform.host.file={access: bounce, io_size: 16 KiB}"};
  std::vector<std::string> rates = files;
  rates.emplace_back("workload.tiers.drives.model=rates");
  const std::vector<std::string> promoted{"workload.tiers.promotion=at_lookup"};
  for (const auto& sets : {std::vector<std::string>{}, opt, by_layer, files, rates, promoted}) {
    const ordered_json document = run(sets, kCarried);
    CAPTURE(document["metrics"].dump());
    const ordered_json& cold = document["stats"]["cold_answers"];
    CHECK(cold["tokens_compared"].get<int>() > 150);
    CHECK(cold["tokens_equal"] == cold["tokens_compared"]);
    CHECK(metric(document, "tier_drives_loaded_blocks") > 5);
    CHECK(metric(document, "tier_host_loaded_blocks") > 5);
    CHECK(metric(document, "tier_drives_bytes_written") > 2e6);
  }
}

TEST_CASE("what a drive cannot read back is computed again, and the tokens stay the same") {
  const auto errors = [](const char* base) {
    return fmt::format(
        "platform.device.flash.reliability={{base: {}, max_retries: 0, program_failure: 0, erase_failure: 0}}", base);
  };
  // Parts of pages are not written with a file per block either, where pages have 4 KiB.
  const std::vector<std::string> range{errors("0.0016")},
      files{errors("0.0018"), "platform.device.flash.page_size=4 KiB", "platform.device.flash.blocks_per_plane=32",
            "platform.host.file={access: direct, io_size: 16 KiB}",
            "workload.tiers.drives.files={directories: 16, journal: 64 KiB, commit_interval: 1 ms, "
            "write_back_interval: 2 ms, metadata_cache: 0 B}"};
  for (const auto& sets : {range, files}) {
    const ordered_json document = run(sets, kCarried);
    CAPTURE(document["metrics"].dump());
    const ordered_json& cold = document["stats"]["cold_answers"];
    CHECK(cold["tokens_equal"] == cold["tokens_compared"]);
    CHECK(metric(document, "tier_drives_lost_blocks") > 0);
    CHECK(metric(document, "tier_drives_loaded_blocks") > 0);
    CHECK(metric(document, "lost_tokens") > 0);
  }
}

TEST_CASE("a file per block writes metadata, which counts in writes, amplification and life") {
  const std::vector<std::string> files{"workload.tiers.drives.files={directories: 1024, journal: 64 MiB}",
                                       "platform.host.file.access=direct", "workload.tiers.drives.capacity=2 GiB"};
  const ordered_json document = run(files), range = run({"workload.tiers.drives.capacity=2 GiB"});
  CHECK(document == run(files));
  const double blocks = metric(document, "tier_drives_bytes_written"),
               metadata = metric(document, "tier_metadata_bytes_written");
  CHECK(metric(document, "tier_files_created") == metric(document, "tier_drives_stored_blocks"));
  CHECK(metadata > 4096 * metric(document, "tier_files_created"));
  CHECK(document["stats"]["drives"][0]["block_ftl"]["host_bytes_written"]["value"].get<double>() == blocks + metadata);
  const double seconds = metric(document, "simulated_s");
  const double exported = double(
      csd_model::exported_capacity(experiment::load_scenario_text(kScenario, "serving.yaml", CSDSIM_SOURCE_DIR, {})
                                       .base.scenario.platform.device)
          .value);
  CHECK(metric(document, "drive_writes_per_day") == Approx((blocks + metadata) / exported * 86400 / seconds));
  CHECK(metric(document, "tier_write_amplification") ==
        Approx(metric(document, "write_amplification") * (blocks + metadata) / blocks).epsilon(1e-3));
  CHECK(metric(range, "tier_write_amplification") == Approx(metric(range, "write_amplification")).epsilon(1e-9));
  CHECK_FALSE(range["metrics"].contains("tier_files_created"));
  // Each block takes a thread's time and goes in I/Os one after the other.
  CHECK(metric(document, "tier_drives_load_mean_s") > metric(range, "tier_drives_load_mean_s"));
  CHECK(metric(document, "request_ttft_mean_s") > metric(range, "request_ttft_mean_s"));
}

TEST_CASE("files as measured rates come near simulated ones") {
  const std::vector<std::string> files{"workload.tiers.drives.files={directories: 1024, journal: 64 MiB}",
                                       "platform.host.file.access=direct", "workload.tiers.drives.capacity=2 GiB"};
  std::vector<std::string> table = files;
  table.emplace_back("workload.tiers.drives.model=rates");
  const ordered_json simulated = run(files), rates = run(table);
  CHECK(metric(rates, "tier_files_created") == Approx(metric(simulated, "tier_files_created")).epsilon(0.05));
  CHECK(metric(rates, "tier_metadata_bytes_written") ==
        Approx(metric(simulated, "tier_metadata_bytes_written")).epsilon(0.1));
  CHECK(metric(rates, "request_ttft_mean_s") == Approx(metric(simulated, "request_ttft_mean_s")).epsilon(0.1));
  CHECK(metric(rates, "tier_drives_load_mean_s") == Approx(metric(simulated, "tier_drives_load_mean_s")).epsilon(0.3));
}

TEST_CASE("serving scenarios that cannot be are refused where they stand") {
  CHECK_THAT(refusal({"workload.tiers.drives.capacity=3 TB"}),
             Contains("workload.tiers.drives.capacity: 3 TB are more than a drive exports, "));
  // A tier may have all that a drive exports, and not a byte of its spare blocks.
  const auto load = [](const std::vector<std::string>& sets) {
    return experiment::load_scenario_text(kScenario, "serving.yaml", CSDSIM_SOURCE_DIR, sets).base.scenario;
  };
  for (const char* const spare : {"0", "3"}) {
    const std::string blocks = std::string("platform.device.ftl.spare_blocks=") + spare;
    const std::uint64_t exported = csd_model::exported_capacity(load({blocks}).platform.device).value;
    const auto tier = [](std::uint64_t bytes) { return fmt::format("workload.tiers.drives.capacity={} B", bytes); };
    CHECK(load({blocks, tier(exported)}).platform.device.ftl.spare_blocks == std::stoul(spare));
    CHECK_THROWS_WITH(load({blocks, tier(exported + 1)}), Contains("are more than a drive exports"));
  }
  CHECK_THAT(refusal({"workload.tiers.block_tokens=24"}), Contains("24 tokens are not whole blocks of the GPU"));
  CHECK_THAT(refusal({"workload.slo={}"}), Contains("give ttft, tpot or latency"));
  CHECK_THAT(refusal({"workload.slo.ttft=2"}),
             Contains("workload.slo.ttft") && !Contains("give ttft, tpot or latency"));
  CHECK_THAT(refusal({"workload.generate=none"}), Contains("give a trace, or generate one"));
  CHECK_THAT(refusal({"workload.tiers.host.capacity=1 MiB"}), Contains("do not hold a KV block of"));
  CHECK_THAT(refusal({"workload.tiers.host.eviction=lur"}),
             Contains("unknown eviction policy 'lur' (did you mean lru?)"));
  CHECK_THAT(refusal({"workload.engine.chunked_prefill=false", "workload.engine.step_tokens=64"}),
             Contains("without chunked prefill a step of 64"));
  CHECK_THAT(refusal({"workload.engine.gpu_memory_share=1 %"}), Contains("do not hold weights of"));
  CHECK_THAT(refusal({"workload.tiers.host.capacity=70 GiB"}), Contains("of host memory, which has 64.0 GiB"));
  CHECK_THAT(refusal({"platform.gpu.count=2"}), Contains("workload.engine.instances"));
  CHECK_THAT(refusal({"workload.tiers.drives.path=direct", "workload.tiers.drives.fills_staging_once=true"}),
             Contains("with path: direct blocks pass through no staging buffer"));
  const std::string files = "workload.tiers.drives.files={journal: 64 MiB, directories: 16}";
  const std::string direct = "platform.host.file.access=direct";
  CHECK_THAT(refusal({files}),
             Contains("platform.host.file.access: files of a tier are read and written past the page cache"));
  CHECK_THAT(refusal({files, "platform.host.file.access=bounce", "workload.tiers.drives.path=direct"}),
             Contains("workload.tiers.drives.path: with platform.host.file.access: bounce threads copy"));
  CHECK_THAT(refusal({files, direct, "workload.tiers.drives.capacity=65 MiB"}),
             Contains("workload.tiers.drives.capacity: a file system of 0.06816 GB does not hold two files of"));
  const auto noted = experiment::load_scenario_text(
      kScenario, "serving.yaml", CSDSIM_SOURCE_DIR,
      {files, direct, "platform.device.ftl.mapping_unit=page", "platform.device.flash.reliability={}"});
  CHECK(std::ranges::any_of(noted.base.notes, [](const std::string& note) {
    return note.find("workload.tiers.drives.files: metadata is written in parts of pages") != std::string::npos;
  }));
  CHECK_THAT(refusal({files, direct, "platform.host.file.io_size=1000 B"}),
             Contains("platform.host.file.io_size: 1 kB are not whole logical blocks"));
  CHECK_THAT(refusal({files, direct, "workload.tiers.drives.request=64 KiB"}),
             Contains("workload.tiers.drives.request") && Contains("platform.host.file.io_size is the size of an I/O"));
  CHECK_THAT(refusal({files, direct, "platform.device.nvme.block_size=8 KiB"}),
             Contains("workload.tiers.drives.files: a file system has blocks of 4 KiB"));
  CHECK_THAT(refusal({files, direct, "workload.tiers.drives.files.metadata_cache=64 GiB"}),
             Contains("metadata of files and swap space take"));
  const std::string promotion = "workload.tiers.promotion=at_lookup";
  const std::vector<std::pair<std::string, std::string>> none{
      {"workload.tiers.host=off",
       "workload.tiers.host: with workload.tiers.promotion: at_lookup blocks of drives pass"},
      {"workload.tiers.drives=off", "workload.tiers.drives: with workload.tiers.promotion: at_lookup there must be"},
      {"workload.tiers.host.admission=nth_sighting:n=2", "workload.tiers.host.admission: with"},
      {"workload.tiers.drives.path=direct", "workload.tiers.drives.path: with"},
      {"workload.tiers.drives.fills_staging_once=true", "workload.tiers.drives.fills_staging_once: with"},
      {"workload.tiers.retrieval=cheaper_of_both", "workload.tiers.retrieval: with"}};
  for (const auto& [set, message] : none) CHECK_THAT(refusal({promotion, set}), Contains(message));
  CHECK_THAT(refusal({"simulation.data=carried"}), Contains("name a checkpoint with model: {path: DIR}"));
  CHECK_THAT(refusal({"simulation.data=carried", "model={path: models/opt-6m}", "workload.engine.kv_element_bytes=1"}),
             Contains("workload.engine.kv_element_bytes: runs that carry data keep K and V in 2 bytes"));
}

}  // namespace test_serving_runs
