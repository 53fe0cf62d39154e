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
  const auto drive = sink.process("drive \"0\"", 7);
  const auto channel = sink.track(drive, "channel 0", 3);
  sink.complete(channel, "read", SimTime{1'000'000'000'000'001}, SimTime{2'925'715},
                {{"page", std::uint64_t{7}}, {"class", std::string_view("\"gc\"")}});
  sink.counter(channel, "queue", SimTime{6}, 3);
  sink.async(channel, "nvme", "attend", SimTime{7}, SimTime{9}, {{"cid", std::uint64_t{1}}});
  sink.flow(channel, "token", 5, FlowStep::begin, SimTime{8});
  sink.flow(channel, "token", 5, FlowStep::end, SimTime{9});
  sink.close();
  const auto json = file.json();
  const auto& events = json["traceEvents"];
  REQUIRE(events.size() == 10);
  CHECK(events[0]["args"]["name"] == "drive \"0\"");
  CHECK(events[1]["args"]["sort_index"] == 7);
  CHECK(events[3]["args"]["sort_index"] == 3);
  CHECK(events[4]["name"] == "read");
  CHECK(events[4]["args"]["page"] == 7);
  CHECK(events[4]["args"]["class"] == "\"gc\"");
  CHECK(file.text().find("\"ts\":1000000000.000001,\"dur\":2.925715") != std::string::npos);
  CHECK(events[5]["ph"] == "C");
  CHECK(events[5]["args"]["value"] == 3);
  CHECK(events[6]["ph"] == "b");
  CHECK(events[7]["ph"] == "e");
  CHECK(events[6]["id2"] == events[7]["id2"]);
  CHECK(events[6]["cat"] == events[7]["cat"]);
  CHECK(events[8]["ph"] == "s");
  CHECK(events[9]["ph"] == "f");
  CHECK(events[8]["id"] == events[9]["id"]);
  CHECK(json["otherData"]["dropped_events"] == 0);
  CHECK_FALSE(json["otherData"].contains("first_dropped_us"));
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

TEST_CASE("the file never exceeds its limit, and leaves details out first") {
  const TempFile file;
  constexpr std::uint64_t kLimit = 300'000;
  TraceSink sink(file.path, Bytes{kLimit});
  const auto process = sink.process("p");
  const auto operations = sink.track(process, "operations"), pages = sink.track(process, "pages", 0, true);
  std::uint64_t written = 0;
  for (int i = 0; i < 10'000; ++i) {
    sink.complete(pages, "page", SimTime::microseconds(i), SimTime{1});
    if (i % 10 == 0) sink.async(operations, "c", "operation", SimTime::microseconds(i), SimTime::microseconds(i + 1));
    if (i % 500 == 0) CHECK(std::filesystem::file_size(file.path) <= kLimit);
    written += 1 + (i % 10 == 0);
  }
  const std::uint64_t dropped = sink.dropped_events();
  sink.close();
  CHECK(std::filesystem::file_size(file.path) <= kLimit);
  CHECK(std::filesystem::file_size(file.path) > kLimit - 1000);
  std::uint64_t page_slices = 0, begins = 0, ends = 0;
  double last_page = 0, last_operation = 0;
  const auto json = file.json();
  for (const auto& e : json["traceEvents"]) {
    const std::string ph = e["ph"];
    if (ph == "X") {
      ++page_slices;
      last_page = e["ts"];
    }
    if (ph == "b") {
      ++begins;
      last_operation = e["ts"];
    }
    ends += ph == "e";
  }
  CHECK(begins == ends);
  CHECK(page_slices + begins + dropped == written);
  CHECK(json["otherData"]["dropped_events"] == dropped);
  CHECK(last_operation > 1.2 * last_page);
  CHECK(json["otherData"]["first_dropped_us"] == last_page + 1);
  CHECK_THROWS_AS(TraceSink(file.path, Bytes{99'999}), UserError);
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
