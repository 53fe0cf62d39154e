// The points of MQSim, at full length: IOPS and mean latency. docs/agreement.md says what remains and why.
#include <catch2/catch.hpp>

#include "tests/block_io/reference_points.h"

namespace test_agreement {

using namespace csdsim;
using namespace csdsim::reference;

namespace {

const Point& point_of(const std::vector<Point>& points, const std::string& name) {
  for (const Point& p : points)
    if (p.name() == name) return p;
  throw UserError("no point " + name);
}

}  // namespace

TEST_CASE("reads agree with MQSim: within 0.05 % up to depth 8, within 1 % above") {
  int compared = 0;
  for (const Point& p : read_points()) {
    if (p.writes()) continue;
    const double bound = p.count("queue_depth") <= 8 ? 0.0005 : 0.01;
    const Figures ours = run_point(p);
    INFO(p.name());
    CHECK(ours.iops == Approx(p.number("iops")).epsilon(bound));
    CHECK(ours.latency_us == Approx(p.number("avg_response_us")).epsilon(bound));
    ++compared;
  }
  CHECK(compared == 8);
}

TEST_CASE("writes agree with MQSim where pages have planes of their own, as there") {
  const std::vector<Point> points = read_points();
  // One run of theirs stands against one of ours, and when the longest queue of the end is empty depends on the seed by
  // about 1 %: the mean of three seeds is compared.
  const auto mean = [&](const std::string& name, const std::vector<std::string>& sets) {
    Figures sum;
    for (const std::string seed : {"1", "2", "3"}) {
      std::vector<std::string> all = sets;
      all.push_back("seed=" + seed);
      const Figures f = run_point(point_of(points, name), all);
      sum.iops += f.iops / 3;
      sum.latency_us += f.latency_us / 3;
    }
    return sum;
  };
  const Figures writes = mean("rw4k_p4k_ch4", {});
  CHECK(writes.iops == Approx(50'673.3).epsilon(0.015));
  CHECK(writes.latency_us == Approx(9'930.24).epsilon(0.015));
  const Figures mixed = mean("mix7030_4k_p4k_ch4", {kReadsFirst});
  CHECK(mixed.iops == Approx(137'182.4).epsilon(0.015));
  CHECK(mixed.latency_us == Approx(3'629.12).epsilon(0.025));  // what is missing: docs/agreement.md
  // In the order of arrival reads wait behind writes.
  CHECK(mean("mix7030_4k_p4k_ch4", {}).latency_us > 1.03 * mixed.latency_us);
  // Pages that go wherever there is room keep all planes busy.
  CHECK(run_point(point_of(points, "rw4k_p4k_ch4"), {kDynamicAllocation}).iops > 1.04 * 50'673.3);
}

TEST_CASE("requests smaller than the page agree with MQSim: reads and mixed within 1.5 %, writes within 2.5 %") {
  int compared = 0;
  for (const Point& p : read_subpage_points()) {
    const bool mixed = p.writes() && p.count("read_pct") > 0;
    const bool alone = p.count("queue_depth") == 1;
    const double bound = alone ? 0.0005 : p.writes() && !mixed ? 0.025 : 0.015;
    const std::vector<std::string> read_sets, write_sets{units_of(p), kReadsFirst};
    const Figures ours = run_point(p, p.writes() ? write_sets : read_sets);
    INFO(p.name());
    // On an empty drive, whose reads find nothing, the mixed point is far off; writes of parts of pages are not.
    if (p.writes()) {
      const double empty = run_point(p, {kEmpty, kReadsFirst}).iops;
      if (mixed)
        CHECK(empty > 1.15 * p.number("iops"));
      else
        CHECK(empty == Approx(p.number("iops")).epsilon(bound));
    }
    CHECK(ours.iops == Approx(p.number("iops")).epsilon(bound));
    CHECK(ours.latency_us == Approx(p.number("avg_response_us")).epsilon(bound));
    // Pages that are read whole are far from it.
    if (p.count("queue_depth") >= 64 && !p.writes())
      CHECK(run_point(p, {"platform.device.flash.codewords=none"}).iops < 0.85 * p.number("iops"));
    ++compared;
  }
  CHECK(compared == 7);
}

TEST_CASE("commands before data-outs serve saturated reads faster than MQSim's order") {
  const std::vector<Point> points = read_points();
  const Point& p = point_of(points, "rr4k_p4k_ch8_qd32");
  const std::vector<std::string> deep{"workload.queue_depth=1024", "workload.requests=300000"};
  std::vector<std::string> command_first = deep;
  command_first.push_back("platform.device.flash.bus_arbitration=command_first");
  const double theirs = run_point(p, deep).iops, better = run_point(p, command_first).iops;
  CHECK(better > 1.13e6);
  CHECK(better > 1.3 * theirs);
}

}  // namespace test_agreement
