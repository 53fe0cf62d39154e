// Carried runs in drives against the same tokens on the host.
#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "tests/integration/small_model.h"

namespace csdsim::test {

/// A small model with eight query heads and two KV heads.
inline const SmallModel& grouped() {
  static const SmallModel model("models/llama-gqa-6m");
  return model;
}

/// A carried run whose tokens are forced, or the likeliest ones; keeps the logits of each token.
struct ForcedRun {
  std::map<std::pair<std::uint32_t, std::size_t>, std::vector<float>> logits;
  Prompts tokens;
  std::uint64_t digest = 0;

  /// In the drives of the setup, or with attention on the host, part by part.
  ForcedRun(experiment::GenerationSetup setup, const Prompts& prompts, const SmallModel& model, bool in_drives,
            const Prompts* forced = nullptr) {
    host::DecoderData data(*model.decoder, prompts, setup.plan.workload.output_tokens, setup.plan.mini_batches, {},
                           experiment::kv_division(setup));
    data.set_chooser([&](std::uint32_t s, std::size_t index, std::span<const float> of_token) {
      logits[{s, index}].assign(of_token.begin(), of_token.end());
      return forced ? (*forced)[s][index] : likeliest(of_token);
    });
    if (in_drives) {
      setup.data = &data;
      const experiment::GenerationOutcome out = experiment::run_generation(setup);
      CHECK(out.integrity_errors == 0);
      CHECK(out.requests_issued == out.requests_completed);
    } else {
      setup.plan.drives = experiment::kv_division(setup).token_parts();
      setup.plan.span = {.prefill = true, .first_step = 0, .decode_steps = setup.plan.workload.output_tokens - 1};
      host::run_on_host(*setup.system->plan(setup.plan), model.checkpoint.config,
                        static_cast<std::uint32_t>(prompts.size()), data);
    }
    tokens = data.generated();
    digest = data.attention_digest();
  }

  static host::TokenId likeliest(std::span<const float> of_token) {
    return host::TokenId{static_cast<std::uint32_t>(std::ranges::max_element(of_token) - of_token.begin())};
  }
};

/// Rounding moves logits by 0.3 % of the largest one; a token that is lost or taken twice by more than 1 %.
inline void check_close(const ForcedRun& run, const ForcedRun& oracle) {
  REQUIRE(run.logits.size() == oracle.logits.size());
  double worst = 0;
  for (const auto& [at, expected] : oracle.logits) {
    const std::vector<float>& logits = run.logits.at(at);
    const host::TokenId best = ForcedRun::likeliest(expected);
    CHECK(ForcedRun::likeliest(logits) == best);
    for (std::size_t i = 0; i < expected.size(); ++i)
      worst = std::max(worst, double{std::abs(logits[i] - expected[i])} / double{expected[best.value]});
  }
  CAPTURE(worst);
  CHECK(worst < 0.01);
}

}  // namespace csdsim::test
