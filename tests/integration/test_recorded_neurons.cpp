// Recordings of neurons as files.
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "experiment/evaluation/recorded_neurons.h"

namespace test_recorded_neurons {

using namespace csdsim;
using Catch::Matchers::Contains;
using nlohmann::ordered_json;

namespace {

/// Writes the text to a file and reads it as a recording.
host::NeuronRecording read(const std::string& text) {
  const auto path = std::filesystem::temp_directory_path() / ("csdsim_neurons_" + std::to_string(::getpid()) + ".json");
  std::ofstream(path) << text;
  struct Remove {
    std::filesystem::path path;
    ~Remove() { std::filesystem::remove(path); }
  } remove{path};
  return experiment::read_neurons(path);
}

const host::NeuronRecording kRecording{
    .neurons = 6, .stretches = {{{{0, 5}, {1}, {}}, {{2}, {2}, {2}}}, {{{}, {3, 4}}, {{0, 1, 2, 3, 4, 5}, {1}}}}};

const ordered_json& document() {
  static const ordered_json written =
      experiment::neuron_document(kRecording, {{"model", "m"}, {"predictor", "oracle"}});
  return written;
}

}  // namespace

TEST_CASE("a recording that is written is read again, and says its locality") {
  const ordered_json& written = document();
  const host::NeuronRecording again = read(written.dump());
  CHECK(again.neurons == kRecording.neurons);
  CHECK(again.stretches == kRecording.stretches);
  CHECK(written["model"] == "m");
  CHECK(written["active_within"]["layers"].size() == 2);
  CHECK(written["active_within"]["layers"][0][0].get<double>() == Approx((3.0 / 18 + 2.0 / 12) / 2));
  CHECK(written["active_within"]["mean"].size() == 2);  // the shortest stretch has two tokens
  CHECK(written["locality"]["mean"]["active"].get<double>() > 0);
  CHECK_THROWS_AS(experiment::neuron_document({.neurons = 6, .stretches = {}}, {}), UserError);
}

TEST_CASE("files that are no recordings are refused with the name of the file") {
  CHECK_THROWS_WITH(experiment::read_neurons("/nowhere.json"), Contains("/nowhere.json: cannot be read"));
  CHECK_THROWS_WITH(read("{}"), Contains(".json: is no recording"));
  CHECK_THROWS_WITH(read("[1"), Contains("is no recording"));
  const auto with = [](const char* key, const ordered_json& value) {
    ordered_json changed = document();
    changed[key] = value;
    return changed.dump();
  };
  CHECK_NOTHROW(read(with("model", "other")));
  CHECK_THROWS_WITH(read(with("csdsim_neurons", 2)), Contains("version 1"));
  for (const ordered_json& wrong : {ordered_json(0), ordered_json(-1), ordered_json("6"), ordered_json(1ULL << 40)})
    CHECK_THROWS_WITH(read(with("neurons", wrong)), Contains("neurons is not a count"));
  CHECK_THROWS_WITH(read(with("neurons", 5)), Contains("5 is not a neuron below 5"));
  CHECK_THROWS_WITH(read(with("stretches", ordered_json::array())), Contains("no stretch"));
  CHECK_THROWS_WITH(read(with("stretches", {{{{0}}}, {{{0}}, {{1}}}})), Contains("differ in their layers"));
  CHECK_THROWS_WITH(read(with("stretches", {{{{0}}, {{0}, {1}}}})), Contains("differ in their tokens"));
  CHECK_THROWS_WITH(read(with("stretches", {{{{1, 1}}}})), Contains("do not ascend"));
  CHECK_THROWS_WITH(read(with("stretches", {{{{-1}}}})), Contains("-1 is not a neuron"));
  CHECK_THROWS_WITH(read(with("stretches", {{{3}}})), Contains("not a list"));
  ordered_json less = document();
  less.erase("stretches");
  CHECK_THROWS_WITH(read(less.dump()), Contains("missing"));
}

}  // namespace test_recorded_neurons
