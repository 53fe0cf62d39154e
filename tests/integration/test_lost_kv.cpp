// Runs whose drive cannot read all of K and V back: nothing wrong is returned as right, and what was lost is counted.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "experiment/experiments.h"
#include "experiment/runner.h"
#include "tests/integration/small_platform.h"

namespace test_lost_kv {

using namespace csdsim;
using nlohmann::ordered_json;

namespace {

ordered_json run(const std::string& rest, const std::vector<std::string>& sets) {
  const auto loaded =
      experiment::load_scenario_text(test::small_platform("lost") + rest, "lost.yaml", CSDSIM_SOURCE_DIR, sets);
  const scenario::RunResult result = experiment::run_scenario(loaded.base.scenario);
  CHECK(result.failure.empty());
  return result.document;
}

const std::string kCarried =
    "model: {path: models/opt-6m}\n"
    "workload: {kind: generation, batch: 2, input_tokens: 100, output_tokens: 24}\n"
    "simulation: {data: carried}\n";
const std::string kTiming =
    "model: {layers: 3, heads: 8, kv_heads: 4, head_dim: 64, hidden_size: 512, ffn_size: 1024, vocab_size: 1000, "
    "max_positions: 4096}\n"
    "workload: {kind: generation, batch: 2, input_tokens: 300, output_tokens: 8}\n";

std::string errors(double base, std::uint32_t retries = 0) {
  return "platform.device.flash.reliability={base: " + std::to_string(base) +
         ", disturb: 0, max_retries: " + std::to_string(retries) + "}";
}

std::uint64_t count(const ordered_json& document, const char* name) {
  return document["metrics"][name].get<std::uint64_t>();
}

}  // namespace

TEST_CASE("with a rising bit error rate a run gives the tokens of right K and V, or ends with the address of a page") {
  for (const std::string system : {"system.kind=instinfer-dense", "system.kind=instinfer-sparf"}) {
    const ordered_json right = run(kCarried, {system});
    CHECK_FALSE(right["metrics"].contains("kv_read_retries"));
    int stopped = 0, passed = 0, retried = 0;
    for (const double base : {0.003, 0.0045, 0.005, 0.0055, 0.006, 0.0065, 0.5})
      for (const std::uint32_t retries : {0u, 8u}) {
        CAPTURE(system, base, retries);
        try {
          const ordered_json document = run(kCarried, {system, errors(base, retries)});
          ++passed;
          retried += count(document, "kv_read_retries") > 0 ? 1 : 0;
          CHECK(count(document, "kv_uncorrectable_reads") == 0);
          CHECK(count(document, "kv_rows_dropped") == 0);
          CHECK(document["tokens"] == right["tokens"]);
        } catch (const UserError& e) {
          ++stopped;
          CHECK_THAT(e.what(), Catch::Contains("drive 0: ") && Catch::Contains("unrecovered_read_error: ") &&
                                   Catch::Contains("of sequence ") && Catch::Contains("cannot be read back"));
        }
      }
    CHECK(stopped > 2);
    CHECK(passed > 2);
    CHECK(retried > 1);
  }
}

TEST_CASE("dropped tokens are counted, and change what is generated as far as there are any") {
  for (const std::string system : {"system.kind=instinfer-dense", "system.kind=instinfer-sparf"}) {
    const ordered_json right = run(kCarried, {system});
    std::uint64_t before = 0;
    for (const double base : {0.001, 0.005, 0.0055, 0.006, 0.5}) {
      CAPTURE(system, base);
      const ordered_json document = run(kCarried, {system, errors(base), "workload.lost_kv=drop"});
      const std::uint64_t rows = count(document, "kv_rows_dropped");
      CHECK(rows >= before);
      before = rows;
      CHECK((rows == 0) == (count(document, "kv_uncorrectable_reads") == 0));
      if (rows == 0) CHECK(document["tokens"] == right["tokens"]);
      if (base == 0.5) CHECK(document["tokens"] != right["tokens"]);
    }
    CHECK(before > 0);
  }
}

TEST_CASE("the comparison with the host says what dropped tokens cost, and is no failure") {
  const ordered_json document =
      run(kCarried, {"system.kind=instinfer-dense", "simulation.compare=[host]", errors(0.5), "workload.lost_kv=drop"});
  CHECK(count(document, "kv_rows_dropped") > 0);
  const auto& host = document["comparison"]["host"];
  CHECK(host["tokens_equal"].get<int>() < host["tokens_compared"].get<int>());
}

TEST_CASE("timing runs lose pages, too") {
  for (const std::string system : {"system.kind=instinfer-dense", "system.kind=instinfer-sparf"}) {
    CHECK_THROWS_WITH(run(kTiming, {system, errors(0.5)}), Catch::Contains("unrecovered_read_error: "));
    const ordered_json dropped = run(kTiming, {system, errors(0.5), "workload.lost_kv=drop"});
    CHECK(count(dropped, "kv_rows_dropped") > 0);
    CHECK(dropped["stats"]["simulated"].get<std::string>().find("errors of the flash depend on all") !=
          std::string::npos);
  }
  // Every full group of every head is lost at the first attend: 9 groups of 32 tokens, 4 heads, 3 layers, 2 sequences.
  const ordered_json all = run(kTiming, {"system.kind=instinfer-dense", errors(0.5), "workload.lost_kv=drop"});
  CHECK(count(all, "kv_rows_dropped") == 9 * 32 * 4 * 3 * 2);
}

TEST_CASE("tokens that are computed again give the tokens of an undisturbed run") {
  for (const std::string system : {"system.kind=instinfer-dense", "system.kind=instinfer-sparf"}) {
    const ordered_json right = run(kCarried, {system, "simulation.compare=[host]"});
    std::uint64_t before = 0;
    for (const double base : {0.001, 0.0055, 0.006, 0.0065}) {
      CAPTURE(system, base);
      const ordered_json document =
          run(kCarried, {system, errors(base), "workload.lost_kv=recompute", "simulation.compare=[host]"});
      CHECK(document["tokens"] == right["tokens"]);
      const ordered_json& host = document["comparison"]["host"];
      CHECK(host["tokens_equal"] == host["tokens_compared"]);
      CHECK(host["attention_outputs_identical"] == true);
      const std::uint64_t rows = count(document, "kv_rows_recomputed");
      CHECK(rows >= before);
      before = rows;
      // K and V of a row, 64 elements of 2 bytes each.
      CHECK(count(document, "kv_bytes_rewritten") == rows * 2 * 2 * 64);
      CHECK((rows == 0) == (count(document, "kv_pages_rewritten") == 0));
      CHECK((rows == 0) == (count(document, "kv_uncorrectable_reads") == 0));
      CHECK((rows == 0) == (document["metrics"]["kv_recompute_s"] == 0.0));
      CHECK(count(document, "kv_rows_dropped") == 0);
    }
    CHECK(before > 0);
  }
}

}  // namespace test_lost_kv
