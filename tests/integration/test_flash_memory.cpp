// Weights in flash: how much of the model is in memory, and what a step costs in bytes, with their error, and energy.
#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "experiment/memory/check_residents.h"
#include "tests/integration/flash_run.h"

namespace test_flash_memory {

using namespace csdsim;
using namespace csdsim::test;
using Catch::Matchers::Contains;

TEST_CASE("attention weights that are not in memory are read in every step, layer by layer") {
  const scenario::Scenario s = load_flash({}, kFlashTiming).scenario;
  const host::ModelShape model = s.model.shape();
  const double all = double(model.weight_bytes().value), others = all - 6.0 * 2 * 512 * 2048 * 2;
  const auto whole = metrics({});
  double before = whole["flash_bytes_per_step"];
  for (const double share : {0.3, 0.2, 0.1, 0.0}) {
    CAPTURE(share);
    const auto m = metrics({"system.resident_share=" + std::to_string(share)});
    const double missing = others - std::floor(share * all);
    // One row of the position table, and of the token table besides the head, is read, which lies in a block.
    const double positions = missing / others * (4096.0 * 512 * 2);
    // The last block of each layer and of the head is read whole.
    if (missing > 0)
      CHECK(m["flash_bytes_per_step"].get<double>() - whole["flash_bytes_per_step"].get<double>() ==
            Approx(missing - positions + 2 * 4096).margin(7 * 4096));
    CHECK(m["neurons_loaded_per_step"] == whole["neurons_loaded_per_step"]);
    CHECK(m["flash_bytes_per_step"].get<double>() >= before);
    before = m["flash_bytes_per_step"];
    const double parts = m["flash_io_s_per_step"].get<double>() + m["compute_s_per_step"].get<double>() +
                         m["memory_management_s_per_step"].get<double>();
    CHECK(parts == Approx(m["tpot_s"].get<double>()).epsilon(1e-6));
  }
  CHECK_THAT(refusal({"system.resident_share=90 %"}),
             Contains("system.resident_share") && Contains("system.memory_share says how many neurons"));
  CHECK_THAT(refusal({"system.resident_share=1 %", "model.path=models/opt-6m"},
                     "system: {kind: llm-in-a-flash}\nsimulation: {data: carried}\n"
                     "workload: {kind: generation, batch: 1, input_tokens: 8, output_tokens: 3}\n"),
             Contains("system.resident_share") && Contains("runs that carry data keep attention"));
}

TEST_CASE("memory that reads need follows the blocks of the drives, at the host as well if data pass through it") {
  const auto bytes_at = [](host::Place home, const std::vector<std::string>& sets) {
    const scenario::Scenario s = load_flash(sets, kFlashTiming).scenario;
    const auto& work = experiment::generation_of(s);
    return experiment::resident_bytes(experiment::needs_at(s, work, home, work.lengths()), home);
  };
  const std::string rows = "model.hidden_size=544", heads = "model.head_dim=68";  // a record of 2,176 B
  const Bytes small = bytes_at(host::Place::drive_blocks(), {rows, heads, "platform.device.nvme.block_size=512 B"});
  const Bytes large = bytes_at(host::Place::drive_blocks(), {rows, heads});
  CHECK(small == Bytes{6 * 2048 * 2560});
  CHECK(large == Bytes{6 * 2048 * 4096});
  CHECK(bytes_at(host::Place::host(), {}) == Bytes{});
  const Bytes buffer{2048 * 4096};  // all records of a layer
  CHECK(bytes_at(host::Place::host(), {"platform.device.nvme.transfer=host"}) == buffer);
  CHECK_THAT(refusal({"platform.device.nvme.transfer=host", "platform.host.memory=4 MiB"}),
             Contains("platform.host.memory") && Contains("buffers of weights"));
}

TEST_CASE("the energy of a step is that of the drive's power over its time, and of what it reads") {
  const auto plain = metrics({}), hungry = metrics({"platform.device.energy.controller=9 W"});
  const auto idle = metrics({"platform.device.energy.controller=0 W"});
  CHECK(hungry["energy_per_step_j"].get<double>() - idle["energy_per_step_j"].get<double>() ==
        Approx(9 * plain["tpot_s"].get<double>()).epsilon(1e-6));
  CHECK(metrics({"system.technique=predictor"})["energy_per_step_j"].get<double>() >
        1.5 * plain["energy_per_step_j"].get<double>());
  CHECK(16 * plain["energy_per_step_j"].get<double>() < plain["energy_j"].get<double>());
}

TEST_CASE("a sampled run states the error of the bytes that it read") {
  const std::vector<std::string> base = {"workload.output_tokens=200", "model.layers=12",
                                         "platform.device.flash.blocks_per_plane=192"};
  CHECK(metrics(base)["flash_bytes_error_estimate"] == 0);
  const double whole = metrics(base)["flash_bytes_per_step"];
  int beyond = 0;
  for (const char* const seed : {"1", "2", "3", "4"}) {
    std::vector<std::string> sampled = base;
    sampled.insert(sampled.end(), {"simulation={sampling: {layers: 5, steps: 8}}", std::string("seed=") + seed});
    const auto m = metrics(sampled);
    const double estimate = m["flash_bytes_error_estimate"];
    CHECK(estimate > 0.001);
    CHECK(estimate < 0.4);
    beyond += std::abs(m["flash_bytes_per_step"].get<double>() / whole - 1) > estimate;
  }
  CHECK(beyond <= 1);
  std::vector<std::string> more = base;
  more.push_back("simulation={sampling: {layers: 10, steps: 40}}");
  CHECK(metrics(more)["flash_bytes_error_estimate"].get<double>() < 0.15);
}

}  // namespace test_flash_memory
