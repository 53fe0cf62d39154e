#include "experiment/sampling/sampling_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "experiment/memory/kv_format.h"
#include "experiment/result.h"

namespace csdsim::experiment {

namespace {

/// How many token pages a sparse method is assumed to read.
enum class TokenPages : std::uint8_t {
  most,     ///< one for every chosen token
  expected  ///< as many as the selection of the run touches
};

/// Share of the full token groups that the selection of the run touches, of the first head.
double touched(const GenerationSetup& setup, const KvFormat& format, const host::SparseBudget& budget,
               std::uint32_t context) {
  engine::SelectionSource* const selection = setup.platform.drive.selection;
  const std::uint32_t n = format.layout.group_tokens, flushed = context - context % n;
  if (selection == nullptr || flushed == 0) return 1;
  const engine::KvHeadView view{.tokens = context,
                                .head_dim = setup.plan.model.head_dim,
                                .tokens_per_page = n,
                                .flushed_tokens = flushed,
                                .format = format.shape.format};
  engine::PageGroups groups;
  selection->tokens({}, view, {.r = budget.components, .k = budget.tokens, .l = budget.local}, groups);
  return double(groups.groups.size()) / (flushed / n);
}

/// Page reads of one KV head for attention over `context` tokens.
double pages_read(const GenerationSetup& setup, const KvFormat& format, std::uint32_t context, TokenPages pages_of) {
  const ftl::KvPageCount pages = format.layout.pages(context);
  const auto token_pages = static_cast<double>(pages.key + pages.value);
  const auto budget = setup.system->traits().method.sparse_budget(setup.plan.model, context);
  if (!budget) return token_pages;
  const double per_window = format.layout.embedding_pages();
  const double scored = static_cast<double>(pages.embedding) * std::min(1.0, budget->components / per_window);
  if (pages_of == TokenPages::expected && budget->tokens < context)
    return scored + token_pages * touched(setup, format, *budget, context);
  return scored + std::min(token_pages, 2.0 * budget->tokens);
}

/// Pages of a resident that a decode step reads, over all its pages. Above 1 where several mini-batches read.
double share_read(const host::Resident& resident, double page, TokenPages pages_of) {
  if (pages_of == TokenPages::most || !resident.chosen) return resident.step_share;
  const host::ChosenRecords chosen = resident.chosen();
  const double records = std::max(1.0, page / double(chosen.record.value));  // in a page
  return chosen.per_step * (1 - std::pow(1 - chosen.share, records));
}

/// Pages of block namespaces that plans read and write if nothing stays in a page cache.
struct BlockWork {
  double prefill = 0;
  double first_step = 0, last_step = 0;  ///< in between it grows evenly

  double of_step(double step, double steps) const {
    return steps > 1 ? first_step + (last_step - first_step) * step / (steps - 1) : first_step;
  }
};

BlockWork block_work(const GenerationSetup& setup, TokenPages pages_of) {
  const host::BatchLengths& workload = setup.plan.workload;
  const auto page = double(setup.platform.drive.geometry.page_size.value);
  Bytes growing, read_only;
  double each_step_bytes = 0;
  for (const host::Resident& resident : setup.system->needs(setup.plan).residents)
    if (resident.home == host::Place::drive_blocks()) {
      (resident.read_only ? read_only : growing) += resident.bytes;
      if (resident.read_only) each_step_bytes += share_read(resident, page, pages_of) * double(resident.bytes.value);
    }
  const double pages = double(growing.value) / page, each_step = each_step_bytes / page;
  const auto longest = double(workload.longest_contexts());
  const double prompts = longest - double(workload.size()) * workload.decode_steps();
  return {.prefill = double(read_only.value) / page + pages * prompts / longest,
          .first_step = each_step + pages * prompts / longest,
          .last_step = each_step + pages};
}

/// Page operations of a run, step by step.
class StepWork {
 public:
  StepWork(const GenerationSetup& setup, TokenPages token_pages)
      : setup_(setup),
        token_pages_(token_pages),
        format_(setup),
        blocks_(block_work(setup, token_pages)),
        steps_(setup.plan.workload.decode_steps()) {
    const double written = format_.in_drives ? heads() * (pages_written(steps_) - pages_written(0)) : 0;
    written_per_step_ = steps_ > 0 ? written / steps_ : 0;
  }

  double prefill() const { return blocks_.prefill + (format_.in_drives ? heads() * pages_written(0) : 0); }
  double of_step(std::uint32_t step) const {
    const double blocks = blocks_.of_step(step, steps_);
    if (!format_.in_drives) return blocks;
    double read = 0;
    for_each_part([&](const auto& tokens) { read += pages_read(setup_, format_, tokens(step + 1), token_pages_); });
    return blocks + heads() * read + written_per_step_;
  }
  /// Work of `steps` steps from `first` on: the work of a step grows almost linearly with the context.
  double of_steps(std::uint32_t first, std::uint32_t steps) const {
    if (steps == 0) return 0;
    return steps * (of_step(first) + 4 * of_step(first + steps / 2) + of_step(first + steps - 1)) / 6;
  }

 private:
  double heads() const { return double(setup_.plan.model.kv_heads) * setup_.plan.model.layers; }
  double pages_written(std::uint32_t step) const {
    double pages = 0;
    for_each_part([&](const auto& tokens) { pages += double(format_.layout.pages(tokens(step)).total()); });
    return pages;
  }
  /// The tokens of each sequence in each drive, as a function of the steps so far.
  template <class Visit>
  void for_each_part(const Visit& visit) const {
    for (const std::uint32_t prompt : setup_.plan.workload.prompts())
      for (std::uint32_t part = 0; part < format_.division.token_parts(); ++part)
        visit([&](std::uint32_t step) { return format_.division.tokens(host::DriveIndex{part}, prompt, step); });
  }

  const GenerationSetup& setup_;
  TokenPages token_pages_;
  KvFormat format_;
  BlockWork blocks_;
  std::uint32_t steps_;
  double written_per_step_ = 0;
};

/// Share of the heads of an attention command that a sample simulates.
double share_of_heads(const GenerationSetup& setup) {
  const std::uint32_t measured = setup.sampling.heads;
  if (measured == 0) return 1;
  const double command =
      double(setup.plan.workload.size()) / setup.plan.mini_batches * setup.plan.model.kv_heads / setup.platform.drives;
  // What HeadSampler simulates around the measured ones.
  const double simulated = measured + 4.0 * setup.platform.drive.engine.jobs_in_flight;
  return 2 * simulated > command ? 1 : simulated / command;
}

/// The setup's sample.
host::SamplingPlan sample_of(const GenerationSetup& setup, const KvFormat& format) {
  return {setup.plan.workload, setup.plan.model.layers, format.grouping, setup.sampling};
}

std::string time_text(double seconds) {
  return seconds < 120 ? fmt::format("some {:.0f} s", seconds) : fmt::format("some {:.0f} min", seconds / 60);
}

/// Page operations per second to be expected before any have been simulated.
double nominal_rate(const GenerationSetup& setup) {
  const bool batches = setup.platform.drive.flash.buffer_limit() == 0 && KvFormat(setup).in_drives;
  return batches ? kNominalRate : kNominalRateOfSinglePages;
}

/// The forecast is the most that a run may take: a page cache may hold files, and a system may choose few tokens.
bool is_upper_bound(const GenerationSetup& setup) {
  return setup.system->needs(setup.plan).files || setup.system->traits().chooses_tokens;
}

/// "about 2.4e+07 page operations: some 8 s"
std::string forecast_text(double page_ops, double rate, bool upper_bound) {
  return fmt::format("{} {:.1e} page operations: {}", upper_bound ? "at most" : "about", page_ops,
                     time_text(page_ops / rate));
}

constexpr double kWorthSaying = 1;  // seconds
constexpr std::string_view kWholeRunText = "the whole run";
constexpr std::string_view kPassesHeadsText = " (its attention passes over most heads)";

/// The simulations of a search, each announced with what it takes and what the search still takes at most.
class Search {
 public:
  Search(const GenerationSetup& setup, const GenerationHooks& hooks)
      : asked_(setup.asked_error.value()), hooks_(hooks) {
    silent_ = hooks;
    silent_.notice = nullptr;
    if (!hooks.notice) return;
    rate_ = nominal_rate(setup);
    upper_bound_ = is_upper_bound(setup);
    GenerationSetup whole = setup;
    whole.sampling.off = true;
    most_ = kMostOfSearch * simulated_work(whole).total();
  }

  /// `ends`: no simulation follows. Operations are told to the hooks of the last simulation only.
  GenerationOutcome run(const GenerationSetup& attempt, std::string_view what, bool ends) {
    if (hooks_.notice) say(simulated_work(attempt).total(), what, ends);
    GenerationHooks hooks = silent_;
    if (!ends && hooks.operation) {
      hooks = {};
      hooks.progress = silent_.progress;
    }
    const WallClock running;
    GenerationOutcome out = run_generation(attempt, hooks);
    seconds_ += running.seconds();
    page_ops_ += double(out.simulated_page_ops);
    if (seconds_ > kWorthSaying && page_ops_ > 0) rate_ = page_ops_ / seconds_;
    return out;
  }

 private:
  void say(double page_ops, std::string_view what, bool ends) const {
    if (ends && (page_ops_ + page_ops) / rate_ < kWorthSaying) return;
    std::string line = fmt::format("simulating {}, {}", what, forecast_text(page_ops, rate_, upper_bound_));
    if (!ends)
      line += fmt::format("; until the error is within {:.2g} %, at most {}", 100 * asked_,
                          time_text(std::max(page_ops, most_ - page_ops_) / rate_));
    hooks_.notice(line);
  }

  double asked_;
  const GenerationHooks& hooks_;
  GenerationHooks silent_;
  double rate_ = 0, most_ = 0;
  bool upper_bound_ = false;
  double seconds_ = 0, page_ops_ = 0;  ///< of the simulations so far
};

/// The fewest further places for an expected error of at most `target`: all are divided in proportion to the standard
/// deviations of the strata (Neyman's allocation). At most twice as many as there are.
host::SampledPlaces further_places(const host::SampledPlaces& now, const host::StepsError& error, double target) {
  // Quantile of Student's t. With more places it is smaller: this is a reserve, because a few places show the
  // deviations badly.
  const double quantile = error.relative / std::sqrt(error.variance());
  const auto deviation = [](double variance, std::uint32_t places) { return std::sqrt(variance * places); };
  const double plain = deviation(error.plain, now.plain), token = deviation(error.token_flush, now.token_flush),
               window = deviation(error.window_flush, now.window_flush);
  const double per_deviation = (plain + token + window) / std::pow(target / quantile, 2);
  const auto enough = [&](std::uint32_t before, double own) {
    return std::clamp(static_cast<std::uint32_t>(std::ceil(own * per_deviation)), before, 3 * before) - before;
  };
  return {enough(now.plain, plain), enough(now.token_flush, token), enough(now.window_flush, window)};
}

/// The next sample: more layers, places or heads where their share of the error is too large. The noise of heads that
/// are passed over is in the residuals of the steps: more places make it smaller, at the same cost as more heads.
host::SamplingSettings refined(host::SamplingSettings s, const host::SampledPlaces& places,
                               const host::SamplingError& error, double asked) {
  if (error.prefill > asked) s.prefill_layers *= 2;
  if (error.decode() <= asked) return s;
  const double of_layers = std::min(error.layers, asked / 2), of_drift = std::min(error.drift, asked / 4);
  if (error.drift > of_drift) s.heads *= 2;
  if (error.layers > of_layers) s.layers = 2 * s.layers - 2;  // twice the layers between the two ends
  const double target = asked - of_layers - of_drift;
  if (error.by_places.relative > target)
    s.further.push_back(further_places(places, error.by_places, target));
  else if (error.layers <= of_layers && error.drift <= of_drift)
    s.heads *= 2;  // their noise is larger than the residuals show, and all else is small enough
  return s;
}

/// True if a sample with the settings `next` may keep what was measured with the settings `before`.
bool goes_on(const host::SamplingSettings& before, const host::SamplingSettings& next) {
  return next.layers == before.layers && next.prefill_layers == before.prefill_layers && next.heads == before.heads;
}

/// Adds the work of the earlier simulations to the outcome of a sample that went on. Statistics of drives are those of
/// the first simulation, which has the prefill.
void add_earlier(GenerationOutcome& out, GenerationOutcome earlier) {
  out.simulated += earlier.simulated;
  out.simulated_page_ops += earlier.simulated_page_ops;
  out.integrity_errors += earlier.integrity_errors;
  out.integrity_messages.insert(out.integrity_messages.begin(), earlier.integrity_messages.begin(),
                                earlier.integrity_messages.end());
  out.dram_peak = std::max(out.dram_peak, earlier.dram_peak);
  out.kv += earlier.kv;
  out.grown_bad_blocks += earlier.grown_bad_blocks;
  out.wear_erases += earlier.wear_erases;
  out.requests_issued += earlier.requests_issued;
  out.requests_completed += earlier.requests_completed;
  for (const auto& [place, bytes] : earlier.memory_peaks)
    out.memory_peaks[place] = std::max(out.memory_peaks[place], bytes);
  out.drive_statistics = std::move(earlier.drive_statistics);
  out.shared_links = std::move(earlier.shared_links);
  out.files = earlier.files;
}

}  // namespace

PlannedWork planned_work(const GenerationSetup& setup) {
  const StepWork work(setup, TokenPages::most);
  return {.prefill = work.prefill(), .decode = work.of_steps(0, setup.plan.workload.decode_steps())};
}

PlannedWork simulated_work(const GenerationSetup& setup) {
  const StepWork work(setup, TokenPages::expected);
  const double layers = setup.plan.model.layers, heads = share_of_heads(setup);
  PlannedWork sample;
  const host::SamplingPlan plan = sample_of(setup, KvFormat(setup));
  for (const host::SampledGroup& group : plan.groups()) {
    if (setup.measured && setup.measured->times.contains(group.first_step)) continue;
    double step_layers = group.layer_steps();
    if (group.after_prefill) {
      sample.prefill = work.prefill() * group.layers / layers;
      step_layers -= group.layers;
    }
    if (group.steps() > 0)
      sample.decode += heads * work.of_steps(group.first_step, group.steps()) / group.steps() * step_layers / layers;
  }
  return sample;
}

void announce(const GenerationSetup& setup, const GenerationHooks& hooks) {
  // Carried runs take the time of their computation. Arrivals and background requests depend on simulated time.
  if (!hooks.notice || setup.data != nullptr || setup.plan.workload.served() || setup.queues_of_others > 0) return;
  const double page_ops = simulated_work(setup).total(), rate = nominal_rate(setup);
  if (page_ops < kWorthSaying * rate) return;
  const bool whole = sample_of(setup, KvFormat(setup)).exact();
  hooks.notice(fmt::format("simulating {}, {}", whole ? kWholeRunText : "the stated sample",
                           forecast_text(page_ops, rate, is_upper_bound(setup))));
}

GenerationOutcome run_to_error(const GenerationSetup& setup, const GenerationHooks& hooks) {
  const double asked = setup.asked_error.value();
  const PlannedWork planned = planned_work(setup);
  const KvFormat format(setup);
  GenerationSetup attempt = setup;
  attempt.asked_error.reset();
  Search search(setup, hooks);
  const auto whole = [&](std::string_view why) {
    attempt.sampling.off = true;
    attempt.why_whole = why;
    return search.run(attempt, kWholeRunText, true);
  };
  if (planned.total() <= kWholeRun) return whole("short enough to be simulated whole");
  if (const std::string why = setup.system->needs(setup.plan).why_all_steps; !why.empty()) return whole(why);
  if (planned.prefill <= kWholePrefill * kWholeRun) attempt.sampling.prefill_layers = setup.plan.model.layers;
  // What is read outside the layers, or differs by layer, does not scale with their number.
  if (!setup.system->features(setup.plan).layers_differ().empty())
    attempt.sampling.layers = attempt.sampling.prefill_layers = setup.plan.model.layers;

  attempt.most_prefill_error = asked;
  std::uint32_t heads = setup.automatic_heads ? kFirstHeads : setup.sampling.heads;
  std::optional<GenerationOutcome> earlier;
  host::SamplingSettings before;
  for (;;) {
    const host::SamplingPlan sample = sample_of(attempt, format);
    const double part = sample.share();
    const bool all_heads = setup.automatic_heads && part * planned.total() <= kAllHeads;
    attempt.sampling.heads = all_heads ? 0 : heads;
    if (part > 0.5) return whole(fmt::format("a sample within {:.2g} % would cost half as much", 100 * asked));
    const bool more = earlier && !earlier->cut && sample.places().total() > 0 && goes_on(before, attempt.sampling);
    attempt.measured = more ? earlier->measured : nullptr;
    const std::string_view sample_text = !earlier ? "a first sample"
                                         : more   ? "more steps of the sample"
                                                  : "a larger sample";
    GenerationOutcome out = search.run(
        attempt, fmt::format("{}{}", sample_text, attempt.sampling.heads == 0 ? "" : kPassesHeadsText), false);
    if (more) add_earlier(out, std::move(*earlier));
    if (!out.cut && out.error.largest() <= asked) {
      attempt.measured = nullptr;
      // A trace is recorded from the final sample only.
      if (hooks.operation) search.run(attempt, "the sample again, for the trace", true);
      return out;
    }
    before = attempt.sampling;
    attempt.sampling = refined(attempt.sampling, sample.places(), out.error, asked);
    heads = std::max(heads, attempt.sampling.heads);
    earlier = std::move(out);
  }
}

}  // namespace csdsim::experiment
