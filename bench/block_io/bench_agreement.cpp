// All points of MQSim beside this model, as the table of docs/agreement.md. Usage: bench_agreement [SEEDS]
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <systemc>

#include "tests/block_io/reference_points.h"

using namespace csdsim;
using namespace csdsim::reference;

namespace {

/// Mean and standard deviation of what one run gives.
class Sample {
 public:
  void add(double value) {
    ++count_;
    const double from_mean = value - mean_;
    mean_ += from_mean / count_;
    squares_ += from_mean * (value - mean_);
  }
  double mean() const { return mean_; }
  double deviation() const { return count_ > 1 ? std::sqrt(squares_ / (count_ - 1)) : 0; }

 private:
  int count_ = 0;
  double mean_ = 0, squares_ = 0;
};

/// Their figure, ours, the difference of ours in percent and its standard deviation over seeds.
void print_figure(double theirs, const Sample& ours, int decimals) {
  std::printf(" %.*f | %.*f | %+.2f %% (%.2f) |", decimals, theirs, decimals, ours.mean(),
              100 * (ours.mean() / theirs - 1), 100 * ours.deviation() / theirs);
}

void print_row(const Point& p, const char* how, int seeds, const std::vector<std::string>& sets) {
  Sample iops, latency, amplification;
  for (int seed = 1; seed <= seeds; ++seed) {
    std::vector<std::string> all = sets;
    all.push_back("seed=" + std::to_string(seed));
    const Figures f = run_point(p, all);
    iops.add(f.iops);
    latency.add(f.latency_us);
    amplification.add(f.write_amplification);
  }
  std::printf("| %s | %s |", p.name().c_str(), how);
  print_figure(p.number("iops"), iops, 1);
  print_figure(p.number("avg_response_us"), latency, 2);
  if (p.collects_garbage())
    std::printf(" write amplification %s, ours %.4f |", p.text("steady_write_amplification").c_str(),
                amplification.mean());
  std::printf("\n");
  std::fflush(stdout);
}

}  // namespace

int sc_main(int argc, char* argv[]) {
  const int seeds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 5;
  std::printf("Means over %d seeds; in brackets the standard deviation of one run.\n\n", seeds);
  std::printf(
      "| point | set beside its scenario | IOPS, MQSim | ours | difference | latency us, MQSim | ours | difference "
      "|\n|---|---|---|---|---|---|---|---|\n");
  for (const Point& p : read_points()) {
    if (!p.writes()) {
      print_row(p, "-", seeds, {});
    } else if (!p.collects_garbage()) {
      print_row(p, "dynamic allocation", seeds, {kDynamicAllocation});
      print_row(p, "-", seeds, {});
      if (p.count("read_pct") > 0) print_row(p, "reads first", seeds, {kReadsFirst});
    } else {
      // From the steady state on, a fifth of the requests is enough.
      for (const std::string policy : {"{kind: greedy}", "{kind: random_greedy, choices: 7}"})
        for (const char* free_blocks : {"6", "12"})
          print_row(p, fmt::format("gc: {{policy: {}}}, gc_free_blocks: {}", policy, free_blocks).c_str(), seeds,
                    {"workload.requests=300000", "workload.precondition.overwrites=4",
                     fmt::format("platform.device.ftl.gc={{policy: {}}}", policy),
                     fmt::format("platform.device.ftl.gc_free_blocks={}", free_blocks)});
    }
  }
  std::printf("\nRequests smaller than the page:\n\n");
  for (const Point& p : read_subpage_points()) {
    if (!p.writes()) print_row(p, "-", seeds, {});
    if (p.writes()) print_row(p, "units", seeds, {units_of(p), kReadsFirst});
    if (p.writes()) print_row(p, "empty drive", seeds, {kEmpty, kReadsFirst});
    if (p.writes() && p.count("read_pct") > 0) print_row(p, "full drive", seeds, {kReadsFirst});
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
