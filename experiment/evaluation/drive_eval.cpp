#include "experiment/evaluation/drive_eval.h"

#include <fmt/format.h>

#include "experiment/generation/generation_run.h"
#include "experiment/generation/generation_setup.h"
#include "experiment/memory/kv_format.h"
#include "host_runtime/core/carried/decoder_data.h"

namespace csdsim::experiment {

using host::TokenId;

DriveForcing force_in_drive(const scenario::Scenario& scenario, const host::Decoder& decoder,
                            const std::vector<std::span<const TokenId>>& windows, std::uint32_t prefill) {
  DriveForcing result;
  result.predictions.resize(windows.size());
  std::vector<std::vector<TokenId>> prompts;
  for (const auto& window : windows) prompts.emplace_back(window.begin(), window.begin() + prefill);
  GenerationSetup setup = generation_setup(scenario, std::vector<std::uint32_t>(windows.size(), prefill));
  // Use one batch, as on the host: with some backends the rows of a prefill depend on the batch.
  setup.plan.mini_batches = 1;
  setup.plan.gpus = 1;
  host::DecoderData data(decoder, std::move(prompts), setup.plan.workload.output_tokens, 1, {}, kv_division(setup));
  data.set_kv_format(setup.system->traits().kv_format);
  // The prefill predicts new token 0, so its prediction does not count.
  data.set_chooser([&](std::uint32_t window, std::size_t index, std::span<const float> logits) {
    const TokenId known = windows[window][prefill + index];
    if (index > 0) result.predictions[window].push_back(host::prediction(logits, known));
    return known;
  });
  setup.data = &data;
  const GenerationOutcome outcome = run_generation(setup);
  result.page_ops = outcome.simulated_page_ops;
  if (outcome.integrity_errors > 0) {
    result.failure = fmt::format("{} pages read differ from the pages written; the first: {}", outcome.integrity_errors,
                                 outcome.integrity_messages.front());
  }
  if (outcome.requests_issued != outcome.requests_completed)
    result.failure =
        fmt::format("{} commands were issued and {} completed", outcome.requests_issued, outcome.requests_completed);
  return result;
}

}  // namespace csdsim::experiment
