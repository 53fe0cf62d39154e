#include <catch2/catch.hpp>

#include "report/text.h"

namespace test_text {

using csdsim::report::metric_text;
using csdsim::report::progress_text;
using csdsim::report::short_number;
using csdsim::report::step_text;

TEST_CASE("a step says what is left from how long those before it took") {
  CHECK(step_text("random read", 0, 14, 0.1) == "[1/14] random read");
  CHECK(step_text("random write", 2, 14, 4) == "[3/14] random write (about 24 s left)");
  CHECK(step_text("bursts", 1, 3, 90) == "[2/3] bursts (about 3 min left)");
}

TEST_CASE("progress says what is left once it has gone on for some seconds") {
  CHECK(progress_text("run", "steps", 12, 64) == "run: 12 of 64 steps (19 %)");
  CHECK(progress_text("run", "steps", 12, 64, 4.9) == "run: 12 of 64 steps (19 %)");
  CHECK(progress_text("run", "steps", 16, 64, 10) == "run: 16 of 64 steps (25 %, about 30 s left)");
  CHECK(progress_text("run", "requests", 100, 1000, 60) == "run: 100 of 1000 requests (10 %, about 9 min left)");
  CHECK(progress_text("run", "steps", 0, 64, 10) == "run: 0 of 64 steps (0 %)");
  CHECK(progress_text("run", "steps", 64, 64, 10) == "run: 64 of 64 steps (100 %)");
  CHECK(progress_text("run", "steps", 3, 0, 10) == "run: 3 of 0 steps");
}

TEST_CASE("numbers have four digits, and from 100,000 on a prefix with at most three before the point") {
  CHECK(short_number(0) == "0");
  CHECK(short_number(0.0123) == "0.012300");
  CHECK(short_number(8.71) == "8.710");
  CHECK(short_number(54073) == "54073");
  CHECK(short_number(165'700) == "165.7 k");
  CHECK(short_number(1'171'000) == "1.171 M");
  CHECK(short_number(999'949) == "999.9 k");
  CHECK(short_number(999'999) == "1.000 M");
  CHECK(short_number(46'883'000) == "46.88 M");
  CHECK(short_number(40.682e12) == "40.68 T");
  CHECK(short_number(-40.682e12) == "-40.68 T");
}

TEST_CASE("a metric has the unit that its name ends in") {
  CHECK(metric_text("latency_p99_ns", 3'350'000) == "3.350 ms");
  CHECK(metric_text("latency_p99_ns", 290) == "290.0 ns");
  CHECK(metric_text("latency_mean_ns", 54'441.3) == "54.44 us");
  CHECK(metric_text("tpot_s", 0.138003) == "138.0 ms");
  CHECK(metric_text("ttft_s", 58.93) == "58.93 s");
  CHECK(metric_text("simulated_s", 7200) == "7200 s");
  CHECK(metric_text("decode_step_s", 0.99999) == "1.000 s");
  CHECK(metric_text("ttft_s", 0) == "0 s");
  CHECK(metric_text("energy_per_token_j", 0.00356) == "3.560 mJ");
  CHECK(metric_text("bandwidth_bytes_per_s", 132'426'648.8) == "132.4 MB/s");
  CHECK(metric_text("kv_cache_bytes", 512) == "512 B");
  CHECK(metric_text("bytes_host_link", 217'872) == "217.9 kB");
  // Counts, shares and rates of what has no unit.
  CHECK(metric_text("iops", 165'700) == "165.7 k");
  CHECK(metric_text("requests_per_s", 0.273) == "0.273000");
  CHECK(metric_text("page_ops_per_wall_s", 4533) == "4533");
  CHECK(metric_text("kv_access_share", 0.5) == "0.500000");
}

}  // namespace test_text
