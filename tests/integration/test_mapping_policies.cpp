// The places of the pages of the KV cache change times, never answers.
#include <catch2/catch.hpp>

#include <algorithm>
#include <string>
#include <vector>

#include "ftl/policies/registry.h"
#include "tests/integration/small_model.h"

namespace test_mapping_policies {

using namespace csdsim;
using namespace csdsim::test;

namespace {

csd_model::DriveConfig drive_with(const std::string& policy) {
  csd_model::DriveConfig drive = small_drive();
  drive.mapping = [policy](const FlashGeometry& geometry) {
    return ftl::PolicyRegistry::with_builtin().make(policy, {geometry, {}});
  };
  return drive;
}

}  // namespace

TEST_CASE("every mapping policy, tail policy and kind of window gives the tokens of attention on the host") {
  // Groups of 32 tokens (16 where K and V are paired); windows from 32 tokens on that grow at 256.
  const Prompts prompts{text_prompt(1), text_prompt(95, 50), text_prompt(400, 500)};
  const ftl::PolicyRegistry policies = ftl::PolicyRegistry::with_builtin();
  for (const char* system : {"instinfer-dense", "instinfer-sparf"}) {
    const auto setup = [&](const csd_model::DriveConfig& drive) { return small_setup(drive, prompts, 40, system); };
    const DecodeRun host = decode_on_host(setup(small_drive()), prompts, {});
    std::vector<double> times;
    for (const ftl::PolicyEntry& policy : policies.entries()) {
      for (const auto tail : {ftl::TailPolicy::token_index, ftl::TailPolicy::dram, ftl::TailPolicy::partial_program}) {
        for (const bool adaptive : {false, true}) {
          CAPTURE(system, policy.name, static_cast<int>(tail), adaptive);
          csd_model::DriveConfig drive = drive_with(policy.name);
          drive.kv.tail = tail;
          drive.kv.tail_rewrites = 3;
          drive.kv.layout = {.embedding_group = adaptive ? 64u : 0u, .adaptive = adaptive};
          const DecodeRun run = decode_in_drive(setup(drive), prompts, {});
          CHECK(run.tokens == host.tokens);
          CHECK(run.attention_digest == host.attention_digest);
          CHECK(run.outcome.integrity_errors == 0);
          times.push_back(run.outcome.times.decode_s);
        }
      }
    }
    std::ranges::sort(times);
    CHECK(std::unique(times.begin(), times.end()) - times.begin() > 5);
  }
}

}  // namespace test_mapping_policies
