#include <fmt/format.h>

#include "base/error.h"
#include "csd_model/runner/assemble.h"
#include "csd_model/runner/block_io.h"
#include "csd_model/runner/kinds.h"
#include "csd_model/runner/result.h"

namespace csd_model {

using namespace csdsim;

RunResult run_block_io_scenario(const scenario::Scenario& s, const RunOptions& options) {
  if (options.trace) throw UserError("--trace: block_io runs have no operations to trace");
  const WallClock clock;
  const auto& workload = std::get<scenario::BlockIoWorkload>(s.workload);
  BlockIoSetup setup;
  setup.platform = platform_config(s);
  setup.request_size = workload.request_size;
  setup.queue_depth = workload.queue_depth;
  setup.requests = workload.requests;
  setup.working_set = workload.working_set.value();
  setup.read_fraction = workload.reads().value();
  setup.sequential = workload.sequential();
  setup.seed = s.seed;
  const BlockIoOutcome out = run_block_io(setup, [&](std::uint64_t done, std::uint64_t total) {
    if (options.progress) options.progress("requests", done, total);
  });

  const double seconds = out.duration.seconds();
  const auto ns = [](std::uint64_t ps) { return static_cast<double>(ps) * 1e-3; };
  const double iops = static_cast<double>(out.completed) / seconds;
  RunResult result;
  result.document = result_frame(s);
  result.document["metrics"] = {{"iops", iops},
                                {"bandwidth_bytes_per_s", iops * static_cast<double>(workload.request_size.value)},
                                {"latency_mean_ns", out.latency_ps.mean() * 1e-3},
                                {"latency_p50_ns", ns(out.latency_ps.quantile(50))},
                                {"latency_p99_ns", ns(out.latency_ps.quantile(99))},
                                {"latency_max_ns", ns(out.latency_ps.max())},
                                {"write_amplification", out.write_amplification},
                                {"requests_issued", out.issued},
                                {"requests_completed", out.completed},
                                {"simulated_s", seconds},
                                {"page_ops", out.counters.page_ops},
                                {"bytes_flash_channel", out.counters.flash_channel_bytes},
                                {"bytes_host_link", out.counters.link_payload_bytes}};
  result.document["breakdown"] = {{"channel_utilization", out.channel_utilization}};
  result.document["stats"] = {{"origin", "modelled; the drive was filled instantly before the first request"},
                              {"drives", out.drive_statistics}};
  result.document["wall"] = wall_figures(clock, out.counters.page_ops);
  result.meaning = fmt::format("{:.0f} IOPS at {:.1f} us on average; the channels were busy {:.0f} % of the time.",
                               iops, out.latency_ps.mean() * 1e-6, out.channel_utilization * 100);
  if (out.issued != out.completed)
    result.failure = fmt::format("{} requests were issued and {} completed", out.issued, out.completed);
  else if (out.failed > 0)
    result.failure =
        fmt::format("{} of {} requests failed, the first with {}", out.failed, out.issued, out.first_failure);
  return result;
}

}  // namespace csd_model
