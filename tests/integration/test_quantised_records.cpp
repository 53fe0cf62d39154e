// Records with 8 and 4 bits per element: tokens of the same values in memory, and bytes of closed forms.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tests/integration/flash_run.h"

namespace test_quantised_records {

using namespace csdsim;
using namespace csdsim::test;
using Catch::Matchers::Contains;

namespace {

nlohmann::ordered_json carried(const std::string& model, const std::vector<std::string>& sets) {
  const std::string text = "model: {path: " + model + "}\nsystem: {kind: llm-in-a-flash, memory_share: 1}\n" +
                           "workload: {kind: generation, batch: 2, input_tokens: 12, output_tokens: 10}\n"
                           "simulation: {data: carried, compare: [host, gpu-only]}\n";
  const scenario::RunResult result = experiment::run_scenario(load_flash(sets, text).scenario);
  CHECK(result.failure.empty());
  CHECK(result.document["stats"]["wrong_records"] == 0);
  for (const char* const with : {"host", "gpu-only"}) {
    CHECK(result.document["comparison"][with]["tokens_equal"] == 20);
    CHECK(result.document["comparison"][with]["attention_outputs_identical"] == true);
  }
  return result.document;
}

std::string digest(const nlohmann::ordered_json& document) { return document["stats"]["attention_digest"]; }

}  // namespace

TEST_CASE("quantised records give the tokens of the same values in memory") {
  const std::string whole = digest(carried("models/opt-6m", {}));
  const std::string eight = digest(carried("models/opt-6m", {"system.weight_bits=8"}));
  const std::string four = digest(carried("models/opt-6m", {"system.weight_bits=4", "system.layout=packed"}));
  CHECK(eight != whole);
  CHECK(four != eight);
  CHECK(digest(carried("models/opt-6m", {"system.weight_bits=4", "system.weight_group=40"})) != four);
  // All networks are read, of a gated model with its three matrices.
  carried("models/llama-gqa-6m", {"system={kind: llm-in-a-flash, technique: hybrid, weight_bits: 4}"});
}

TEST_CASE("the bytes of a step shrink with the bits") {
  // 512 elements per row, in packed records of two rows that fill whole blocks with 16 and with 8 bits.
  const auto bytes = [](const std::vector<std::string>& more) {
    std::vector<std::string> sets{"system={kind: llm-in-a-flash, technique: hybrid, resident_share: 0}"};
    sets.insert(sets.end(), more.begin(), more.end());
    return metrics(sets)["flash_bytes_per_step"].get<double>();
  };
  const double networks = 6.0 * 2 * 512 * 2048 * 2, block = 4096, parts = 6 * 2 + 1;
  const double sixteen = bytes({});
  for (const auto& [bits, group] : {std::pair{8, 64}, {4, 64}, {4, 32}}) {
    const double saved =
        sixteen - bytes({"system.weight_bits=" + std::to_string(bits), "system.weight_group=" + std::to_string(group)});
    const double row = 512.0 * bits / 8 + 512.0 / group * 2;
    CHECK(saved == Approx(networks * (1 - row / 1024)).margin(parts * block));
  }
  // Reads of single records shrink if they lie packed, and memory holds as many neurons in fewer bytes.
  const auto tpot = [](const std::string& bits) {
    return metrics({"system.weight_bits=" + bits, "platform.device.nvme.block_size=512 B", "system.layout=packed"});
  };
  const auto four = tpot("4"), plain = tpot("16");
  CHECK(four["neurons_loaded_per_step"] == plain["neurons_loaded_per_step"]);
  CHECK(four["flash_bytes_per_step"].get<double>() < plain["flash_bytes_per_step"].get<double>() * 0.62);
  CHECK(four["memory_management_s_per_step"].get<double>() < plain["memory_management_s_per_step"].get<double>());
  CHECK(four["compute_s_per_step"].get<double>() < plain["compute_s_per_step"].get<double>());
}

TEST_CASE("mistakes of quantised records are located") {
  CHECK_THAT(refusal({"system.weight_bits=5"}), Contains("system.weight_bits") && Contains("16, 8, 4"));
  CHECK_THAT(refusal({"system.weight_group=0", "system.weight_bits=4"}), Contains("system.weight_group"));
  CHECK_THAT(refusal({"system.weight_group=32"}),
             Contains("system.weight_group is not used") && Contains("16 bits have no scale"));
}

}  // namespace test_quantised_records
