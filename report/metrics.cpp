#include "report/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <deque>
#include <iterator>

#include "base/error.h"
#include "base/text.h"
#include "ftl/core/write_work.h"

namespace csdsim::report {
namespace {

constexpr std::string_view kGeneration = "generation", kBlocks = "block_io trace", kPolicies = "ftl_policies",
                           kRuns = "generation block_io trace", kSimulations = "generation block_io trace ftl_policies",
                           kEval = "eval";

constexpr Metric kMetrics[] = {
    // Speed of a generation.
    {"tokens_per_s", "tokens/s", kGeneration,
     "Generated tokens of all sequences, first tokens included, over the time of the run.",
     "scenario.workload.batch * scenario.workload.output_tokens / (ttft_s + breakdown.decode.seconds)"},
    {"ttft_s", "s", kGeneration,
     "Time until every sequence has its first token. Requests that arrive: mean time from the arrival to the first "
     "token.",
     "breakdown.prefill.seconds"},
    {"decode_tokens_per_s", "tokens/s", kGeneration,
     "Tokens after the first of each sequence, over the time of all decode steps. Absent if requests arrive.",
     "scenario.workload.batch * (scenario.workload.output_tokens - 1) / breakdown.decode.seconds"},
    {"tpot_s", "s", kGeneration,
     "Time per output token: decode time over the further tokens of a sequence. Requests that arrive: the mean of the "
     "requests.",
     "breakdown.decode.seconds / (scenario.workload.output_tokens - 1)"},
    {"decode_step_s", "s", kGeneration, "Mean time of a decode step; with drafts a step makes several tokens.",
     "breakdown.decode.seconds / (scenario.workload.output_tokens - 1)"},
    {"kv_access_share", "1", kGeneration,
     "Share of the decode time that the critical path spends in flash and in transfers of K and V.",
     "(breakdown.decode.critical_path_s.flash + breakdown.decode.critical_path_s.kv_link) / breakdown.decode.seconds"},
    {"tokens_per_step", "1", kGeneration, "With drafts: tokens of a sequence per decode step.", ""},
    // Traffic of a generation.
    {"weight_bytes", "B", kGeneration, "Size of all weights of the model.", ""},
    {"kv_cache_bytes", "B", kGeneration,
     "Size of K and V of all sequences at their longest, in the format of the system, without second copies.", ""},
    {"bytes_gpu_link", "B", kGeneration, "Copies over the links of the GPUs, both directions.", ""},
    {"bytes_engine", "B", kGeneration, "Bytes that filters pass to the engine of the drives.", ""},
    {"neurons_in_drives_per_step", "neurons", kGeneration,
     "Networks in the drive: neurons that drives compute per decode step, over all layers.", ""},
    // Requests.
    {"requests_per_s", "1/s", kGeneration, "Requests that arrive: requests over the time of the run.", ""},
    {"request_latency_mean_s", "s", kGeneration, "Requests: mean time from the arrival to the last token.", ""},
    {"request_latency_p50_s", "s", kGeneration, "Requests: median of the same.", ""},
    {"request_latency_p99_s", "s", kGeneration, "Requests: 99th percentile of the same (nearest rank).", ""},
    {"request_ttft_mean_s", "s", kGeneration, "Requests that arrive: mean time from the arrival to the first token.",
     "ttft_s"},
    {"request_ttft_p50_s", "s", kGeneration, "Requests that arrive: median of the same.", ""},
    {"request_ttft_p99_s", "s", kGeneration, "Requests that arrive: 99th percentile of the same.", ""},
    {"request_tpot_mean_s", "s", kGeneration,
     "Requests that arrive: mean over requests of their time per further token.", "tpot_s"},
    {"request_tpot_p50_s", "s", kGeneration, "Requests that arrive: median of the same.", ""},
    {"request_tpot_p99_s", "s", kGeneration, "Requests that arrive: 99th percentile of the same.", ""},
    {"request_queueing_mean_s", "s", kGeneration, "Requests that arrive: mean time from the arrival to the admission.",
     ""},
    {"request_queueing_p50_s", "s", kGeneration, "Requests that arrive: median of the same.", ""},
    {"request_queueing_p99_s", "s", kGeneration, "Requests that arrive: 99th percentile of the same.", ""},
    {"idle_s", "s", kGeneration, "Requests that arrive: time in which none runs.", ""},
    {"kv_bytes_peak", "B", kGeneration, "Requests: most K and V of the tokens of all running requests at a time.", ""},
    {"kv_bytes_mean", "B", kGeneration, "Requests: mean of the same over time.", ""},
    {"kv_bytes_written", "B", kGeneration,
     "Requests that arrive, K and V in drives: K and V that the host has written, each element once.", ""},
    {"flash_bytes_programmed", "B", kGeneration,
     "The same runs: bytes that were programmed until the last token, by writes and by garbage collection.", ""},
    {"kv_erases", "1", kGeneration, "The same runs: erased blocks of the KV namespaces.", ""},
    {"kv_gc_pages_moved", "1", kGeneration, "The same runs: pages that garbage collection has moved.", ""},
    {"kv_write_amplification", "1", kGeneration,
     "The same runs: pages of K and V that were programmed over those that hold what the host wrote, both until the "
     "drive was idle. Its parts follow.",
     ""},
    {"drive_writes_per_day", "1/day", kGeneration,
     "The same runs: kv_bytes_written over the usable capacity of all drives, per day of simulated time.", ""},
    {"kv_wear_per_byte", "1", kGeneration,
     "The same runs: bytes programmed, or erased if that is more, per byte of K and V that the host has written. A "
     "second copy of K, pages that are not full and garbage collection count.",
     ""},
    {"drive_terabytes_written", "TB", kGeneration,
     "The same runs: K and V that the host can write to all drives in drive_lifetime_years.", ""},
    {"drive_lifetime_years", "years", kGeneration,
     "The same runs: time until the flash has been programmed and erased flash.reliability.rated_cycles times (its "
     "default where the section is absent), if it is always used as in this run and wears evenly.",
     ""},
    // Errors of the flash that holds K and V.
    {"kv_read_retries", "reads", kGeneration,
     "With flash.reliability, K and V in drives: senses of KV pages after their first.", ""},
    {"kv_uncorrectable_reads", "reads", kGeneration,
     "The same runs: reads of KV pages that could not be corrected; each fails its command, or its tokens are dropped.",
     ""},
    {"kv_rows_dropped", "rows", kGeneration,
     "The same runs: tokens that attention does without, counted for each layer and KV head (workload.lost_kv).", ""},
    {"kv_rows_recomputed", "rows", kGeneration,
     "The same runs with workload.lost_kv: recompute: tokens whose K and V were computed again, counted for each layer "
     "and KV head.",
     ""},
    {"kv_pages_rewritten", "pages", kGeneration, "The same runs: pages that were programmed with these K and V.", ""},
    {"kv_bytes_rewritten", "bytes", kGeneration, "The same runs: K and V that the host has sent again.", ""},
    {"kv_recompute_s", "s", kGeneration,
     "The same runs: time that attention has waited for K and V to be computed again, summed over commands.", ""},
    {"kv_program_failures", "programs", kGeneration, "The same runs: programs of KV pages that failed.", ""},
    {"kv_erase_failures", "erases", kGeneration, "The same runs: erases of blocks of KV pages that failed.", ""},
    {"grown_bad_blocks", "blocks", kGeneration, "The same runs: blocks that failed, in all drives.", ""},
    {"kv_blocks_refreshed", "blocks", kGeneration,
     "With ftl.refresh_age, K and V in drives: blocks whose pages have moved because of their age.", ""},
    {"blocks_levelled", "blocks", kGeneration,
     "With ftl.wear_levelling.spread, K and V in drives: blocks of both namespaces that static wear levelling has "
     "moved.",
     ""},
    // The FPGA of a drive with an attention engine: a section of its own.
    {"resources.fits", "1", kGeneration,
     "Whether the attention engine of a drive fits its FPGA (engine.fpga); with unlimited page buffers it fits none.",
     ""},
    {"resources.luts.used", "1", kGeneration,
     "Look-up tables of a drive's FPGA that its units take (docs/fpga_resources.md); likewise `resources.flip_flops`, "
     "`resources.block_rams` (of 36 Kbit) and `resources.dsps`, and for one unit `resources.units.argtopk.luts`.",
     ""},
    {"resources.luts.available", "1", kGeneration, "What the FPGA has; likewise the others.", ""},
    {"resources.luts.share", "1", kGeneration, "Used over available; likewise the others.",
     "resources.luts.used / resources.luts.available"},
    // Block commands beside a generation.
    {"background_iops", "1/s", kGeneration, "Block commands beside a generation: completed commands per second.", ""},
    {"background_latency_mean_ns", "ns", kGeneration, "Block commands beside a generation: mean latency.", ""},
    {"background_latency_p99_ns", "ns", kGeneration, "Block commands beside a generation: 99th percentile.", ""},
    {"background_write_amplification", "1", kGeneration,
     "Block commands beside a generation: write_amplification of what they write. Its parts follow.", ""},
    {"background_requests_issued", "1", kGeneration, "Block commands beside a generation: commands submitted.", ""},
    {"background_requests_completed", "1", kGeneration, "Block commands beside a generation: commands completed.", ""},
    // Block commands.
    {"iops", "1/s", kBlocks, "Completed commands over the measured time.", ""},
    {"bandwidth_bytes_per_s", "B/s", kBlocks, "Payload of the completed commands over the measured time.", ""},
    {"latency_mean_ns", "ns", kBlocks, "Mean time from submission to completion.", ""},
    {"latency_p50_ns", "ns", kBlocks, "Median of the same.", ""},
    {"latency_p99_ns", "ns", kBlocks, "99th percentile of the same.", ""},
    {"latency_p999_ns", "ns", kBlocks, "99.9th percentile of the same.", ""},
    {"latency_max_ns", "ns", kBlocks, "Largest of the same.", ""},
    {"read_latency_mean_ns", "ns", kBlocks,
     "The five figures of the latency also stand for each kind of command that occurs: read_, write_, trim_, flush_.",
     ""},
    {"flow1_iops", "1/s", kBlocks,
     "With workload.flows: of the first flow. iops, bandwidth_bytes_per_s and the five figures of the latency stand "
     "for each flow, flow1_ to flow8_.",
     ""},
    {"write_amplification", "1", kBlocks,
     "All that was programmed over what the host wrote, both in mapping units (ftl.mapping_unit; a page without it), "
     "of which a write of a part counts as a whole one; 1 without writes. Its parts follow. Programs count when they "
     "are planned.",
     ""},
    {"programmed_per_byte_written", "1", kBlocks,
     "The same over the bytes that the host wrote: larger where writes are smaller than a mapping unit, of which each "
     "programs a whole one. Absent without writes.",
     ""},
    {"requests_in_flight_peak", "1", kBlocks, "Most commands in flight at a time.", ""},
    // All simulations.
    {"requests_issued", "1", kRuns, "Commands submitted to the drives.", ""},
    {"requests_completed", "1", kRuns, "Commands that have completed. A run in which fewer complete has failed.", ""},
    {"bytes_host_link", "B", kRuns, "Bytes over the links of the drives, both directions.", ""},
    {"bytes_flash_channel", "B", kRuns, "Bytes over the flash channels of all drives.", ""},
    {"energy_j", "J", kRuns, "Energy of the drives (docs/energy.md).", ""},
    {"energy_per_gb_j", "J", kRuns,
     "Energy per 10^9 bytes: of commands of the host, or, in a generation, over the flash channels.", ""},
    {"energy_per_token_j", "J", kGeneration, "Energy of the drives per generated token.",
     "energy_j / (scenario.workload.batch * scenario.workload.output_tokens)"},
    {"energy_per_step_j", "J", kGeneration,
     "Energy of the drives in the decode steps, per step. Absent if requests arrive.", ""},
    {"relative_error_estimate", "1", kGeneration, "Estimated relative error of prefill and decode time by sampling.",
     ""},
    {"simulated_s", "s", kSimulations, "Simulated time, of what was simulated.", ""},
    {"page_ops", "1", kSimulations, "Page reads, programs and block erases, of what was simulated.", ""},
    // Comparison of mapping policies.
    {"policies", "1", kPolicies, "Policies that are compared.", ""},
    {"appended_tokens", "tokens", kPolicies, "Tokens that the first policy has stored.", ""},
    {"attends", "1", kPolicies, "Attend commands that the first policy has served.", ""},
    // csdsim eval.
    {"dense_perplexity", "1", kEval, "Perplexity with dense attention.", ""},
    {"dense_perplexity_stderr", "1", kEval, "Its standard error over the windows.", ""},
    {"unquantised_perplexity", "1", kEval, "With --weight-bits: perplexity with weights of 16 bits.", ""},
    {"dense_vs_unquantised", "1", kEval, "With --weight-bits: relative rise of the perplexity.",
     "dense_perplexity / unquantised_perplexity - 1"},
    // What the host spends.
    {"wall_s", "s", kSimulations, "Time that the host took for the run (under `wall`).", ""},
    {"page_ops_per_wall_s", "1/s", kSimulations, "Page operations per second of the host (under `wall`).",
     "page_ops / wall.wall_s"},
    {"peak_rss_bytes", "B", kSimulations, "Largest memory of the process (under `wall`).", ""},
};

/// Rows of the parts of a write amplification, behind its own row.
std::vector<Metric> parts_of(const Metric& amplification) {
  static std::deque<std::string> texts;  // what the rows refer to
  std::vector<Metric> rows;
  for (const ftl::WriteWork::Part& part : ftl::WriteWork::parts()) {
    const std::string& name = texts.emplace_back(fmt::format("{}_{}", amplification.name, part.name));
    const std::string& meaning = texts.emplace_back(
        fmt::format("A part of {}, which is their sum: {}. Absent without writes.", amplification.name, part.meaning));
    rows.push_back({name, "1", amplification.workloads, meaning, ""});
  }
  return rows;
}

/// The table, with the parts of each write amplification.
const std::vector<Metric>& general_metrics() {
  static const std::vector<Metric> all = [] {
    std::vector<Metric> rows;
    for (const Metric& metric : kMetrics) {
      rows.push_back(metric);
      if (metric.name.ends_with("write_amplification")) std::ranges::move(parts_of(metric), std::back_inserter(rows));
    }
    return rows;
  }();
  return all;
}

/// A run that every system can plan, to ask its features.
const host::PlannerInputs kSmallRun{.model = {.layers = 2,
                                              .width = 64,
                                              .heads = 2,
                                              .kv_heads = 2,
                                              .head_dim = 32,
                                              .ffn = 256,
                                              .vocab = 128,
                                              .positions = 64},
                                    .workload = {.prompt_tokens = {8}, .output_tokens = 4, .speculation = {1, 0, {}}}};

bool is_of(const Metric& metric, std::string_view workload) {
  return fmt::format(" {} ", metric.workloads).find(fmt::format(" {} ", workload)) != std::string::npos;
}

/// The figures of latency by kind of command, which the table names once.
constexpr std::array<std::string_view, 4> kCommandKinds{"read", "write", "trim", "flush"};
constexpr int kFlows = 8;
constexpr std::array<std::string_view, 5> kLatencyFigures{"mean", "p50", "p99", "p999", "max"};

}  // namespace

std::vector<Metric> metrics(const host::SystemKinds& systems) {
  std::vector<Metric> all = general_metrics();
  for (const auto& kind : systems.items())
    for (const auto& feature : kind.value()->features(kSmallRun))
      for (const host::FeatureMetric& metric : feature->metrics())
        if (std::ranges::find(all, metric.name, &Metric::name) == all.end())
          all.push_back({metric.name, metric.unit, kGeneration, metric.meaning, metric.formula});
  return all;
}

std::vector<std::string> metric_names_of(std::string_view workload, const host::SystemKinds& systems) {
  std::vector<std::string> names;
  for (const Metric& metric : metrics(systems))
    if (is_of(metric, workload)) names.emplace_back(metric.name);
  if (std::ranges::find(names, "read_latency_mean_ns") != names.end())
    for (const std::string_view kind : kCommandKinds)
      for (const std::string_view figure : kLatencyFigures)
        names.push_back(fmt::format("{}_latency_{}_ns", kind, figure));
  if (std::ranges::find(names, "flow1_iops") != names.end()) {
    for (int flow = 1; flow <= kFlows; ++flow) {
      if (flow > 1) names.push_back(fmt::format("flow{}_iops", flow));
      names.push_back(fmt::format("flow{}_bandwidth_bytes_per_s", flow));
      for (const std::string_view figure : kLatencyFigures)
        names.push_back(fmt::format("flow{}_latency_{}_ns", flow, figure));
    }
  }
  return names;
}

std::string metrics_text(std::string_view name, const host::SystemKinds& systems) {
  std::string text;
  std::vector<std::string> names;
  for (const Metric& metric : metrics(systems)) {
    names.emplace_back(metric.name);
    if (!name.empty() && metric.name != name) continue;
    text += fmt::format("{} [{}]: {}\n  runs: {}\n", metric.name, metric.unit, metric.meaning, metric.workloads);
    if (!metric.formula.empty()) text += fmt::format("  formula: {}\n", metric.formula);
  }
  if (text.empty()) throw UserError(fmt::format("unknown metric '{}'{}", printable(name), did_you_mean(name, names)));
  return text;
}

std::string metrics_markdown(const host::SystemKinds& systems) {
  const std::vector<Metric> all = metrics(systems);
  std::vector<std::string_view> sets;
  for (const Metric& metric : all)
    if (std::ranges::find(sets, metric.workloads) == sets.end()) sets.push_back(metric.workloads);
  std::string text =
      "# Metrics\n\nEvery metric of `result.json` and of the tables of a sweep, as `csdsim describe metrics [NAME]` "
      "prints it. Where other figures of the result give a metric, the formula does; names with dots are paths in "
      "`result.json`. Formulas are for sequences of equal lengths that start together; a test evaluates them on runs. "
      "The unit 1 is that of shares and counts. `_ns` is in nanoseconds; tables for people have a prefix instead "
      "(40.7 T, 12.3 ms).\n\n"
      "For example, a batch of 3 sequences with 8 output tokens each, `ttft_s` 0.2 s and 0.7 s of decode steps: "
      "`tokens_per_s` is 3 * 8 / (0.2 + 0.7) = 26.7, `decode_tokens_per_s` 3 * 7 / 0.7 = 30, `tpot_s` 0.7 / 7 = 0.1 "
      "s.\n";
  for (const std::string_view set : sets) {
    std::string title(set);
    for (std::size_t at = 0; (at = title.find(' ', at)) != std::string::npos; at += 4) title.replace(at, 1, "`, `");
    text += fmt::format("\n## {}\n\n| metric | unit | meaning | formula |\n|---|---|---|---|\n",
                        set == "eval" ? "`csdsim eval`" : fmt::format("Runs of workload `{}`", title));
    for (const Metric& metric : all)
      if (metric.workloads == set)
        text += fmt::format("| `{}` | {} | {} | {} |\n", metric.name, metric.unit, metric.meaning,
                            metric.formula.empty() ? "" : fmt::format("`{}`", metric.formula));
  }
  return text;
}

}  // namespace csdsim::report
