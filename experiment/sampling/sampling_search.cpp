#include "experiment/sampling/sampling_search.h"

#include <fmt/format.h>

#include <algorithm>

#include "experiment/memory/kv_format.h"

namespace csdsim::experiment {

namespace {

/// Page reads of one KV head for attention over `context` tokens.
double pages_read(const GenerationSetup& setup, const KvFormat& format, std::uint32_t context) {
  const ftl::KvPageCount pages = format.layout.pages(context);
  const auto token_pages = static_cast<double>(pages.key + pages.value);
  const auto budget = setup.system->method().sparse_budget(setup.plan.model, context);
  if (!budget) return token_pages;
  const double per_window = format.layout.embedding_pages();
  const double scored = static_cast<double>(pages.embedding) * std::min(1.0, budget->components / per_window);
  return scored + std::min(token_pages, 2.0 * budget->tokens);
}

/// Pages of block namespaces that plans read and write if nothing stays in a page cache.
PlannedWork block_work(const GenerationSetup& setup) {
  PlannedWork work;
  const host::BatchLengths& workload = setup.plan.workload;
  Bytes growing, read_only;
  double each_step_bytes = 0;
  for (const host::Resident& resident : setup.system->needs(setup.plan).residents)
    if (resident.home == host::Place::drive_blocks()) {
      (resident.read_only ? read_only : growing) += resident.bytes;
      if (resident.read_only) each_step_bytes += resident.step_share * double(resident.bytes.value);
    }
  const auto page = double(setup.platform.drive.geometry.page_size.value);
  const double pages = double(growing.value) / page, each_step = each_step_bytes / page;
  const auto longest = double(workload.longest_contexts());
  const std::uint32_t steps = workload.decode_steps();
  const double prompts = longest - double(workload.size()) * steps;
  work.prefill = double(read_only.value) / page + pages * prompts / longest;
  work.decode = steps * (each_step + pages * (prompts + longest) / 2 / longest);
  return work;
}

/// Share of the whole run that the setup's sample simulates.
double share(const GenerationSetup& setup, const KvFormat& format) {
  return host::SamplingPlan(setup.plan.workload, setup.plan.model.layers, format.grouping, setup.sampling).share();
}

void forecast(const GenerationSetup& setup, const GenerationHooks& hooks, double page_ops, std::string_view what) {
  constexpr double kWorthSaying = 10;  // seconds
  const bool single = setup.platform.drive.flash.buffer_limit() > 0;
  const double seconds = page_ops / (single ? kNominalRateOfSinglePages : kNominalRate);
  if (!hooks.notice || seconds < kWorthSaying) return;
  hooks.notice(fmt::format("simulating {}, about {:.1e} page operations: some {}", what, page_ops,
                           seconds < 120 ? fmt::format("{:.0f} s", seconds) : fmt::format("{:.0f} min", seconds / 60)));
}

/// The next sample: doubles the layers, places or heads whose share of the error is too large.
host::SamplingSettings refined(host::SamplingSettings s, const host::SamplingError& error, double asked) {
  if (error.prefill > asked) s.prefill_layers *= 2;
  if (error.decode() <= asked) return s;
  if (error.heads > asked / 4) s.heads *= 2;
  const double others = asked - std::min(error.heads, asked / 4);
  if (error.layers > others / 2) s.layers = 2 * s.layers - 2;  // twice the layers between the two ends
  if (error.steps > others / 2) s.steps *= 2;
  return s;
}

}  // namespace

PlannedWork planned_work(const GenerationSetup& setup) {
  const KvFormat format(setup);
  const auto heads = double(setup.plan.model.kv_heads) * setup.plan.model.layers;
  const std::uint32_t steps = setup.plan.workload.decode_steps();
  PlannedWork work = block_work(setup);
  if (!format.in_drives) return work;
  for (const std::uint32_t prompt : setup.plan.workload.prompts())
    for (std::uint32_t part = 0; part < format.division.token_parts(); ++part) {
      const auto tokens = [&](std::uint32_t step) {
        return format.division.tokens(host::DriveIndex{part}, prompt, step);
      };
      const auto written = [&](std::uint32_t step) { return double(format.layout.pages(tokens(step)).total()); };
      work.prefill += heads * written(0);
      if (steps == 0) continue;
      // Work per step grows almost linearly with the context.
      const auto read = [&](std::uint32_t step) { return pages_read(setup, format, tokens(step + 1)); };
      const double mean_read = (read(0) + 4 * read(steps / 2) + read(steps - 1)) / 6;
      work.decode += heads * (steps * mean_read + written(steps) - written(0));
    }
  return work;
}

GenerationOutcome run_to_error(const GenerationSetup& setup, const GenerationHooks& hooks) {
  const double asked = setup.asked_error.value();
  const PlannedWork planned = planned_work(setup);
  const KvFormat format(setup);
  GenerationSetup attempt = setup;
  attempt.asked_error.reset();
  const auto whole = [&](std::string_view why) {
    attempt.sampling.off = true;
    attempt.why_whole = why;
    forecast(setup, hooks, planned.total(), "the whole run");
    return run_generation(attempt, hooks);
  };
  if (planned.total() <= kWholeRun) return whole("short enough to be simulated whole");
  if (planned.prefill <= kWholePrefill) attempt.sampling.prefill_layers = setup.plan.model.layers;
  // What is read outside the layers, or differs by layer, does not scale with their number.
  if (!setup.system->features(setup.plan).layers_differ().empty())
    attempt.sampling.layers = attempt.sampling.prefill_layers = setup.plan.model.layers;

  attempt.most_prefill_error = asked;
  GenerationHooks progress_only;
  progress_only.progress = hooks.progress;
  std::uint32_t heads = setup.automatic_heads ? kFirstHeads : setup.sampling.heads;
  for (;;) {
    const double part = share(attempt, format);
    const bool all_heads = setup.automatic_heads && part * planned.total() <= kAllHeads;
    attempt.sampling.heads = all_heads ? 0 : heads;
    if (part > 0.5) return whole(fmt::format("a sample within {:.2g} % would cost half as much", 100 * asked));
    forecast(setup, hooks, part * planned.total(),
             attempt.sampling.heads == 0 ? "a sample" : "a sample (its attention passes over most heads)");
    // A trace is recorded from the final sample only.
    GenerationOutcome out = run_generation(attempt, hooks.operation ? progress_only : hooks);
    if (!out.cut && out.error.largest() <= asked) return hooks.operation ? run_generation(attempt, hooks) : out;
    attempt.sampling = refined(attempt.sampling, out.error, asked);
    heads = std::max(heads, attempt.sampling.heads);
  }
}

}  // namespace csdsim::experiment
