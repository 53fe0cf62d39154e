// All points of MQSim beside this model, as the table of docs/agreement.md. Usage: bench_agreement [SEEDS]
#include <cstdio>
#include <cstdlib>
#include <systemc>

#include "tests/workload/reference_points.h"

using namespace csdsim;
using namespace csdsim::reference;

namespace {

struct Range {
  double sum = 0, least = 1e300, most = -1e300;

  void add(double value) {
    sum += value;
    least = std::min(least, value);
    most = std::max(most, value);
  }
};

void print_row(const Point& p, const char* how, int seeds, const std::vector<std::string>& sets) {
  Range iops, latency, amplification;
  for (int seed = 1; seed <= seeds; ++seed) {
    std::vector<std::string> all = sets;
    all.push_back("seed=" + std::to_string(seed));
    const Figures f = run_point(p, all);
    iops.add(f.iops);
    latency.add(f.latency_us);
    amplification.add(f.write_amplification);
  }
  const auto percent = [](double ours, double theirs) { return 100 * (ours / theirs - 1); };
  const double their_iops = p.number("iops"), their_latency = p.number("avg_response_us");
  std::printf("| %s | %s | %.1f | %.1f | %+.2f %% (%+.2f to %+.2f) | %.2f | %.2f | %+.2f %% (%+.2f to %+.2f) |",
              p.name().c_str(), how, their_iops, iops.sum / seeds, percent(iops.sum / seeds, their_iops),
              percent(iops.least, their_iops), percent(iops.most, their_iops), their_latency, latency.sum / seeds,
              percent(latency.sum / seeds, their_latency), percent(latency.least, their_latency),
              percent(latency.most, their_latency));
  if (p.collects_garbage())
    std::printf(" write amplification %s, ours %.4f |", p.text("steady_write_amplification").c_str(),
                amplification.sum / seeds);
  std::printf("\n");
  std::fflush(stdout);
}

}  // namespace

int sc_main(int argc, char* argv[]) {
  const int seeds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 5;
  std::printf("Means over %d seeds; in brackets the least and the most.\n\n", seeds);
  std::printf(
      "| point | set beside its scenario | IOPS, MQSim | ours | difference | latency us, MQSim | ours | difference "
      "|\n|---|---|---|---|---|---|---|---|\n");
  for (const Point& p : read_points()) {
    if (!p.writes()) {
      print_row(p, "-", seeds, {});
    } else if (!p.collects_garbage()) {
      print_row(p, "allocation: dynamic", seeds, {});
      print_row(p, "allocation: static", seeds, {kStaticAllocation});
      if (p.count("read_pct") > 0)
        print_row(p, "allocation: static, plane_order: reads_first", seeds, {kStaticAllocation, kReadsFirst});
    } else {
      // From the steady state on, a fifth of the requests is enough.
      for (const std::string policy : {"greedy", "random_greedy, choices: 7"})
        for (const char* free_blocks : {"6", "12"})
          print_row(p, fmt::format("gc: {{policy: {}}}, gc_free_blocks: {}", policy, free_blocks).c_str(), seeds,
                    {"workload.requests=300000", "workload.precondition.overwrites=4", kStaticAllocation,
                     fmt::format("platform.device.ftl.gc={{policy: {}}}", policy),
                     fmt::format("platform.device.ftl.gc_free_blocks={}", free_blocks)});
    }
  }
  std::printf("\nReads at depth 1024 on the drive of rr4k_p4k_ch8_qd32, by bus_arbitration:\n\n");
  for (const Point& p : read_points()) {
    if (p.name() != "rr4k_p4k_ch8_qd32") continue;
    for (const char* arbitration : {"data_first", "fifo", "command_first"}) {
      const Figures f = run_point(p, {"workload.queue_depth=1024", "workload.requests=1000000",
                                      std::string("platform.device.flash.bus_arbitration=") + arbitration});
      std::printf("| %s | %.0f | %.1f |\n", arbitration, f.iops, f.latency_us);
    }
  }
  return 0;
}
