#include <catch2/catch.hpp>
#include <sstream>

#include "experiment/block_io/requests/time_series.h"

namespace test_time_series {

using namespace csdsim;
using experiment::workload::TimeSeries;

TEST_CASE("buckets merge as a run grows and nothing gets lost") {
  TimeSeries series;
  constexpr int kCount = 10'000;
  for (int i = 0; i < kCount; ++i)
    series.add(SimTime::microseconds(i), Bytes{4096}, SimTime::microseconds(i == 4321 ? 99 : 1));
  CHECK(series.width() == SimTime::microseconds(64));
  CHECK(series.buckets().size() == 157);
  std::uint64_t requests = 0, bytes = 0;
  SimTime latency, worst;
  for (const TimeSeries::Bucket& b : series.buckets()) {
    requests += b.requests;
    bytes += b.bytes;
    latency += b.latency_sum;
    worst = std::max(worst, b.latency_max);
  }
  CHECK(requests == kCount);
  CHECK(bytes == kCount * 4096);
  CHECK(latency == SimTime::microseconds(kCount + 98));
  CHECK(worst == SimTime::microseconds(99));
  CHECK(series.buckets()[4321 / 64].latency_max == SimTime::microseconds(99));
  CHECK(series.buckets()[0].requests == 64);
}

TEST_CASE("the table gives rates over the width of each bucket, the last one cut at the end") {
  TimeSeries series;
  series.add(SimTime::nanoseconds(500), Bytes{1000}, SimTime::nanoseconds(200));
  series.add(SimTime::nanoseconds(600), Bytes{1000}, SimTime::nanoseconds(400));
  series.add(SimTime::nanoseconds(2500), Bytes{1000}, SimTime::nanoseconds(300));
  std::istringstream csv(series.to_csv(SimTime::nanoseconds(2500)));
  std::string line;
  std::getline(csv, line);
  CHECK(line == "start_s,seconds,requests,iops,bandwidth_bytes_per_s,latency_mean_ns,latency_max_ns");
  std::getline(csv, line);
  CHECK(line == "0,1e-06,2,2000000,2000000000,300,400");
  std::getline(csv, line);
  CHECK(line == "1e-06,1e-06,0,0,0,,");
  std::getline(csv, line);
  CHECK(line == "2e-06,5e-07,1,2000000,2000000000,300,300");
  CHECK_FALSE(std::getline(csv, line));
}

}  // namespace test_time_series
