// The division of a drive's time among its stations.
#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <random>
#include <vector>

#include "csd_model/drive_activity.h"

namespace test_drive_activity {

using namespace csdsim;
using namespace csdsim::csd_model;
using enum DriveStation;

namespace {

constexpr SimTime us(std::int64_t n) { return SimTime::microseconds(n); }

/// An array senses a page in 10 us; 1,000 B take 1 us of the channel.
constexpr FlashDemand kFlash{.sense = SimTime{10'000'000},
                             .command = {},
                             .channel_bandwidth = Bandwidth{1'000'000'000},
                             .planes = 1,
                             .channels = 1,
                             .page_buffers = 0};
constexpr PageOp kPage{
    .ppa = {}, .kind = PageOpKind::read, .op_class = OpClass::attend, .retries = 0, .channel_bytes = 1000};

void read(DriveActivity& a, SimTime now) {
  a.engine_pages(+1, now);
  a.begin_reads({&kPage, 1}, now);
}
void arrived(DriveActivity& a, const FlashStages& stages, SimTime now) {
  a.end_reads(stages, now);
  a.engine_pages(-1, now);
}

}  // namespace

TEST_CASE("of the stations that work at a moment, the one with the most work so far takes the time") {
  DriveActivity a(kFlash);
  a.engine_task(+1, us(0));
  read(a, us(0));
  a.begin(kernels, us(20), 1, us(4));
  arrived(a, {}, us(10));
  a.end(kernels, us(24));
  a.engine_task(-1, us(24));
  const ActivitySplit split = a.until(us(30));
  CHECK(split.flash == us(10));
  CHECK(split.engine == us(14));
  CHECK(split.other == us(6));
  CHECK(split.stations[flash_arrays] == us(4));
  CHECK(split.stations[kernels] == us(20));
  CHECK(split.stations.sum() == us(24));
}

TEST_CASE("time goes to the station with the most load of those that work, whatever begins and ends") {
  // The oracle searches all stations at each moment. Only stations whose work starts with begin() take part.
  constexpr std::array kStations{lookup_cores, page_buffers, flash_arrays, flash_channels, filters, scoring, argtopk};
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    DriveActivity a(kFlash);
    SimTime link, now;
    a.watch(link_to_host, link);
    a.engine_task(+1, now);
    PerStation<double> load;
    PerStation<SimTime> expected;
    std::vector<DriveStation> working;
    const auto pass = [&](SimTime to) {
      const auto first = std::ranges::min_element(
          working, [&](DriveStation x, DriveStation y) { return load[x] != load[y] ? load[x] > load[y] : x < y; });
      if (first != working.end()) expected[*first] += to - now;
      now = to;
    };
    for (int step = 0; step < 400; ++step) {
      // Some things happen at the same time. Few different loads, so that some are equal.
      pass(now + us(static_cast<std::int64_t>(random() % 3)));
      if (working.size() < 6 && random() % 2 == 0) {
        const DriveStation station = kStations[random() % kStations.size()];
        const SimTime work = us(static_cast<std::int64_t>(random() % 4));
        const std::uint32_t units = 1 + static_cast<std::uint32_t>(random() % 2);
        a.begin(station, work, units, now);
        load[station] += double(work.ps) / units;
        working.push_back(station);
      } else if (!working.empty()) {
        const std::size_t i = random() % working.size();
        a.end(working[i], now);
        working.erase(working.begin() + static_cast<std::ptrdiff_t>(i));
      }
    }
    REQUIRE(a.until(now).stations == expected);
    for (const DriveStation station : kStations) CHECK(a.loads()[station] == load[station]);
  }
}

TEST_CASE("work of a station counts per unit") {
  DriveActivity a(kFlash);
  a.engine_task(+1, us(0));
  read(a, us(0));
  a.begin(kernels, us(20), 4, us(0));
  a.end(kernels, us(20));
  arrived(a, {}, us(20));
  CHECK(a.until(us(20)).stations[flash_arrays] == us(20));
}

TEST_CASE("a station that reserves time in advance works its backlog off") {
  DriveActivity a(kFlash);
  SimTime link;
  a.watch(link_to_drive, link);
  a.until(us(10));
  link += us(50);
  CHECK(a.until(us(11)).stations[link_to_drive] == us(1));
  CHECK(a.until(us(100)).stations[link_to_drive] == us(50));
  // What it did before attention says nothing about attention: the array has more work.
  a.engine_task(+1, us(100));
  read(a, us(100));
  link += us(3);
  arrived(a, {}, us(110));
  a.engine_task(-1, us(110));
  CHECK(a.until(us(110)).stations[flash_arrays] == us(10));
  // With more work than the array it takes its own time, and no more.
  a.engine_task(+1, us(110));
  link += us(40);
  a.until(us(140));
  read(a, us(140));
  arrived(a, {}, us(160));
  const ActivitySplit split = a.until(us(160));
  CHECK(split.stations[link_to_drive] == us(50 + 40));
  CHECK(split.stations[flash_arrays] == us(10 + 10));
}

TEST_CASE("softmax takes its part of the kernels' time") {
  DriveActivity a(kFlash);
  a.engine_task(+1, us(0));
  a.begin(kernels, us(8), 1, us(0));
  a.add_softmax(us(2), us(8));
  a.end(kernels, us(8));
  const ActivitySplit split = a.until(us(8));
  CHECK(split.stations[kernels] == us(6));
  CHECK(split.stations[softmax] == us(2));
}

TEST_CASE("a page buffer holds others up where pages would pass faster than it comes free") {
  for (const std::uint32_t buffers : {1u, 4u}) {
    CAPTURE(buffers);
    FlashDemand flash = kFlash;
    flash.planes = 2;
    flash.page_buffers = buffers;
    DriveActivity a(flash);
    a.engine_task(+1, us(0));
    constexpr FlashStages kStages{us(100), us(0), us(0), us(10), us(1), us(0)};  // it waited 100 us for its array
    for (int page = 0; page < 4; ++page) {
      const SimTime start = us(20 * page);
      a.begin(page_buffers, {}, 1, start);
      read(a, start);
      arrived(a, kStages, start + us(20));
      a.end(page_buffers, start + us(20));
    }
    const ActivitySplit split = a.until(us(80));
    // The first page is gone before a buffer has had any work. One buffer has 11 us of work per page, four have 2.75;
    // two arrays have 5. Waiting is no work.
    CHECK(split.stations[page_buffers] == (buffers == 1 ? us(60) : us(0)));
    CHECK(split.stations[flash_arrays] == (buffers == 1 ? us(20) : us(80)));
    CHECK(a.buffers_held(us(80)) == us(80));
    CHECK(a.waited()[flash_arrays] == us(400));
  }
}

TEST_CASE("while attention stands still, time divides as in the window that is repeated") {
  DriveActivity a(kFlash);
  a.engine_task(+1, us(0));
  read(a, us(0));
  arrived(a, {}, us(16));
  a.begin(kernels, us(8), 1, us(16));
  a.end(kernels, us(24));
  a.engine_task(-1, us(24));
  const ActivitySplit window = a.until(us(32));
  REQUIRE(window.stations[flash_arrays] == us(16));
  REQUIRE(window.stations[kernels] == us(8));
  a.repeat(window, us(128), {}, 0, us(32));
  const ActivitySplit twice = a.until(us(64));
  CHECK(twice.flash == us(32));
  CHECK(twice.engine == us(16));
  CHECK(twice.other == us(16));
  CHECK(twice.stations[flash_arrays] == us(32));
  CHECK(twice.stations[kernels] == us(16));
  CHECK(twice.stations.sum() == us(48));
  // It is repeated three times in all; then nothing works.
  const ActivitySplit after = a.until(us(140));
  CHECK(after.flash == us(64));
  CHECK(after.engine == us(32));
  CHECK(after.other == us(32 + 12));
  CHECK(after.stations[flash_arrays] == us(64));
  CHECK(after.stations[kernels] == us(32));
  CHECK(after.stations.sum() == us(96));
}

}  // namespace test_drive_activity
