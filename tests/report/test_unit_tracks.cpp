// Tracks of overlapping work and counters of rates, against brute force.
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "report/unit_tracks.h"

namespace test_unit_tracks {

using namespace csdsim;
using namespace csdsim::report;

namespace {

struct Work {
  SimTime start;
  SimTime end;
  std::uint64_t bytes = 0;
};

std::vector<Work> random_work(std::mt19937_64& rng, std::size_t count, std::int64_t gap_ps, std::int64_t length_ps) {
  std::vector<Work> work;
  std::int64_t at = 0;
  for (std::size_t i = 0; i < count; ++i) {
    at += static_cast<std::int64_t>(rng() % static_cast<std::uint64_t>(gap_ps));
    const std::int64_t length = 1 + static_cast<std::int64_t>(rng() % static_cast<std::uint64_t>(length_ps));
    work.push_back({SimTime{at}, SimTime{at + length}, 1 + rng() % 100'000});
  }
  return work;
}

nlohmann::json events_of(const std::function<void(TraceSink&)>& write) {
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("csdsim_unit_tracks_" + std::to_string(::getpid()) + ".json");
  {
    TraceSink sink(path);
    write(sink);
    sink.close();
  }
  std::ifstream stream(path);
  const auto document = nlohmann::json::parse(stream);
  std::filesystem::remove(path);
  CHECK(document["otherData"]["dropped_events"] == 0);
  return document["traceEvents"];
}

}  // namespace

TEST_CASE("overlapping slices get as many lanes as overlap at most, and none overlaps on its lane") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 rng(seed);
    std::vector<Work> work = random_work(rng, 300, 1000, 4000);
    std::ranges::sort(work, {}, &Work::end);
    TraceLanes lanes;
    std::map<std::uint32_t, std::vector<Work>> of_lane;
    for (const Work& w : work) of_lane[lanes.take(w.start, w.end)].push_back(w);
    for (const auto& [lane, slices] : of_lane)
      for (std::size_t i = 1; i < slices.size(); ++i) CHECK(slices[i].start >= slices[i - 1].end);
    std::size_t most = 0;
    for (const Work& w : work)
      most = std::max(most, static_cast<std::size_t>(std::ranges::count_if(
                                work, [&](const Work& o) { return o.start <= w.start && w.start < o.end; })));
    CHECK(of_lane.size() >= most);
    CHECK(of_lane.size() <= 2 * most);
  }
}

TEST_CASE("the area below a rate is the bytes, whatever the length of the run") {
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 rng(seed);
    // Up to some 300 windows, and up to some 100,000, for which the windows double several times.
    const std::vector<Work> work = random_work(rng, 20'000, seed % 2 == 0 ? 300'000 : 100'000'000, 60'000'000);
    double bytes = 0;
    for (const Work& w : work) bytes += static_cast<double>(w.bytes);
    const auto events = events_of([&](TraceSink& sink) {
      UnitTracks tracks(sink, sink.process("p"),
                        {.name = [](std::uint32_t) { return "u"; }, .amount = "bytes", .rate = "B/s"});
      for (const Work& w : work) tracks.work(0, "move", w.start, w.end, w.bytes);
      tracks.finish();
    });
    double area = 0, value = 0, since = 0;
    std::size_t values = 0;
    for (const auto& e : events) {
      if (e["ph"] != "C") continue;
      const double at = e["ts"].get<double>() * 1e-6;
      CHECK(at >= since);
      area += value * (at - since);
      value = e["args"]["value"];
      since = at;
      ++values;
    }
    CHECK(value == 0);
    CHECK(area == Approx(bytes).epsilon(1e-6));
    CHECK(values > 100);
    CHECK(values < 40'000);
  }
}

TEST_CASE("units have tracks of their own, in their order, and levels are counters") {
  const auto events = events_of([](TraceSink& sink) {
    UnitTracks tracks(sink, sink.process("p"),
                      {.name = [](std::uint32_t u) { return "unit " + std::to_string(u); },
                       .place = [](std::uint32_t u) { return 100 - u; },
                       .level = [](std::uint32_t u) { return "level " + std::to_string(u); },
                       .overlaps = true});
    tracks.work(3, "a", SimTime{0}, SimTime{10}, 0);
    tracks.work(3, "b", SimTime{5}, SimTime{15}, 0);
    tracks.work(4, "a", SimTime{5}, SimTime{15}, 0);
    tracks.level(4, 7, SimTime{9});
    tracks.finish();
  });
  std::map<std::string, int> places;
  for (const auto& e : events) {
    if (e["name"] == "thread_name") places[e["args"]["name"]] = e["tid"];
    if (e["ph"] == "C") {
      CHECK(e["name"] == "level 4");
      CHECK(e["args"]["value"] == 7);
    }
  }
  CHECK(places.size() == 3);
  CHECK(places.contains("unit 3"));
  CHECK(places.contains("unit 3 (2)"));
  CHECK(places.contains("unit 4"));
}

}  // namespace test_unit_tracks
