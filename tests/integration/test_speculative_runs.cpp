// Scenarios in which a decode step verifies a draft.
#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "tests/integration/flash_run.h"

namespace test_speculative_runs {

using namespace csdsim;
using namespace csdsim::test;
using Catch::Matchers::Contains;

namespace {

std::string drafts(int tokens, const std::string& acceptance, const std::string& more = "") {
  return "workload.speculation={draft_tokens: " + std::to_string(tokens) + ", acceptance: " + acceptance + more + "}";
}

}  // namespace

TEST_CASE("a draft of accepted tokens divides the steps; a rejected one only costs") {
  const std::vector<std::string> base = {"system.memory_share=1"};
  const auto plain = metrics(base);
  const auto with = [&](const std::string& speculation) { return metrics({base.front(), speculation}); };
  const auto all = with(drafts(3, "1")), none = with(drafts(3, "0"));
  CHECK(all["tokens_per_step"] == 4);
  CHECK_FALSE(plain.contains("tokens_per_step"));
  CHECK(plain["tpot_s"] == plain["decode_step_s"]);
  CHECK(all["decode_step_s"].get<double>() == Approx(4 * all["tpot_s"].get<double>()));
  CHECK(all["tpot_s"].get<double>() < plain["tpot_s"].get<double>());
  CHECK(none["tpot_s"].get<double>() > plain["tpot_s"].get<double>());
  // Tokens of a step share neurons: four accepted ones load less than four steps.
  CHECK(all["neurons_loaded_per_step"].get<double>() > plain["neurons_loaded_per_step"].get<double>());
  CHECK(all["neurons_loaded_per_step"].get<double>() < 4 * plain["neurons_loaded_per_step"].get<double>());
  for (const auto& m : {all, none}) {
    const double parts = m["flash_io_s_per_step"].get<double>() + m["compute_s_per_step"].get<double>() +
                         m["memory_management_s_per_step"].get<double>();
    CHECK(parts == Approx(m["decode_step_s"].get<double>()).epsilon(1e-6));
  }
  const auto slow = with(drafts(3, "1", ", draft_time: 2 ms"));
  CHECK(slow["decode_step_s"].get<double>() - all["decode_step_s"].get<double>() == Approx(3 * 2e-3).epsilon(1e-6));
}

TEST_CASE("a sampled run with drafts agrees with the whole one") {
  const std::vector<std::string> base = {drafts(4, "1/2"), "workload.output_tokens=300", "model.layers=12",
                                         "system.memory_share=1", "platform.device.flash.blocks_per_plane=192"};
  std::vector<std::string> sampled = base;
  sampled.push_back("simulation={sampling: {layers: 6, steps: 8}}");
  const auto whole = metrics(base), part = metrics(sampled);
  CHECK(whole["tokens_per_step"].get<double>() == Approx(1 + 0.5 + 0.25 + 0.125 + 0.0625).epsilon(0.01));
  // Steps accept different numbers of tokens, so that few of them tell less than without drafts; the run says so.
  const double error = part["flash_bytes_error_estimate"];
  CHECK(error < 0.3);
  for (const char* const of : {"tpot_s", "flash_bytes_per_step", "flash_io_s_per_step"})
    CHECK(part[of].get<double>() == Approx(whole[of].get<double>()).epsilon(error));
  CHECK(part["page_ops"].get<double>() < whole["page_ops"].get<double>() / 2);
}

TEST_CASE("drafts that nobody can verify are refused") {
  CHECK_THAT(refusal({drafts(4, "1/2"), "system={kind: gpu-only}"}),
             Contains("workload.speculation: gpu-only generates one token per step"));
  CHECK_THAT(refusal({drafts(4, "1/2"), "model.path=models/opt-6m"},
                     "system: {kind: llm-in-a-flash}\nsimulation: {data: carried}\n"
                     "workload: {kind: generation, batch: 1, input_tokens: 8, output_tokens: 3}\n"),
             Contains("workload.speculation: runs that carry data have no draft model"));
  CHECK_THAT(refusal({drafts(0, "1/2")}), Contains("workload.speculation.draft_tokens"));
  CHECK_THAT(refusal({drafts(4, "1.5")}), Contains("workload.speculation.acceptance"));
}

}  // namespace test_speculative_runs
