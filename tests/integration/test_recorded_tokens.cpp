// Recordings of important tokens as files, and what is said about them.
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "experiment/evaluation/pool_study.h"
#include "experiment/evaluation/recorded_tokens.h"
#include "experiment/experiments.h"
#include "experiment/runner.h"
#include "host_runtime/core/features/token_pools/model/token_locality.h"
#include "tests/integration/small_platform.h"

namespace test_recorded_tokens {

using namespace csdsim;
using Catch::Matchers::Contains;
using nlohmann::ordered_json;

namespace {

/// Writes the text to a file and reads it as a recording.
experiment::RecordedTokenFile read(const std::string& text) {
  const auto path = std::filesystem::temp_directory_path() / ("csdsim_tokens_" + std::to_string(::getpid()) + ".json");
  std::ofstream(path) << text;
  struct Remove {
    std::filesystem::path path;
    ~Remove() { std::filesystem::remove(path); }
  } remove{path};
  return experiment::read_tokens(path);
}

const host::TokenRecording kRecording{
    .prefill = 4, .windows = {{{{{0, 4}, {4, 5}}}, {{{1, 4}, {1, 5}}}}, {{{{2, 4}, {2, 5}}}, {{{3, 4}, {0, 5}}}}}};

const ordered_json& document() {
  static const ordered_json written =
      experiment::token_document(kRecording, {.model = "models/m", .text = "t", .method = "int8", .setting = "k 2"});
  return written;
}

host::HeadSelection selection(std::initializer_list<std::uint32_t> tokens) {
  host::HeadSelection result;
  for (const std::uint32_t token : tokens) result.tokens.push_back(TokenIndex{token});
  return result;
}

}  // namespace

TEST_CASE("a recording that is written is read again, with its origin and statistics") {
  const experiment::RecordedTokenFile again = read(document().dump());
  CHECK(again.recording.prefill == 4);
  CHECK(again.recording.windows == kRecording.windows);
  CHECK((again.origin.model == "models/m" && again.origin.text == "t"));
  CHECK((again.origin.method == "int8" && again.origin.setting == "k 2"));
  // Tokens that were important one step before: 4, 1, 2 and none.
  CHECK(document()["statistics"]["mean"]["overlap_1"].get<double>() == Approx((0.5 + 0.5 + 0.5 + 0) / 4));
  CHECK(document()["statistics"]["layers"].size() == 2);
  CHECK_THROWS_AS(experiment::token_document({.prefill = 4, .windows = {}}, {}), UserError);
}

TEST_CASE("a method with one list per layer is recorded once, others by KV head") {
  const auto record = [](bool list_per_layer) {
    experiment::TokenRecorder recorder(4, 1, 1, 2, list_per_layer);
    for (const auto& step : {selection({0, 4}), selection({4, 5})})
      for (const std::uint32_t head : {0, 1}) recorder.add(SequenceId{0}, LayerId{0}, KvHead{head}, step);
    return recorder.recording();
  };
  using Lists = std::vector<host::TokenRecording::Steps>;
  const host::TokenRecording::Steps steps{{0, 4}, {4, 5}};
  CHECK(record(true).windows[0][0] == Lists{steps});
  CHECK(record(false).windows[0][0] == Lists{steps, steps});
}

TEST_CASE("files that are no recordings are refused with the place of the mistake") {
  CHECK_THROWS_WITH(experiment::read_tokens("/nowhere.json"), Contains("/nowhere.json: cannot be read"));
  CHECK_THROWS_WITH(read("{}"), Contains(".json: is no recording of tokens"));
  CHECK_THROWS_WITH(read("{\n[1"), Contains("is not JSON") && Contains("line 2, column 1"));
  const auto with = [](const std::string& path, const ordered_json& value) {
    ordered_json changed = document();
    changed[ordered_json::json_pointer(path)] = value;
    return changed.dump();
  };
  CHECK_NOTHROW(read(with("/model", "other")));
  CHECK_THROWS_WITH(read(with("/csdsim_tokens", 2)), Contains("version 1"));
  CHECK_THROWS_WITH(read(with("/prefill", -1)), Contains("prefill: -1 is not a whole number"));
  CHECK_THROWS_WITH(read(with("/method", 3)), Contains("method: is not a text"));
  CHECK_THROWS_WITH(read(with("/windows", ordered_json::array())), Contains("windows: is not a list of windows"));
  CHECK_THROWS_WITH(read(with("/windows/1/0/0/0", {2, 5})),
                    Contains("windows[1][0][0][0][1]: 5 is not a whole number below 5"));
  CHECK_THROWS_WITH(read(with("/windows/0/1/0/1", {4, 4})),
                    Contains("windows[0][1][0][1][1]: 4 follows 4: positions ascend"));
  CHECK_THROWS_WITH(read(with("/windows/0/1/0/1", ordered_json::array())),
                    Contains("windows[0][1][0][1]: is not a list"));
  CHECK_THROWS_WITH(read(with("/windows/1/1/0", {{3}})), Contains("windows[1][1][0]: 1 steps, elsewhere 2"));
  CHECK_THROWS_WITH(read(with("/windows/1/1", {{{3}, {3}}, {{3}, {3}}})),
                    Contains("windows[1][1]: 2 lists, elsewhere 1"));
  CHECK_THROWS_WITH(read(with("/windows/1", {{{{3}, {3}}}})), Contains("windows[1]: 1 layers, elsewhere 2"));
  ordered_json less = document();
  less.erase("text");
  CHECK_THROWS_WITH(read(less.dump()), Contains("'text' is missing"));
}

TEST_CASE("rows of pools are shares of the context") {
  const experiment::RecordedTokenFile file = read(document().dump());
  const ordered_json rows = experiment::pool_rows(
      file, {{.hot = {1, 2}, .policy = host::PoolPolicy::naive}, {.hot = {1, 1}, .kept_hot = {1, 5}}});
  REQUIRE(rows.size() == 2);
  CHECK((rows[0]["model"] == "m" && rows[0]["policy"] == "naive" && rows[1]["policy"] == "hit-table"));
  CHECK(rows[0]["context"] == 6.0);
  CHECK(rows[0]["important"].get<double>() == Approx(2.0 / 6));
  // Half of 5 tokens, rounded up, are hot at first: the two important ones and the newest other. Only the list that
  // turns from 3 and 4 to 0 needs a cold token.
  CHECK(rows[0]["cold_important"].get<double>() == Approx(1.0 / 8));
  CHECK(rows[0]["promoted"].get<double>() == Approx(1.0 / 24));
  CHECK(rows[1]["moved"] == 0.0);
  CHECK_THROWS_WITH(experiment::locality_rows(file, {}), Contains("at least 9 steps"));
}

TEST_CASE("a timing run takes its tokens from a recording, or from a model with stated constants") {
  const std::string text = test::small_platform("tokens") +
                           "model: {layers: 3, heads: 4, kv_heads: 4, head_dim: 32, hidden_size: 128, ffn_size: 256, "
                           "vocab_size: 100, max_positions: 256}\n"
                           "system: {kind: hillinfer, host_share: 60 %, ratio: 0.25}\n"
                           "workload: {kind: generation, batch: 2, input_tokens: 80, output_tokens: 13}\n"
                           "simulation: {sampling: off}\nseed: 5\n";
  const auto run = [&](const std::vector<std::string>& sets) {
    const auto loaded = experiment::load_scenario_text(text, "tokens.yaml", ".", sets);
    return experiment::run_scenario(loaded.base.scenario).document;
  };
  // What the model of the run would say, as a recording.
  host::TokenLocalityModel model({.recent = 0.3, .concentration = 1, .persistence = 0.5, .drift = 0.2}, 5);
  host::TokenRecording recording{.prefill = 80, .windows = {2, {3, {1, host::TokenRecording::Steps(12)}}}};
  for (std::uint32_t window = 0; window < 2; ++window)
    for (std::uint32_t layer = 0; layer < 3; ++layer)
      for (std::uint32_t step = 0; step < 12; ++step)
        model.next(SequenceId{window}, LayerId{layer}, 81 + step, static_cast<std::uint32_t>((81 + step) / 4.0 + 0.5),
                   recording.windows[window][layer][0][step]);
  const auto file = std::filesystem::temp_directory_path() / ("csdsim_replay_" + std::to_string(::getpid()) + ".json");
  std::ofstream(file) << experiment::token_document(recording, {}).dump();
  const ordered_json other = run({}),
                     modelled = run({"simulation.tokens={kind: modelled, recent: 0.3, concentration: 1, "
                                     "persistence: 0.5, drift: 0.2}"});
  const std::string name = "simulation.tokens={kind: recorded, file: " + file.string() + "}";
  const ordered_json recorded = run({name});
  CHECK(recorded["metrics"] == modelled["metrics"]);
  CHECK(recorded["metrics"]["tokens_promoted_per_step"] != other["metrics"]["tokens_promoted_per_step"]);
  CHECK(recorded["stats"]["tokens"].get<std::string>().starts_with("recorded"));
  CHECK(modelled["stats"]["tokens"].get<std::string>().starts_with("modelled"));
  CHECK_THROWS_WITH(run({name, "workload.output_tokens=14"}), Contains("a context of 93 tokens was not recorded"));
  CHECK_THROWS_WITH(run({name, "system.ratio=0.5"}), Contains("important tokens of a context of 81 are wanted"));
  std::filesystem::remove(file);
  CHECK_THROWS_WITH(run({"simulation.tokens={kind: recorded}"}), Contains("kind recorded needs the file"));
  CHECK_THROWS_WITH(run({"simulation.tokens.recent=0.5", "system={kind: gpu-only}"}),
                    Contains("the system moves no chosen tokens"));
}

}  // namespace test_recorded_tokens
