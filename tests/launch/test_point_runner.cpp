// Points of a sweep as processes. The tests run shell scripts instead of simulations.
#include <signal.h>
#include <sqlite3.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <thread>
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
  std::map<std::size_t, std::string> refusals = {};
  std::vector<std::string> said;  ///< progress, one line per event
  std::vector<SweepRow> rows;

  explicit Sweep(std::vector<std::string> s) : scripts(std::move(s)), fingerprints(scripts.size()) {
    std::iota(fingerprints.begin(), fingerprints.end(), 1);
    std::filesystem::remove_all(directory);
  }
  ~Sweep() { std::filesystem::remove_all(directory); }

  int run(bool resume = false, std::size_t jobs = 1) {
    said.clear();
    std::vector<Point> points;
    for (std::size_t i = 0; i < scripts.size(); ++i)
      points.push_back({.name = "p" + std::to_string(i),
                        .axes = {{"a.x", i}},
                        .fingerprint = fingerprints[i],
                        .refusal = refusals[i]});
    PointRunner runner(points,
                       {.directory = directory,
                        .run = [&](std::size_t i, const std::filesystem::path& out, const TellProgress&) -> int {
                          execl("/bin/sh", "sh", "-c", scripts[i].c_str(), (out / "result.json").c_str(), nullptr);
                          return 127;
                        },
                        .jobs = jobs,
                        .resume = resume,
                        .overwrite = !resume,
                        .progress =
                            [&](const PointEvent& e) {
                              said.push_back(std::to_string(e.finished) + "/" + std::to_string(e.total) + " " + e.name +
                                             ": " + e.what + "|" + e.said);
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

TEST_CASE("a point that cannot run has a row with the reason and is not started") {
  Sweep sweep({writes(1), writes(2), writes(3)});
  sweep.refusals[1] = "s.yaml:1:2: error: too large\ns.yaml:2:2: error: too slow";
  for (const bool resume : {false, true}) {
    CHECK(sweep.run(resume) == 2);
    REQUIRE(sweep.rows.size() == 3);
    CHECK(sweep.rows[1].error == sweep.refusals[1]);
    CHECK(sweep.rows[2].result["metrics"]["iops"] == 3);
    CHECK(sweep.said[0] == "1/3 " + std::string(resume ? "p0: kept|" : "p1: does not fit|" + sweep.refusals[1] + "\n"));
  }
  CHECK_FALSE(std::filesystem::exists(sweep.directory / "points" / "p1"));
}

TEST_CASE("a point that runs for long says how far it is, about once a second") {
  Sweep sweep({});
  std::vector<std::string> heard;
  PointRunner runner({{.name = "long", .axes = {}, .fingerprint = 1}, {.name = "short", .axes = {}, .fingerprint = 2}},
                     {.directory = sweep.directory,
                      .run =
                          [](std::size_t index, const std::filesystem::path& out, const TellProgress& tell) {
                            for (std::uint64_t step = 0; index == 0 && step < 250; ++step) {
                              tell("steps", step, 250);
                              std::this_thread::sleep_for(std::chrono::milliseconds(10));
                            }
                            report::write_file(out / "result.json", R"({"metrics": {}, "wall": {"wall_s": 1}})");
                            return 0;
                          },
                      .jobs = 2,
                      .point_progress =
                          [&](const std::string& name, const PointProgress& p) {
                            heard.push_back(name + " " + p.what);
                            CHECK(p.done > 50);
                            CHECK(p.total == 250);
                          }});
  CHECK(runner.run() == 0);
  CHECK(runner.rows().size() == 2);
  // The points take 2.5 s; on a busy machine they take longer, and more messages come.
  REQUIRE(heard.size() >= 2);
  CHECK(heard.size() < 50);
  CHECK(std::ranges::all_of(heard, [](const std::string& text) { return text == "long steps"; }));
}

TEST_CASE("with resume, results with the same fingerprint are kept") {
  Sweep sweep({writes(5), writes(6), "exit 2"});
  sweep.run();
  sweep.scripts = {writes(7), writes(8), writes(9)};
  sweep.fingerprints[1] = 7;
  CHECK(sweep.run(true) == 0);
  CHECK(sweep.said == std::vector<std::string>{"1/3 p0: kept|", "2/3 p1: 1.2 s|", "3/3 p2: 1.2 s|"});
  CHECK(sweep.csv() == "point,name,a.x,iops,wall_s\n0,p0,0,5,1.25\n1,p1,1,8,1.25\n2,p2,2,9,1.25\n");
  sweep.scripts = {writes(1), writes(2), writes(3)};
  CHECK(sweep.run(false) == 0);
  CHECK(sweep.csv() == "point,name,a.x,iops,wall_s\n0,p0,0,1,1.25\n1,p1,1,2,1.25\n2,p2,2,3,1.25\n");
}

TEST_CASE("points with the same fingerprint run once") {
  Sweep sweep({writes(5), "exit 1", writes(6), "exit 2", "exit 2"});
  sweep.fingerprints = {1, 1, 2, 3, 3};
  CHECK(sweep.run() == 2);
  CHECK(sweep.said == std::vector<std::string>{"1/5 p0: 1.2 s|", "2/5 p1: same as p0|", "3/5 p2: 1.2 s|",
                                               "4/5 p3: failed|", "5/5 p4: same as p3|"});
  CHECK(sweep.csv() ==
        "point,name,a.x,iops,wall_s,error\n0,p0,0,5,1.25,\n1,p1,1,5,1.25,\n2,p2,2,6,1.25,\n3,p3,3,,,failed\n"
        "4,p4,4,,,failed\n");
}

TEST_CASE("a resumed sweep finds its results wherever the points stand now") {
  Sweep sweep({writes(5), writes(6)});
  sweep.run();
  sweep.scripts = {writes(7), writes(8), writes(9)};
  sweep.fingerprints = {9, 2, 1};
  CHECK(sweep.run(true) == 0);
  CHECK(sweep.csv() == "point,name,a.x,iops,wall_s\n0,p0,0,7,1.25\n1,p1,1,6,1.25\n2,p2,2,5,1.25\n");
}

TEST_CASE("the rate counts what has run, and the time left is for the rest") {
  const auto directory = std::filesystem::temp_directory_path() / "csdsim_test_rate";
  std::filesystem::remove_all(directory);
  std::vector<PointEvent> events;
  std::vector<Point> points;
  for (int i = 0; i < 3; ++i) points.push_back({.name = std::to_string(i), .axes = {}, .fingerprint = 1u + i / 2});
  points.push_back({.name = "3", .axes = {}, .fingerprint = 3});
  PointRunner runner(points, {.directory = directory,
                              .run = [](std::size_t, const std::filesystem::path& out, const TellProgress&) -> int {
                                std::this_thread::sleep_for(std::chrono::milliseconds(200));
                                report::write_file(out / "result.json", R"({"metrics": {}, "wall": {"wall_s": 0.2}})");
                                return 0;
                              },
                              .progress = [&](const PointEvent& event) { events.push_back(event); }});
  CHECK(runner.run() == 0);
  REQUIRE(events.size() == 4);
  CHECK(events[0].points_per_s < 5);
  CHECK(events[0].left_s == Approx(3 / events[0].points_per_s));
  CHECK(events[2].left_s == Approx(1 / events[2].points_per_s));
  CHECK(events[3].left_s == 0);
  std::filesystem::remove_all(directory);
}

TEST_CASE("a point that throws ends with its message, and the caller's state is untouched") {
  Sweep sweep({});
  int runs = 0;
  std::vector<std::string> said;
  const auto run = [&](std::size_t index, const std::filesystem::path&, const TellProgress&) -> int {
    ++runs;
    if (index == 0) throw UserError("a mistake of the user");
    throw InternalError("a mistake of ours");
  };
  PointRunner runner(
      {{.name = "p0", .axes = {}, .fingerprint = 1}, {.name = "p1", .axes = {}, .fingerprint = 2}},
      {.directory = sweep.directory, .run = run, .progress = [&](const PointEvent& e) { said.push_back(e.said); }});
  CHECK(runner.run() == 1);
  CHECK(said == std::vector<std::string>{"a mistake of the user\n", "internal error: a mistake of ours\n"});
  CHECK(runs == 0);
}

TEST_CASE("a second sweep of the same directory is refused, and the first one goes on") {
  Sweep first({writes(5)});
  const auto run = [&](std::size_t, const std::filesystem::path& out, const TellProgress&) -> int {
    report::write_file(out / "result.json", R"({"metrics": {"iops": 5}, "wall": {"wall_s": 1.25}})");
    return 0;
  };
  PointRunner runner({{.name = "p0", .axes = {}}}, {.directory = first.directory, .run = run});
  CHECK_THROWS_WITH(PointRunner({{.name = "p0", .axes = {}}}, {.directory = first.directory, .run = run}),
                    Catch::Contains("another csdsim writes its results here"));
  CHECK(runner.run() == 0);
  CHECK(runner.rows()[0].result["metrics"]["iops"] == 5);
}

TEST_CASE("a reader of the database holds up a sweep and does not end it") {
  Sweep sweep({writes(5), writes(6)});
  CHECK(sweep.run() == 0);
  sqlite3* reader = nullptr;
  REQUIRE(sqlite3_open((sweep.directory / "results.sqlite").c_str(), &reader) == SQLITE_OK);
  REQUIRE(sqlite3_exec(reader, "BEGIN; SELECT * FROM points", nullptr, nullptr, nullptr) == SQLITE_OK);
  std::thread end([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(400));
    sqlite3_exec(reader, "COMMIT", nullptr, nullptr, nullptr);
  });
  sweep.scripts = {writes(7), writes(8)};
  CHECK(sweep.run() == 0);
  end.join();
  sqlite3_close(reader);
  CHECK(sweep.csv() == "point,name,a.x,iops,wall_s\n0,p0,0,7,1.25\n1,p1,1,8,1.25\n");
}

namespace {

/// Runs points that write the process that they ran in; returns it by point, 0 for those that failed.
std::vector<pid_t> processes_of(std::size_t points, const std::function<int(std::size_t)>& run,
                                const std::function<void(pid_t)>& after_each = {}) {
  const auto directory = std::filesystem::temp_directory_path() / "csdsim_test_processes";
  std::filesystem::remove_all(directory);
  std::vector<Point> list;
  for (std::size_t i = 0; i < points; ++i)
    list.push_back({.name = std::to_string(i), .axes = {}, .fingerprint = i + 1});
  PointRunner runner(
      list, {.directory = directory,
             .run = [&](std::size_t i, const std::filesystem::path& out, const TellProgress&) -> int {
               const int status = run(i);
               report::write_file(out / "result.json", R"({"metrics": {"pid": )" + std::to_string(getpid()) +
                                                           R"(}, "wall": {"wall_s": 0}})");
               return status;
             },
             .progress =
                 [&](const PointEvent& event) {
                   if (after_each && event.what != "failed")
                     after_each(nlohmann::json::parse(
                         report::read_file(directory / "points" / event.name / "result.json"))["metrics"]["pid"]);
                 }});
  runner.run();
  std::vector<pid_t> processes;
  for (const SweepRow& row : runner.rows())
    processes.push_back(row.error.empty() ? row.result["metrics"]["pid"].get<pid_t>() : 0);
  std::filesystem::remove_all(directory);
  return processes;
}

}  // namespace

TEST_CASE("short points share a process; the next point after a long or a failed one has another") {
  const std::vector<pid_t> in = processes_of(6, [](std::size_t i) {
    while (i == 1 && std::clock() < 11 * CLOCKS_PER_SEC / 10) {
    }
    return i == 3 ? 5 : 0;
  });
  CHECK(in[0] == in[1]);
  CHECK(in[2] != in[1]);
  CHECK(in[3] == 0);
  CHECK(in[4] != in[2]);
  CHECK(in[5] == in[4]);
  for (const pid_t process : in) CHECK(process != getpid());
}

TEST_CASE("a process that is killed between two points is replaced") {
  const std::vector<pid_t> in = processes_of(
      3, [](std::size_t) { return 0; },
      [](pid_t process) {
        kill(process, SIGKILL);
        siginfo_t ended;
        waitid(P_PID, static_cast<id_t>(process), &ended, WEXITED | WNOWAIT);  // whoever waits for it still finds it
      });
  CHECK(in[0] != in[1]);
  CHECK(in[1] != in[2]);
  CHECK(in[2] != 0);
}

TEST_CASE("results of short runs are durable a second later, or with the next longer one") {
  using enum SweepStore::Stored;
  const auto directory = std::filesystem::temp_directory_path() / "csdsim_test_durable";
  for (const double last : {0.0, 5.0}) {
    std::filesystem::remove_all(directory);
    const pid_t writer = fork();
    if (writer == 0) {
      SweepStore store(directory);
      store.begin({}, false);
      store.put("a", "{}", 0);  // nothing has been stored for a second
      store.put("b", "{}", 0);
      store.put("c", "{}", last);
      _exit(0);  // as if it were killed
    }
    waitpid(writer, nullptr, 0);
    const SweepStore store(directory);
    CHECK(store.find("a") == yes);
    CHECK((store.find("b") == yes) == (last > 0));
    CHECK((store.find("c") == yes) == (last > 0));
  }
  {
    SweepStore store(directory);
    store.put("d", "{}", 0);
    store.put("e", "{}", 0);
  }
  CHECK(SweepStore(directory).find("e") == yes);
  std::filesystem::remove_all(directory);
}

TEST_CASE("a stored result is the document without its indentation, and its parts are those that are asked for") {
  const auto directory = std::filesystem::temp_directory_path() / "csdsim_test_parts";
  std::filesystem::remove_all(directory);
  const nlohmann::ordered_json document = {
      {"metrics", {{"iops", 5}, {"note", "a  b\n  \"c\": 1"}}},
      {"stats", {{"simulated", "all"}, {"drive", {{"simulated", 1}, {"x", {1, 2}}}}}},
      {"metric", {{"iops", 9}}},
      {"metrics2", {{"iops", 6}}},
      {"scenario", {{"metrics", {{"iops", 7}}}, {"list", {{{"simulated", 8}}}}}}};
  SweepStore store(directory);
  store.begin({}, false);
  store.put("a", document.dump(2) + "\n", 0);
  CHECK(store.result("a", {}).dump() == document.dump());
  const nlohmann::ordered_json some = store.result("a", {"metrics", "stats.simulated", "nothing.here"});
  CHECK(some.dump() ==
        nlohmann::ordered_json({{"metrics", document["metrics"]}, {"stats", {{"simulated", "all"}}}}).dump());
  CHECK_THROWS_AS(store.result("b", {}), InternalError);
  CHECK(parts_of(document.dump(2), {"stats.drive"}, "text")["stats"]["drive"].dump() ==
        document["stats"]["drive"].dump());
  std::filesystem::remove_all(directory);
}

TEST_CASE("the points end with the sweep, even if it is killed") {
  const auto directory = std::filesystem::temp_directory_path() / "csdsim_test_killed_sweep";
  std::filesystem::remove_all(directory);
  const pid_t sweep = fork();
  if (sweep == 0) {
    PointRunner runner(
        {{.name = "p0", .axes = {}}},
        {.directory = directory, .run = [&](std::size_t, const std::filesystem::path& out, const TellProgress&) -> int {
           report::write_file(out / "pid", std::to_string(getpid()));
           std::this_thread::sleep_for(std::chrono::minutes(1));
           return 0;
         }});
    runner.run();
    _exit(0);
  }
  const auto pid_file = directory / "points" / "p0" / "pid";
  const auto wait_for = [](const auto& condition) {
    for (int tried = 0; tried < 300 && !condition(); ++tried)
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    return condition();
  };
  REQUIRE(wait_for([&] { return std::filesystem::exists(pid_file); }));
  const pid_t point = std::stoi(report::read_file(pid_file));
  CHECK(kill(point, 0) == 0);
  kill(sweep, SIGKILL);
  waitpid(sweep, nullptr, 0);
  // Whoever adopts the point may leave it as a zombie, which runs no more.
  CHECK(wait_for([&] {
    const std::filesystem::path state = "/proc/" + std::to_string(point) + "/stat";
    return !std::filesystem::exists(state) || report::read_file(state).find(") Z") != std::string::npos;
  }));
  std::filesystem::remove_all(directory);
}

TEST_CASE("numbers beyond those of SQLite keep their digits") {
  const auto directory = std::filesystem::temp_directory_path() / "csdsim_test_large_numbers";
  std::filesystem::remove_all(directory);
  const std::uint64_t large = 18'446'744'073'709'551'615u;
  {
    SweepStore store(directory);
    store.begin({{.name = "p", .axes = {{"seed", large}}, .key = "k"}}, false);
    store.write_results({{.index = 0, .name = "p", .axes = {{"seed", large}}, .result = {}, .error = ""}});
  }
  sqlite3* db = nullptr;
  REQUIRE(sqlite3_open((directory / "results.sqlite").c_str(), &db) == SQLITE_OK);
  std::string found;
  sqlite3_exec(
      db, "SELECT seed FROM results",
      [](void* to, int, char** columns, char**) {
        *static_cast<std::string*>(to) = columns[0];
        return 0;
      },
      &found, nullptr);
  sqlite3_close(db);
  CHECK(found == std::to_string(large));
  std::filesystem::remove_all(directory);
}

TEST_CASE("a file that cannot be written leaves the one that was there") {
  CHECK_THROWS_WITH(report::write_file("/dev/full", "text"), "/dev/full: cannot be written: No space left on device");
  const auto directory = std::filesystem::temp_directory_path() / "csdsim_test_written";
  std::filesystem::remove_all(directory);
  report::write_file(directory / "a", "first");
  report::write_file(directory / "a", "second");
  CHECK(report::read_file(directory / "a") == "second");
  std::filesystem::create_directory(directory / "b.part");
  CHECK_THROWS_WITH(report::write_file(directory / "b", "text"), Catch::Contains("b: cannot be written"));
  std::filesystem::remove_all(directory);
}

}  // namespace test_point_runner
