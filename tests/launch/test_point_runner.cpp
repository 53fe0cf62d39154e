// Points of a sweep as processes. The tests run shell scripts instead of simulations.
#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"
#include "launch/point_runner.h"
#include "report/files.h"

namespace test_point_runner {

using namespace csdsim;
using namespace csdsim::launch;

namespace {

/// A script that writes a result with one metric.
std::string writes(int iops) {
  return "echo '{\"metrics\": {\"iops\": " + std::to_string(iops) + "}, \"wall\": {\"wall_s\": 1.25}}' > \"$0\"; ";
}

struct Sweep {
  std::filesystem::path directory = std::filesystem::temp_directory_path() / "csdsim_test_point_runner";
  std::vector<std::string> scripts;
  std::vector<std::uint64_t> fingerprints;
  std::vector<std::string> said;  ///< progress, one line per event
  std::vector<SweepRow> rows;

  explicit Sweep(std::vector<std::string> s) : scripts(std::move(s)), fingerprints(scripts.size(), 1) {
    std::filesystem::remove_all(directory);
  }
  ~Sweep() { std::filesystem::remove_all(directory); }

  int run(bool resume = false, std::size_t jobs = 1) {
    said.clear();
    std::vector<Point> points;
    for (std::size_t i = 0; i < scripts.size(); ++i)
      points.push_back({.name = "p" + std::to_string(i), .axes = {{"a.x", i}}, .fingerprint = fingerprints[i]});
    PointRunner runner(points, {.directory = directory,
                                .arguments =
                                    [&](std::size_t i, const std::filesystem::path& out) {
                                      return std::vector<std::string>{"-c", scripts[i], (out / "result.json").string()};
                                    },
                                .program = "/bin/sh",
                                .jobs = jobs,
                                .resume = resume,
                                .progress =
                                    [&](const PointEvent& e) {
                                      said.push_back(std::to_string(e.finished) + "/" + std::to_string(e.total) + " " +
                                                     e.name + ": " + e.what + "|" + e.said);
                                    }});
    const int status = runner.run();
    rows = runner.rows();
    return status;
  }
  std::string csv() const { return report::read_file(directory / "results.csv"); }
};

}  // namespace

TEST_CASE("rows are in the order of the points, whichever point ends first") {
  Sweep sweep({"sleep 0.3; " + writes(5), writes(6)});
  CHECK(sweep.run(false, 2) == 0);
  CHECK(sweep.said == std::vector<std::string>{"1/2 p1: 1.2 s|", "2/2 p0: 1.2 s|"});
  CHECK(sweep.csv() == "point,name,a.x,iops,wall_s\n0,p0,0,5,1.25\n1,p1,1,6,1.25\n");
}

TEST_CASE("at most `jobs` points run at the same time") {
  const std::size_t jobs = GENERATE(1U, 3U);
  // Each point counts the running points, itself included.
  const std::string script =
      "d=\"${0%/points/*}\"; touch \"$d/on.$$\"; sleep 0.2; set -- \"$d\"/on.*; n=$#; sleep 0.2; rm \"$d/on.$$\"; "
      "echo \"{\\\"metrics\\\": {\\\"iops\\\": $n}, \\\"wall\\\": {\\\"wall_s\\\": 0}}\" > \"$0\"";
  Sweep sweep(std::vector<std::string>(4, script));
  CHECK(sweep.run(false, jobs) == 0);
  std::size_t most = 0;
  for (const SweepRow& row : sweep.rows) most = std::max(most, row.result["metrics"]["iops"].get<std::size_t>());
  CHECK(most == jobs);
}

TEST_CASE("a point that fails has a row with the reason, and the other points run") {
  Sweep sweep({"echo broken >&2; exit 2", writes(6), "kill -9 $$", "exit 3"});
  CHECK(sweep.run() == 1);  // a signal counts as 1, the smallest status
  CHECK(sweep.said == std::vector<std::string>{"1/4 p0: failed|broken\n", "2/4 p1: 1.2 s|", "3/4 p2: died of signal 9|",
                                               "4/4 p3: failed|"});
  CHECK(sweep.csv() ==
        "point,name,a.x,iops,wall_s,error\n0,p0,0,,,broken\n1,p1,1,6,1.25,\n2,p2,2,,,died of signal "
        "9\n3,p3,3,,,failed\n");
  sweep.scripts = {"exit 3", "exit 2", writes(1), writes(1)};
  CHECK(sweep.run() == 2);
}

TEST_CASE("with resume, results with the same fingerprint are kept") {
  Sweep sweep({writes(5), writes(6), "exit 2"});
  sweep.run();
  sweep.scripts = {writes(7), writes(8), writes(9)};
  sweep.fingerprints[1] = 2;
  CHECK(sweep.run(true) == 0);
  CHECK(sweep.said == std::vector<std::string>{"1/3 p0: kept|", "2/3 p1: 1.2 s|", "3/3 p2: 1.2 s|"});
  CHECK(sweep.csv() == "point,name,a.x,iops,wall_s\n0,p0,0,5,1.25\n1,p1,1,8,1.25\n2,p2,2,9,1.25\n");
  CHECK(sweep.run(false) == 0);
  CHECK(sweep.csv() == "point,name,a.x,iops,wall_s\n0,p0,0,7,1.25\n1,p1,1,8,1.25\n2,p2,2,9,1.25\n");
}

TEST_CASE("a program that cannot be started is an error") {
  Sweep sweep({writes(1)});
  const auto file = std::filesystem::temp_directory_path() / "csdsim_test_no_program";
  report::write_file(file, "");
  PointRunner runner({{.name = "p", .axes = {}}},
                     {.directory = sweep.directory,
                      .arguments = [](auto, const auto&) { return std::vector<std::string>{}; },
                      .program = file});
  CHECK_THROWS_WITH(runner.run(), Catch::Contains("cannot be started"));
  std::filesystem::remove(file);
}

}  // namespace test_point_runner
