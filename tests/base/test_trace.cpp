#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "base/trace.h"

namespace test_trace {

using namespace csdsim;

namespace {
struct TempFile {
  std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("csdsim_trace_" + std::to_string(::getpid()) + ".json");
  ~TempFile() { std::filesystem::remove(path); }
  std::string text() const {
    std::ifstream stream(path);
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  nlohmann::json json() const { return nlohmann::json::parse(text()); }
};
}  // namespace

TEST_CASE("a trace is JSON with tracks and times exact to the picosecond") {
  const TempFile file;
  TraceSink sink(file.path);
  CHECK(file.json()["traceEvents"].empty());
  const auto drive = sink.process("drive \"0\"");
  const auto channel = sink.track(drive, "channel 0");
  sink.complete(channel, "read", SimTime{1'000'000'000'000'001}, SimTime{2'925'715}, {{"page", 7}, {"bytes", 4096}});
  sink.instant(channel, "done", SimTime{5});
  sink.counter(drive, "queue", SimTime{6}, 3);
  sink.close();
  const auto json = file.json();
  const auto& events = json["traceEvents"];
  REQUIRE(events.size() == 7);
  CHECK(events[0]["args"]["name"] == "drive \"0\"");
  CHECK(events[4]["name"] == "read");
  CHECK(events[4]["args"]["bytes"] == 4096);
  CHECK(file.text().find("\"ts\":1000000000.000001,\"dur\":2.925715") != std::string::npos);
  CHECK(events[6]["args"]["value"] == 3);
  CHECK(json["otherData"]["dropped_events"] == 0);
}

TEST_CASE("the file on disk is complete JSON at any time, and memory is bounded") {
  const TempFile file;
  TraceSink sink(file.path);
  const auto track = sink.track(sink.process("p"), "t");
  std::size_t before = 0, grown = 0;
  for (int i = 0; i < 20'000; ++i) {
    sink.complete(track, "event", SimTime::nanoseconds(i), SimTime{1});
    if (i % 997 != 0) continue;
    const auto events = file.json()["traceEvents"].size();
    grown += events > before;
    before = events;
  }
  CHECK(grown > 2);
  sink.close();
  CHECK(file.json()["traceEvents"].size() == 20'004);
}

TEST_CASE("a sink that goes out of scope leaves everything behind") {
  const TempFile file;
  {
    TraceSink sink(file.path);
    sink.complete(sink.track(sink.process("p"), "t"), "event", SimTime{}, SimTime{1});
  }
  CHECK(file.json()["traceEvents"].size() == 5);
}

TEST_CASE("beyond the limit events are counted, not kept") {
  const TempFile file;
  TraceSink sink(file.path, 10);
  const auto track = sink.track(sink.process("p"), "t");
  for (int i = 0; i < 25; ++i) sink.instant(track, "e", SimTime{i});
  CHECK(sink.dropped_events() == 15);
  sink.close();
  CHECK(file.json()["traceEvents"].size() == 14);
  CHECK(file.json()["otherData"]["dropped_events"] == 15);
}

TEST_CASE("a file that cannot be written is the user's mistake") {
  CHECK_THROWS_AS(TraceSink("/no/such/directory/trace.json"), UserError);
  CHECK_THROWS_AS(
      [] {
        TraceSink sink("/dev/full");
        sink.close();
      }(),
      UserError);
}

}  // namespace test_trace
