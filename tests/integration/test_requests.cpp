// Requests with their own lengths and arrivals, from scenarios: tokens against a plain loop over the model, times,
// drives that are empty afterwards, reproducibility, files that cannot be read.
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/config/diagnostics.h"
#include "base/error.h"
#include "experiment/checkpoint/loaded_model.h"
#include "experiment/experiments.h"
#include "experiment/generation/generation_run.h"
#include "experiment/generation/generation_setup.h"
#include "experiment/generation/generation_workload.h"
#include "experiment/runner.h"
#include "host_runtime/core/attention/attention_methods.h"
#include "host_runtime/core/decoder/generation.h"
#include "platform/platform.h"
#include "tests/integration/small_platform.h"

namespace test_requests {

using namespace csdsim;

namespace {

const std::string kPlatform = test::small_platform("requests") + "seed: 3\n";

const std::string kCarried = "model: {path: models/opt-6m}\nsimulation: {data: carried}\n";
const std::string kTiming =
    "model: {layers: 3, heads: 8, kv_heads: 4, head_dim: 64, hidden_size: 512, ffn_size: 1024, vocab_size: 1000, "
    "max_positions: 4096}\n";

const std::vector<std::string> kSystems = {
    "system.kind=instinfer-dense",
    "system.kind=instinfer-sparf",
    "system.kind=gpu-only",
    "system.kind=host-kv",
    "system={kind: host-kv, attention: host}",
    "system={kind: host-kv, weights_on_host: 50 %}",
    "system={kind: flexgen-ssd, policy: given}",
    "system={kind: flexgen-ssd, policy: given, kv_on_gpu: 30 %, kv_on_host: 30 %}",
    "system={kind: deepspeed-host, rewrites_cache: true}",
    "system={kind: deepspeed-host, rewrites_cache: false}"};

/// A file of requests that lives as long as the test.
class RequestFile {
 public:
  explicit RequestFile(const std::string& text) : path_(std::filesystem::temp_directory_path() / name()) {
    std::ofstream(path_) << text;
  }
  RequestFile(const RequestFile&) = delete;
  RequestFile& operator=(const RequestFile&) = delete;
  ~RequestFile() { std::filesystem::remove(path_); }
  std::string path() const { return path_.string(); }

 private:
  static std::string name() {
    static int count = 0;
    return "csdsim_requests_" + std::to_string(::getpid()) + "_" + std::to_string(count++) + ".csv";
  }
  std::filesystem::path path_;
};

scenario::Scenario load(const std::string& model, const RequestFile& file, const std::vector<std::string>& sets = {}) {
  return experiment::load_scenario_text(
             kPlatform + model + "workload: {kind: generation, requests: " + file.path() + "}\n", "requests.yaml",
             CSDSIM_SOURCE_DIR, sets)
      .base.scenario;
}

std::string error_of(const std::string& text, const std::vector<std::string>& sets = {}) {
  const RequestFile file(text);
  try {
    load(kTiming, file, sets);
  } catch (const config::ConfigError& e) {
    std::string all;
    for (const std::string& message : e.messages()) all += message + "\n";
    return all;
  }
  return "";
}

/// What a plain loop over the model generates for each prompt alone.
nlohmann::ordered_json oracle(const scenario::Scenario& s) {
  experiment::LoadedModel model(s.model.path.value().path, host::Processor::cpu);
  const auto& workload = experiment::generation_of(s);
  const auto prompts = experiment::make_prompts(workload, model.checkpoint.config.vocab, s.seed);
  nlohmann::ordered_json tokens = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    auto method = host::configure_method(s.system->traits().method.name, s.system->traits().method.settings,
                                         model.checkpoint.config.head_dim);
    host::GenerationOptions options;
    options.max_new_tokens = workload.lengths().output_of(i);
    const auto generated = host::generate_on_host(model.decoder(), std::move(method.method), {prompts[i]}, options);
    nlohmann::ordered_json ids = nlohmann::ordered_json::array();
    for (const host::TokenId id : generated.front()) ids.push_back(id.value);
    tokens.push_back(std::move(ids));
  }
  return tokens;
}

const std::string kEnds = "input_tokens,output_tokens\n40,7\n9,1\n61,12\n33,4\n17,12\n";
const std::string kArrivals =
    "arrival_s,input_tokens,output_tokens\n0,40,7\n0,9,1\n0.0001,61,12\n0.0015,33,4\n0.002,17,9\n0.1,20,5\n";

/// Runs a scenario and looks at its drives when the last step has ended.
void check_drives_are_empty(const scenario::Scenario& s) {
  experiment::GenerationSetup setup = experiment::generation_setup(s, experiment::generation_of(s).lengths().prompts());
  experiment::GenerationHooks hooks;
  platform::Platform* drives = nullptr;
  std::uint64_t pages = 0;
  Bytes dram;
  hooks.before_start = [&](platform::Platform& platform) { drives = &platform; };
  hooks.before_end = [&](platform::Platform&) {
    for (std::uint32_t i = 0; i < drives->drives(); ++i) {
      drives->drive(i).kv_ftl().visit_pages([&](const ftl::KvPageId&, PhysicalPageAddress) { ++pages; });
      for (const auto use : {ftl::DramUse::group_buffer, ftl::DramUse::component_tail, ftl::DramUse::map})
        dram += drives->drive(i).dram().used(use);
    }
  };
  const experiment::GenerationOutcome out = experiment::run_generation(setup, hooks);
  CHECK(out.requests_issued == out.requests_completed);
  CHECK(out.simulated_page_ops > 0);
  CHECK(pages == 0);
  CHECK(dram == Bytes{});
}

}  // namespace

TEST_CASE("sequences that end make the tokens of a plain loop, wherever K and V are") {
  const RequestFile file(kEnds);
  for (const std::string& system : kSystems)
    for (const char* const mini_batches : {"1", "3"}) {
      CAPTURE(system, mini_batches);
      const scenario::Scenario s = load(
          kCarried, file, {system, std::string("workload.mini_batches=") + mini_batches, "simulation.compare=[host]"});
      const scenario::RunResult result = experiment::run_scenario(s);
      CHECK(result.failure.empty());
      CHECK(result.document["tokens"] == oracle(s));
      CHECK(result.document["stats"]["integrity_errors"] == 0);
      const std::string simulated = result.document["stats"]["simulated"];
      CHECK(simulated.find("carried runs simulate everything") != std::string::npos);
    }
}

TEST_CASE("requests that arrive while others run make the tokens of a plain loop") {
  const RequestFile file(kArrivals);
  for (const std::string& system : kSystems)
    for (const char* const mini_batches : {"1", "2"}) {
      CAPTURE(system, mini_batches);
      const scenario::Scenario s =
          load(kCarried, file,
               {system, "workload.batch=3", std::string("workload.mini_batches=") + mini_batches,
                "simulation.compare=[host]"});
      const scenario::RunResult result = experiment::run_scenario(s);
      CHECK(result.failure.empty());
      CHECK(result.document["tokens"] == oracle(s));
    }
}

TEST_CASE("requests on several GPUs make the tokens of a plain loop") {
  for (const std::string& requests : {kEnds, kArrivals}) {
    const RequestFile file(requests);
    for (const std::string& system : kSystems) {
      CAPTURE(system, requests);
      std::vector<std::string> sets{system, "platform.gpu.count=2", "workload.mini_batches=3",
                                    "simulation.compare=[host]"};
      if (requests == kArrivals) sets.push_back("workload.batch=3");
      const scenario::Scenario s = load(kCarried, file, sets);
      const scenario::RunResult result = experiment::run_scenario(s);
      CHECK(result.failure.empty());
      CHECK(result.document["tokens"] == oracle(s));
    }
  }
}

TEST_CASE("each GPU needs memory for the requests that it runs") {
  // K and V of a request of 2000 tokens take 5.9 MiB, the weights about 12 MiB.
  const std::vector<std::string> sets{"system.kind=gpu-only", "platform.gpu.count=2", "platform.gpu.memory=32 MiB"};
  std::string arriving = "arrival_s,input_tokens,output_tokens\n";
  for (int i = 0; i < 8; ++i) arriving += std::to_string(i) + ",1000,1000\n";
  const RequestFile many(arriving);
  std::vector<std::string> places = sets;
  places.push_back("workload.batch=4");
  CHECK_NOTHROW(load(kTiming, many, places));
  places.back() = "workload.batch=8";
  CHECK_THROWS_WITH(load(kTiming, many, places), Catch::Matchers::Contains("of one of the 2 GPUs"));
  // The second GPU has the long ones.
  const RequestFile uneven("input_tokens,output_tokens\n10,10\n10,10\n2000,2000\n2000,2000\n");
  CHECK_THROWS_WITH(load(kTiming, uneven, sets), Catch::Matchers::Contains("of one of the 2 GPUs"));
}

TEST_CASE("nothing is idle while requests run, whatever their mini-batches") {
  const RequestFile file("arrival_s,input_tokens,output_tokens\n0,100,9\n0,90,9\n0,80,9\n0,70,9\n");
  const auto document =
      experiment::run_scenario(
          load(kTiming, file, {"system.kind=instinfer-dense", "workload.batch=4", "workload.mini_batches=2"}))
          .document;
  CHECK(document["metrics"]["idle_s"].get<double>() == 0);
}

TEST_CASE("sequences end in drives that divide their tokens, and leave nothing there") {
  const RequestFile file(kEnds);
  const std::vector<std::string> sets{"system={kind: instinfer-dense, shard: token}", "platform.device.count=3",
                                      "workload.mini_batches=2"};
  std::vector<std::string> compared = sets;
  compared.push_back("simulation.compare=[host]");
  const scenario::RunResult result = experiment::run_scenario(load(kCarried, file, compared));
  CHECK(result.failure.empty());
  CHECK(result.document["comparison"]["host"]["tokens_equal"] == 7 + 1 + 12 + 4 + 12);
  const RequestFile longer("input_tokens,output_tokens\n200,7\n90,1\n300,40\n");  // whole pages in each drive
  check_drives_are_empty(load(kTiming, longer, sets));
  // Where requests start at different steps, drives cannot take the tokens of a step in turn.
  CHECK_THROWS_WITH(
      load(kTiming, file, {sets[0], sets[1], "workload.interarrival=1 ms"}),
      Catch::Matchers::Contains("workload.interarrival") && Catch::Matchers::Contains("with these parameters"));
}

TEST_CASE("drives are empty when all sequences have ended") {
  for (const char* const system : {"system.kind=instinfer-dense", "system.kind=instinfer-sparf"})
    for (const char* const tail : {"token_index", "dram"})
      for (const std::string& requests : {kEnds, kArrivals}) {
        CAPTURE(system, tail);
        const RequestFile file(requests);
        check_drives_are_empty(load(
            kTiming, file, {system, std::string("platform.device.ftl.mapping={kind: instinfer, tail: ") + tail + "}"}));
      }
}

TEST_CASE("a batch that ends generates what its requests ask for") {
  const RequestFile file(kEnds);
  const scenario::RunResult result = experiment::run_scenario(load(kTiming, file, {"workload.mini_batches=1"}));
  const auto& metrics = result.document["metrics"];
  const double seconds = 36 / metrics["tokens_per_s"].get<double>();
  // The last sequence ends with the run; the one without decode steps, with the prefill.
  CHECK(metrics["request_latency_p99_s"].get<double>() == Approx(seconds));
  REQUIRE(result.files.size() == 1);
  CHECK(result.files[0].name == "requests.csv");
  CHECK(std::ranges::count(result.files[0].text, '\n') == 6);
  const std::string simulated = result.document["stats"]["simulated"];
  CHECK(simulated.find("sequences end at different steps") != std::string::npos);
  // 3 layers of 4 heads of 64 fp16 components of K and V; most tokens are kept after the step with which the fourth
  // ends.
  CHECK(metrics["kv_bytes_peak"] == 3 * 4 * 64 * 2 * 2 * std::max({160, 40 + 61 + 33 + 17 + 4 * 3, 118 + 3 * 6}));
}

TEST_CASE("requests of equal lengths without arrivals take the time of a uniform batch") {
  const RequestFile file("input_tokens,output_tokens\n50,6\n50,6\n50,6\n");
  for (const std::string& system : kSystems) {
    CAPTURE(system);
    const auto own = experiment::run_scenario(load(kTiming, file, {system, "workload.mini_batches=2"})).document;
    const scenario::Scenario uniform =
        experiment::load_scenario_text(
            kPlatform + kTiming +
                "workload: {kind: generation, batch: 3, input_tokens: 50, output_tokens: 6, mini_batches: 2}\n",
            "uniform.yaml", CSDSIM_SOURCE_DIR, {system, "simulation.sampling=off"})
            .base.scenario;
    const auto same = experiment::run_scenario(uniform).document;
    for (const char* const metric : {"tokens_per_s", "ttft_s", "decode_tokens_per_s", "tpot_s"})
      CHECK(own["metrics"][metric] == same["metrics"][metric]);
  }
}

TEST_CASE("a request alone takes the time of a batch of one") {
  const RequestFile alone("arrival_s,input_tokens,output_tokens\n0.5,80,9\n");
  const RequestFile batch("input_tokens,output_tokens\n80,9\n");
  for (const char* const system : {"system.kind=gpu-only", "system.kind=instinfer-dense"}) {
    CAPTURE(system);
    const auto served = experiment::run_scenario(load(kTiming, alone, {system})).document["metrics"];
    const auto of_batch = experiment::run_scenario(load(kTiming, batch, {system})).document["metrics"];
    CHECK(served["idle_s"].get<double>() == Approx(0.5));
    CHECK(served["request_queueing_mean_s"].get<double>() == Approx(0).margin(1e-9));
    CHECK(served["ttft_s"].get<double>() == Approx(of_batch["ttft_s"].get<double>()).epsilon(1e-9));
    CHECK(served["tpot_s"].get<double>() == Approx(of_batch["tpot_s"].get<double>()).epsilon(0.01));
  }
}

TEST_CASE("the seed decides when requests arrive, and nothing else varies") {
  const RequestFile file(kEnds);
  const auto document = [&](const char* seed) {
    auto d = experiment::run_scenario(
                 load(kTiming, file, {"workload.interarrival=2 ms", "workload.batch=2", std::string("seed=") + seed}))
                 .document;
    d.erase("wall");
    d.erase("scenario");
    return d.dump();
  };
  CHECK(document("3") == document("3"));
  CHECK(document("3") != document("4"));
}

TEST_CASE("fewer places make requests wait, and more load makes them wait longer") {
  std::string text = "input_tokens,output_tokens\n";
  for (int i = 0; i < 20; ++i) text += std::to_string(20 + 7 * i) + "," + std::to_string(4 + i % 5) + "\n";
  const RequestFile file(text);
  const auto metrics = [&](const char* gap, const char* places) {
    return experiment::run_scenario(
               load(kTiming, file,
                    {std::string("workload.interarrival=") + gap, std::string("workload.batch=") + places}))
        .document["metrics"];
  };
  const auto rare = metrics("10 s", "4"), dense = metrics("1 ms", "4"), single = metrics("1 ms", "1");
  CHECK(rare["request_queueing_p99_s"].get<double>() == Approx(0).margin(1e-9));
  CHECK(rare["idle_s"].get<double>() > 10);
  CHECK(dense["request_queueing_mean_s"].get<double>() > 0);
  CHECK(single["request_queueing_mean_s"].get<double>() > dense["request_queueing_mean_s"].get<double>());
  CHECK(dense["requests_per_s"].get<double>() > single["requests_per_s"].get<double>());
  CHECK(single["kv_bytes_peak"].get<double>() < dense["kv_bytes_peak"].get<double>());
  CHECK(rare["flash_bytes_programmed"].get<double>() > 0);
}

TEST_CASE("a drive that is smaller than all requests together collects garbage and stays correct") {
  std::string text = "input_tokens,output_tokens\n";
  for (int i = 0; i < 40; ++i) text += std::to_string(60 + 11 * (i % 9)) + "," + std::to_string(3 + i % 4) + "\n";
  const RequestFile file(text);
  const scenario::Scenario s = load(kCarried, file,
                                    {"workload.interarrival=100 us", "workload.batch=3", "system.kind=instinfer-sparf",
                                     "platform.device.flash.blocks_per_plane=12",
                                     "platform.device.flash.pages_per_block=8", "simulation.compare=[host]"});
  const scenario::RunResult result = experiment::run_scenario(s);
  CHECK(result.failure.empty());
  CHECK(result.document["metrics"]["kv_erases"].get<std::uint64_t>() > 0);
  CHECK(result.document["stats"]["integrity_errors"] == 0);
}

TEST_CASE("files of requests that cannot be used are refused with their line") {
  const auto has = [](const std::string& all, const std::string& part) {
    INFO(all);
    CHECK(all.find(part) != std::string::npos);
  };
  has(error_of(""), "holds no request");
  has(error_of("input_tokens,output_tokens\n"), "holds no request");
  has(error_of("input_tokens,tokens\n1,2\n"), ".csv:1:14: error: unknown column 'tokens' (did you mean input_tokens?)");
  has(error_of("input_tokens\n1\n"), ".csv:1:1: error: no column output_tokens");
  has(error_of("input_tokens,output_tokens,input_tokens\n1,2,3\n"), ".csv:1:28: error: a second column for the same");
  has(error_of("input_tokens,output_tokens\n5,0\n"),
      ".csv:2:3: error: output_tokens: '0' is not a whole number from 1");
  has(error_of("input_tokens,output_tokens\n5,7\nx,7\n"), ".csv:3:1: error: input_tokens: 'x' is not a whole number");
  has(error_of("input_tokens,output_tokens\n5\n"), ".csv:2:1: error: 1 values in 2 columns");
  has(error_of("arrival_s,input_tokens,output_tokens\n-1,5,5\n"),
      ".csv:2:1: error: arrival_s: '-1' is not a number from 0");
  has(error_of("arrival_s,input_tokens,output_tokens\n2,5,5\n1,5,5\n"), ".csv:3:1: error: arrives before the request");
  has(error_of("TIMESTAMP,ContextTokens,GeneratedTokens\nnow,5,5\n"), ".csv:2:1: error: TIMESTAMP: 'now' is not like");
  has(error_of("input_tokens,output_tokens\n5,7\n4000,98\n"), ".csv:3: 4098 tokens (4000 in, 98 out) exceed the 4096");
  has(error_of(kEnds, {"workload.batch=3"}), "workload.batch");
  has(error_of(kEnds, {"workload.output_tokens=3"}), "workload.output_tokens");
  has(error_of(kArrivals, {"workload.batch=0"}), "workload.batch");
  has(error_of(kArrivals, {"simulation.sampling={layers: 2, steps: 2}"}), "which requests run together depends on the");
  has(error_of(kEnds, {"simulation.sampling={layers: 2, steps: 2}"}), "sequences end at different steps");
  has(error_of(kArrivals, {"workload.batch=2", "workload.mini_batches=3"}), "3 parts of a batch of 2");
}

TEST_CASE("lines of the Azure traces count from the first request") {
  const RequestFile file(
      "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 23:59:59.9799600,374,44\n2023-11-17 00:00:01.04,396,109\n");
  const experiment::RequestTrace trace = experiment::read_requests(file.path());
  REQUIRE(trace.requests.size() == 2);
  CHECK(trace.requests[0].prompt == 374);
  CHECK(trace.requests[1].prompt == 396);
  CHECK(trace.requests[0].output == 44);
  CHECK(trace.requests[1].output == 109);
  CHECK(trace.arrive);
  CHECK(trace.requests[0].arrival == SimTime{});
  CHECK(trace.requests[1].arrival == SimTime{1'060'040'000'000});
  CHECK(experiment::read_requests(file.path(), 1).requests.size() == 1);
}

}  // namespace test_requests
