#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <map>
#include <set>

#include "app/commands.h"
#include "base/error.h"
#include "base/rng.h"
#include "experiment/experiments.h"
#include "experiment/runner.h"
#include "launch/sweep_store.h"
#include "report/files.h"
#include "report/table.h"
#include "report/text.h"

extern char** environ;

namespace csdsim::app {
namespace {

using nlohmann::ordered_json;

/// Hash of the configuration and the build. A stored result is reused only when its key is the same.
std::string point_key(const scenario::SweepPoint& point) {
  const std::string text = scenario::effective_config(point.resolved.scenario).dump() + experiment::build_info().dump();
  static const std::uint64_t program = fnv1a64(report::read_file("/proc/self/exe"));  // changes with the code
  return fmt::format("{:016x}{:016x}", fnv1a64(text), program);
}

ordered_json axis_value(const std::string& text) {
  if (!text.empty() && text.find_first_not_of("0123456789") == std::string::npos) return std::stoull(text);
  return text;
}

/// A point that runs in a separate process, so that its failure does not stop the others.
struct RunningPoint {
  std::size_t index;
  std::filesystem::path directory;
};

class SweepRun {
 public:
  SweepRun(const SweepArguments& arguments, const scenario::Loaded& loaded, const std::filesystem::path& directory)
      : arguments_(arguments), loaded_(loaded), directory_(directory), store_(directory) {
    results_.resize(loaded.points.size());
    errors_.resize(loaded.points.size());
    if (!arguments.resume) store_.clear();
  }

  int run() {
    for (std::size_t i = 0; i < loaded_.points.size(); ++i) {
      if (auto stored = store_.find(i, point_key(loaded_.points[i]))) {
        results_[i] = std::move(*stored);
        ++finished_;
        note(i, "kept");
        continue;
      }
      while (running_.size() >= arguments_.jobs) reap();
      start(i);
    }
    while (!running_.empty()) reap();
    store_.write_results(rows());
    return status_;
  }

  std::vector<launch::SweepRow> rows() const {
    std::vector<launch::SweepRow> rows;
    for (std::size_t i = 0; i < results_.size(); ++i) {
      launch::SweepRow row{
          .index = i, .name = loaded_.points[i].name, .axes = {}, .result = results_[i], .error = errors_[i]};
      for (const auto& [path, value] : loaded_.points[i].axes) row.axes.emplace_back(path, axis_value(value));
      rows.push_back(std::move(row));
    }
    return rows;
  }

 private:
  void start(std::size_t index) {
    const scenario::SweepPoint& point = loaded_.points[index];
    const std::filesystem::path out = directory_ / "points" / point.name;
    report::write_file(messages(out), "");
    std::vector<std::string> words{"csdsim", "run", arguments_.scenario.string(), "--quiet", "--out", out.string()};
    for (const std::string& set : arguments_.overrides) words.insert(words.end(), {"--set", set});
    words.insert(words.end(), {"--point", std::to_string(index)});
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, messages(out).c_str(), O_WRONLY | O_TRUNC, 0);
    pid_t pid = 0;
    const int error = posix_spawn(&pid, "/proc/self/exe", &actions, nullptr, argv.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error != 0)
      throw UserError(fmt::format("sweep: a point cannot be started: {}", std::generic_category().message(error)));
    running_[pid] = {index, out};
  }

  void reap() {
    int code = 0;
    const pid_t pid = waitpid(-1, &code, 0);
    if (pid == -1 && errno != EINTR)
      throw InternalError(fmt::format("sweep: waiting for a point: {}", std::generic_category().message(errno)));
    const auto entry = running_.find(pid);
    if (entry == running_.end()) return;
    const RunningPoint point = entry->second;
    running_.erase(entry);
    ++finished_;
    if (!WIFEXITED(code) || WEXITSTATUS(code) != 0) {
      const int exit_status = WIFEXITED(code) ? WEXITSTATUS(code) : 1;
      status_ = status_ == 0 ? exit_status : std::min(status_, exit_status);
      const std::string what = WIFEXITED(code) ? "failed" : fmt::format("died of signal {}", WTERMSIG(code));
      const std::string said = report::read_file(messages(point.directory));
      std::fputs(said.c_str(), stderr);
      errors_[point.index] = said.empty() ? what : said.substr(0, said.find_last_not_of('\n') + 1);
      note(point.index, what);
      return;
    }
    results_[point.index] = ordered_json::parse(report::read_file(point.directory / "result.json"));
    store_.put(point.index, point_key(loaded_.points[point.index]), results_[point.index]);
    note(point.index, fmt::format("{:.1f} s", results_[point.index]["wall"]["wall_s"].get<double>()));
  }

  /// The file that receives stderr of a point.
  static std::filesystem::path messages(const std::filesystem::path& out) { return out / "stderr.txt"; }

  void note(std::size_t index, const std::string& what) const {
    if (arguments_.quiet) return;
    std::fprintf(stderr, "[%zu/%zu] %s: %s\n", finished_, loaded_.points.size(), loaded_.points[index].name.c_str(),
                 what.c_str());
  }

  const SweepArguments& arguments_;
  const scenario::Loaded& loaded_;
  std::filesystem::path directory_;
  launch::SweepStore store_;
  std::map<pid_t, RunningPoint> running_;
  std::vector<ordered_json> results_;
  std::vector<std::string> errors_;  ///< by point; empty unless the point failed
  std::size_t finished_ = 0;
  int status_ = 0;
};

/// The last part of a dotted path: "channels".
std::string short_name(const std::string& path) {
  const std::size_t dot = path.rfind('.');
  const std::string last = path.substr(dot + 1);
  // "kind" and "preset" mean nothing without the key before them.
  if (dot == std::string::npos || (last != "kind" && last != "preset")) return last;
  const std::size_t before = path.rfind('.', dot - 1);
  return path.substr(before == std::string::npos ? 0 : before + 1);
}

std::string text_of(const ordered_json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

/// The metric that a sweep is about, and the columns of its table.
struct Headline {
  std::string metric;
  std::vector<std::string> columns;
};
Headline headline(const launch::SweepRow& row) {
  const ordered_json& metrics = row.result["metrics"];
  if (metrics.contains("iops")) return {"iops", {"iops", "latency_mean_ns", "latency_p99_ns"}};
  if (!metrics.contains("decode_tokens_per_s")) return {"tokens_per_s", {"tokens_per_s", "ttft_s"}};
  return {"decode_tokens_per_s", {"decode_tokens_per_s", "tpot_s", "ttft_s", "kv_access_share"}};
}

std::string bound_text(const ordered_json& result) {
  const ordered_json breakdown = result.value("breakdown", ordered_json::object());
  if (!breakdown.contains("decode")) return "";
  const std::string bound = breakdown["decode"]["bound_by"];
  return fmt::format("{} {:.0f} %", bound, breakdown["decode"]["utilization"][bound].get<double>() * 100);
}

std::string sweep_table(const std::vector<launch::SweepRow>& rows, const Headline& head) {
  std::vector<std::string> header;
  for (const auto& [path, value] : rows.front().axes) header.push_back(short_name(path));
  header.insert(header.end(), head.columns.begin(), head.columns.end());
  header.emplace_back("decode bound by");
  report::Table table(header);
  for (const launch::SweepRow& row : rows) {
    std::vector<std::string> cells;
    for (const auto& [path, value] : row.axes) cells.push_back(text_of(value));
    const ordered_json metrics = row.error.empty() ? row.result["metrics"] : ordered_json::object();
    for (const std::string& column : head.columns)
      cells.push_back(metrics.contains(column) ? report::short_number(metrics[column].get<double>()) : "-");
    cells.push_back(row.error.empty() ? bound_text(row.result) : "failed");
    table.add_row(cells);
  }
  return table.to_text();
}

/// For each axis: the ratio of the headline metric at its last value to that at its first, all other axes equal.
std::string sweep_meaning(const std::vector<launch::SweepRow>& rows) {
  const std::string metric = headline(rows.front()).metric;
  std::string text;
  for (std::size_t axis = 0; axis < rows.front().axes.size(); ++axis) {
    const std::string& path = rows.front().axes[axis].first;
    const ordered_json first = rows.front().axes[axis].second;
    const ordered_json last = rows.back().axes[axis].second;
    if (first == last) continue;
    std::map<std::string, std::pair<double, double>> pairs;  // by the values of the other axes
    for (const launch::SweepRow& row : rows) {
      std::string others;
      for (std::size_t a = 0; a < row.axes.size(); ++a)
        if (a != axis) others += text_of(row.axes[a].second) + "|";
      const double value = row.result["metrics"].value(metric, 0.0);
      if (row.axes[axis].second == first) pairs[others].first = value;
      if (row.axes[axis].second == last) pairs[others].second = value;
    }
    double smallest = INFINITY;
    double largest = 0;
    for (const auto& [others, pair] : pairs) {
      if (pair.first <= 0 || pair.second <= 0) continue;
      smallest = std::min(smallest, pair.second / pair.first);
      largest = std::max(largest, pair.second / pair.first);
    }
    if (largest == 0) continue;
    const std::string range = largest - smallest < 0.005 * largest ? fmt::format("{:.2f}", largest)
                                                                   : fmt::format("{:.2f} to {:.2f}", smallest, largest);
    text += fmt::format("{} from {} to {}: {} is {} times as high.\n", short_name(path), text_of(first), text_of(last),
                        metric, range);
  }
  return text;
}

}  // namespace

int sweep(const SweepArguments& arguments) {
  const scenario::Loaded loaded = experiment::load_scenario(arguments.scenario, arguments.overrides);
  for (const std::string& note : loaded.base.notes) std::fprintf(stderr, "%s\n", note.c_str());
  if (loaded.points.empty())
    throw UserError(
        fmt::format("{}: has no sweep; add one, e.g. sweep: {{axes: {{platform.device.flash.channels: [4, 8]}}}}",
                    arguments.scenario.string()));
  const std::filesystem::path directory =
      arguments.out.value_or(std::filesystem::path("out") / loaded.base.scenario.name);
  SweepRun run(arguments, loaded, directory);
  const int status = run.run();
  const std::vector<launch::SweepRow> rows = run.rows();
  std::vector<launch::SweepRow> good;
  std::copy_if(rows.begin(), rows.end(), std::back_inserter(good),
               [](const launch::SweepRow& r) { return r.error.empty(); });
  if (good.empty()) return status;
  if (arguments.format == Format::csv) {
    fmt::print("{}", report::read_file(directory / "results.csv"));
  } else if (arguments.format == Format::json) {
    ordered_json all = ordered_json::array();
    for (const launch::SweepRow& row : rows)
      all.push_back(row.error.empty() ? row.result : ordered_json{{"name", row.name}, {"error", row.error}});
    fmt::print("{}\n", all.dump(2));
  } else {
    fmt::print("{}\n{}", sweep_table(rows, headline(good.front())), sweep_meaning(good));
    if (good.front().result["stats"].contains("simulated"))
      fmt::print("{}.\n", good.front().result["stats"]["simulated"].get<std::string>());
    fmt::print("All figures: {}\n", (directory / "results.csv").string());
  }
  return status;
}

}  // namespace csdsim::app
