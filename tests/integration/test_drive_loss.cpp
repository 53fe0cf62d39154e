// A drive that disappears during a run: the run ends with an error that says which command of which drive, and nothing
// that looks like a result.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "experiment/experiments.h"
#include "experiment/runner.h"

namespace test_drive_loss {

using namespace csdsim;

namespace {

using Sets = std::vector<std::string>;

constexpr std::string_view kDevice = R"(csdsim: 1
name: loss
platform:
  gpu: {preset: a6000}
  host: {preset: xeon-5320}
  device:
    flash: {channels: 2, dies_per_channel: 2, planes_per_die: 2, blocks_per_plane: 64, pages_per_block: 64}
    dram: {capacity: 64 MiB}
)";

constexpr std::string_view kGeneration = R"(    count: 2
model: {layers: 2, heads: 4, kv_heads: 4, head_dim: 64, hidden_size: 256, ffn_size: 512, vocab_size: 1000, max_positions: 2048}
system: {kind: instinfer-dense}
workload: {kind: generation, batch: 2, input_tokens: 300, output_tokens: 40}
simulation: {sampling: off}
)";

constexpr std::string_view kBlocks = R"(    ftl: {mapping: {kind: page}}
workload: {kind: block_io, pattern: random_mixed, requests: 3000, working_set: 0.5}
)";

nlohmann::ordered_json result_of(std::string_view workload, const Sets& sets) {
  const std::string text = std::string(kDevice) + std::string(workload);
  const auto loaded = experiment::load_scenario_text(text, "loss.yaml", CSDSIM_SOURCE_DIR, sets);
  const scenario::RunResult result = experiment::run_scenario(loaded.base.scenario);
  REQUIRE(result.failure.empty());
  return result.document;
}

std::string error_of(std::string_view workload, const Sets& sets) {
  try {
    result_of(workload, sets);
  } catch (const UserError& e) {
    return e.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a run whose drive disappears in the middle says which command of which drive is missing") {
  const double ends = result_of(kGeneration, {})["metrics"]["simulated_s"];
  const auto lost = [&](double share) {
    return error_of(kGeneration, {fmt::format("platform.device.nvme.loss={{drive: 1, at: {:.9f} s}}", share * ends)});
  };
  const std::string in_decode = lost(0.7);
  CAPTURE(in_decode);
  CHECK(in_decode.starts_with("drive 1 does not answer: kv_attend (command "));
  CHECK(in_decode.find("is not complete after 30 s") != std::string::npos);
  CHECK(in_decode.find("commands are outstanding") != std::string::npos);
  const std::string in_prefill = lost(0.02);
  CAPTURE(in_prefill);
  CHECK(in_prefill.starts_with("drive 1 does not answer: kv_append (command "));
  CHECK(lost(1.5).empty());
}

TEST_CASE("block commands have the same timeout") {
  const std::string error = error_of(kBlocks, {"platform.device.nvme={loss: {at: 2 ms}, timeout: 500 ms}"});
  CAPTURE(error);
  CHECK(error.starts_with("drive 0 does not answer: "));
  CHECK(error.find("is not complete after 0.5 s") != std::string::npos);
}

TEST_CASE("a timeout that no command reaches changes nothing") {
  const auto without_wall = [](nlohmann::ordered_json document) {
    for (const char* const echoed : {"scenario", "wall"}) document.erase(echoed);
    return document.dump();
  };
  for (const std::string_view workload : {kGeneration, kBlocks})
    CHECK(without_wall(result_of(workload, {"platform.device.nvme.timeout=2 s"})) ==
          without_wall(result_of(workload, {"platform.device.nvme.timeout=10000 s"})));
}

}  // namespace test_drive_loss
