#include "host_runtime/core/planner/systems/hillinfer/step_times.h"

#include <algorithm>
#include <array>

namespace csdsim::host {

namespace {

double seconds(double bytes, Bandwidth rate) { return bytes / static_cast<double>(rate.bytes_per_second); }

/// Tokens that are hot again and still in the log: about as many as two steps choose from the log. Source: simulated
/// runs of OPT-6.7B (docs/hillinfer.md).
constexpr double kStepsInVain = 2;

/// Chosen tokens of a sequence by pool. Those in the drives are in two parts: older tokens and newer ones.
struct Picks {
  double hot = 0;
  std::array<DriveFetch::Picks, 2> cold = {};
};

Picks picks(const DividedStep& step, double hot) {
  const double tokens = static_cast<double>(step.tokens), chosen = static_cast<double>(step.chosen);
  // As many newest tokens as are chosen, and those before them.
  const double old_tokens = tokens - chosen, old_chosen = (1 - step.recent) * chosen;
  Picks of;
  of.cold[0].tokens = std::min(tokens - hot, old_tokens);
  of.cold[0].chosen = old_tokens > 0 ? old_chosen * of.cold[0].tokens / old_tokens : 0;
  of.cold[1].tokens = std::max(0.0, chosen - hot);
  of.cold[1].chosen = step.recent * of.cold[1].tokens;
  of.hot = chosen - of.cold[0].chosen - of.cold[1].chosen;
  if (step.important_hot) of.hot = step.important_hot->value() * hot;
  if (step.important_cold) of.cold = {{{tokens - hot, step.important_cold->value() * (tokens - hot)}, {}}};
  return of;
}

}  // namespace

double StepTimes::total() const {
  const double scores = std::max(host_scores, drive_scores);
  const double after_storing = std::max(host_scores, drive_scores + storing.seconds);
  return scores + storing.share * (after_storing - scores) + choice + std::max(gather + copy, fetch) + staged;
}

StepTimes step_times(const DividedStep& step, std::uint64_t hot) {
  const PlatformRates& rates = step.rates;
  const double n = step.sequences, kv = static_cast<double>(step.model.kv_bytes_per_token_and_layer().value);
  const double hot_tokens = n * static_cast<double>(hot), cold_tokens = n * static_cast<double>(step.tokens - hot);
  const Picks chosen = picks(step, static_cast<double>(hot));
  StepTimes times;
  // A score reads K, half of the bytes, and takes 2 d operations per query head.
  const double flops = 2.0 * step.model.heads * step.model.head_dim * hot_tokens;
  times.host_scores = std::max(seconds(kv / 2 * hot_tokens, rates.host_memory_bandwidth),
                               flops / static_cast<double>(rates.host_attention.flop_per_second));
  // A merge reads a score of 4 B and writes 8 B, with the position; the choice reads all of these.
  times.choice = seconds(12 * cold_tokens + 8 * (hot_tokens + cold_tokens), rates.host_memory_bandwidth);
  times.gather = seconds(2 * kv * n * chosen.hot, rates.host_memory_bandwidth);
  if (chosen.hot > 0) times.copy = seconds(kv * n * chosen.hot, rates.host_to_gpu) + rates.link_latency.seconds();

  DriveFetch fetch{.sequences = step.sequences, .parts = chosen.cold};
  double fetched = 0;
  for (DriveFetch::Picks& part : fetch.parts) {
    fetched += n * part.chosen;
    part.tokens /= rates.drives;
    part.chosen /= rates.drives;
  }
  const double of_drive = static_cast<double>(step.tokens - hot) / rates.drives;
  // Host memory is full: for each new token, one token moves to the drives.
  fetch.grown = std::min(of_drive, static_cast<double>(step.grown) / rates.drives);
  const DriveAttention in_drive{step.sequences, of_drive, fetch.grown};
  times.drive_scores = rates.drive_scoring(step.model, in_drive, step.precision, step.chunk);
  // The log is longer than the cold tokens: a token that moves back to host memory stays in it.
  const double in_vain = kStepsInVain * (fetch.parts[0].chosen + fetch.parts[1].chosen);
  times.storing = rates.drive_storing(step.model, {step.sequences, of_drive + in_vain, fetch.grown + in_vain});
  times.fetch = rates.drive_fetching(step.model, fetch);
  if (rates.through_host && fetched > 0)
    times.staged = seconds(kv * fetched, rates.host_to_gpu) + rates.link_latency.seconds();
  return times;
}

std::uint64_t fastest_hot_tokens(const DividedStep& step, std::uint64_t least, std::uint64_t most) {
  std::uint64_t best = least;
  double best_time = step_times(step, least).total();
  const auto search = [&](std::uint64_t first, std::uint64_t last, std::uint64_t stride) {
    for (std::uint64_t hot = first;; hot = std::min(last, hot + stride)) {
      const double time = step_times(step, hot).total();
      // Of equal ones the larger: it leaves the drive less to do.
      if (time <= best_time) {
        best_time = time;
        best = hot;
      }
      if (hot == last) return;
    }
  };
  // The time has steps (whole pages, commands, an empty drive), so that a grid is safer than bisection.
  constexpr std::uint64_t kGrid = 128;
  std::uint64_t stride = std::max<std::uint64_t>(1, (most - least) / kGrid);
  search(least, most, stride);
  while (stride > 1) {
    const std::uint64_t around = stride, centre = best;
    stride = std::max<std::uint64_t>(1, stride / 8);
    search(centre - std::min(around, centre - least), std::min(most, centre + around), stride);
  }
  return best;
}

}  // namespace csdsim::host
