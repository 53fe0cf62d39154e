#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <string_view>

#include "app/commands.h"
#include "base/error.h"
#include "base/text.h"
#include "experiment/experiments.h"
#include "experiment/runner.h"
#include "launch/input_files.h"
#include "launch/point_runner.h"
#include "launch/ranks.h"
#include "launch/sweep_store.h"
#include "report/files.h"
#include "report/result_lookup.h"
#include "report/search.h"
#include "report/table.h"
#include "report/text.h"

namespace csdsim::app {
namespace {

using nlohmann::ordered_json;

ordered_json axis_value(const std::string& text) {
  if (!text.empty() && text.find_first_not_of("0123456789") == std::string::npos) return std::stoull(text);
  return text;
}

/// The value of a path that is no axis of this scenario, as its effective configuration has it.
ordered_json fixed_value(const ordered_json& config, const std::string& path) {
  const ordered_json* value = report::find_path(config, path);
  if (value != nullptr && value->is_object()) value = report::find_path(*value, "kind");
  return value == nullptr ? ordered_json(nullptr) : *value;
}

/// Whether a path is the other one, or a map that holds it.
bool holds(const std::string& outer, const std::string& path) {
  return path.starts_with(outer) && (path.size() == outer.size() || path[outer.size()] == '.');
}

/// UserError for an override that no point would have, because an axis sets the same key.
void refuse_set_axes(const std::vector<std::string>& overrides, const scenario::SweepPoint& point) {
  for (const std::string& set : overrides)
    for (const auto& [axis, value] : point.axes)
      if (const std::string path = set.substr(0, set.find('=')); holds(axis, path) || holds(path, axis))
        throw UserError(fmt::format(
            "--set {}: {} is an axis of the sweep; change the axis: --set 'sweep.axes.{}=[...]'", set, axis, axis));
}

/// What a sweep runs: the points of one scenario, or of several with the scenario as the first axis.
struct Plan {
  std::vector<scenario::Loaded> loaded;
  std::vector<const scenario::Scenario*> scenarios;  ///< by point
  std::vector<launch::Point> points;
  report::Search search;
};

void add_point(Plan& plan, const std::string& name, const std::vector<std::pair<std::string, std::string>>& axes,
               const std::vector<std::string>& paths, const scenario::Scenario& s, launch::InputFiles& inputs) {
  const bool several = plan.loaded.size() > 1;
  launch::Point point{.name = name, .axes = {}, .fingerprint = fingerprint(s, inputs)};
  if (several) {
    point.name = fmt::format("scenario={}{}{}", s.name, name.empty() ? "" : ",", name);
    point.axes.emplace_back("scenario", s.name);
  }
  const ordered_json config = several ? scenario::effective_config(s) : ordered_json();
  for (const std::string& path : paths) {
    const auto axis = std::ranges::find(axes, path, &std::pair<std::string, std::string>::first);
    point.axes.emplace_back(path, axis == axes.end() ? fixed_value(config, path) : axis_value(axis->second));
  }
  plan.points.push_back(std::move(point));
  plan.scenarios.push_back(&s);
}

Plan plan_of(const SweepArguments& arguments, launch::InputFiles& inputs, bool notes) {
  Plan plan;
  std::vector<std::string> paths;
  std::set<std::string> names;
  for (const std::filesystem::path& file : arguments.scenarios) {
    const scenario::Loaded& loaded = plan.loaded.emplace_back(experiment::load_scenario(file, arguments.overrides));
    if (notes)
      for (const std::string& note : loaded.base.notes) std::fprintf(stderr, "%s\n", note.c_str());
    if (!names.insert(loaded.base.scenario.name).second)
      throw UserError(fmt::format("{}: a second scenario has the name '{}'; give them different names", file.string(),
                                  loaded.base.scenario.name));
    if (loaded.points.empty() && arguments.scenarios.size() == 1)
      throw UserError(
          fmt::format("{}: has no sweep; add one, e.g. sweep: {{axes: {{platform.device.flash.channels: [4, 8]}}}}",
                      file.string()));
    if (!loaded.points.empty()) {
      refuse_set_axes(arguments.overrides, loaded.points.front());
      for (const auto& [path, value] : loaded.points.front().axes)
        if (std::ranges::find(paths, path) == paths.end()) paths.push_back(path);
    }
    if (loaded.search.empty()) continue;
    if (!plan.search.empty() && plan.search.text() != loaded.search.text())
      throw UserError(fmt::format("{}: searches for something else than the scenario before it", file.string()));
    plan.search = loaded.search;
  }
  for (const scenario::Loaded& loaded : plan.loaded) {
    if (loaded.points.empty()) add_point(plan, "", {}, paths, loaded.base.scenario, inputs);
    for (const scenario::SweepPoint& point : loaded.points)
      add_point(plan, point.name, point.axes, paths, point.scenario, inputs);
  }
  return plan;
}

/// What the scenarios ask, a line each.
std::string questions_of(const Plan& plan) {
  std::vector<std::string> questions;
  for (const scenario::Loaded& loaded : plan.loaded)
    if (!loaded.base.question.empty()) questions.push_back(loaded.base.question);
  return join(questions, "\n");
}

/// "2/8" as the second of eight parts.
launch::Shard shard_of(const std::optional<std::string>& text) {
  if (!text) return {};
  std::size_t part = 0, count = 0, end = 0;
  if (std::sscanf(text->c_str(), "%zu/%zu%zn", &part, &count, &end) != 2 || end != text->size() || part < 1 ||
      part > count || text->front() == '-')
    throw UserError(fmt::format("--shard {}: expected I/N, the I-th of N parts, e.g. 2/8", printable(*text)));
  return {.index = part - 1, .count = count};
}

void print_progress(const launch::PointEvent& event, bool quiet) {
  std::fputs(event.said.c_str(), stderr);
  if (quiet) return;
  const std::string rate =
      event.points_per_s > 0 && event.finished < event.total
          ? fmt::format("; {}, about {:.0f} s left",
                        event.points_per_s >= 1 ? fmt::format("{:.1f} points/s", event.points_per_s)
                                                : fmt::format("{:.1f} s per point", 1 / event.points_per_s),
                        event.left_s)
          : "";
  std::fprintf(stderr, "[%zu/%zu] %s: %s%s\n", event.finished, event.total, event.name.c_str(), event.what.c_str(),
               rate.c_str());
}

/// The last part of a dotted path: "channels".
std::string short_name(const std::string& path) {
  const std::size_t dot = path.rfind('.');
  const std::string last = path.substr(dot + 1);
  // "kind" and "preset" mean nothing without the key before them.
  if (dot == std::string::npos || (last != "kind" && last != "preset")) return last;
  const std::size_t before = path.rfind('.', dot - 1);
  return path.substr(before == std::string::npos ? 0 : before + 1);
}

std::string value_text(const ordered_json& value) {
  if (value.is_null()) return "-";
  return value.is_string() ? value.get<std::string>() : value.dump();
}

/// The metric that a sweep is about, the columns of its table, and the part of a run of which it says what binds; a
/// workload may have neither the first nor the last.
struct Headline {
  std::string metric;
  std::vector<std::string> columns;
  std::string part;
};
Headline headline(const launch::SweepRow& row) {
  const ordered_json& metrics = row.result["metrics"];
  if (metrics.contains("iops")) return {"iops", {"iops", "latency_mean_ns", "latency_p99_ns"}, "measured"};
  if (!metrics.contains("tokens_per_s")) {  // a workload with metrics of its own
    Headline head;
    for (const auto& [name, value] : metrics.items())
      if (value.is_number() && head.columns.size() < 4) head.columns.push_back(name);
    return head;
  }
  if (!metrics.contains("decode_tokens_per_s")) return {"tokens_per_s", {"tokens_per_s", "ttft_s"}, "decode"};
  return {"decode_tokens_per_s", {"decode_tokens_per_s", "tpot_s", "ttft_s", "kv_access_share"}, "decode"};
}

/// What binds in a part of a run, and how busy it is: "flash_channels 97 %".
std::string bound_text(const ordered_json& result, const std::string& part) {
  const ordered_json breakdown = result.value("breakdown", ordered_json::object());
  if (!breakdown.contains(part) || !breakdown[part].contains("bound_by")) return "";
  const std::string bound = breakdown[part]["bound_by"];
  return fmt::format("{} {:.0f} %", bound, breakdown[part]["utilization"][bound].get<double>() * 100);
}

std::string sweep_table(const std::vector<launch::SweepRow>& rows, const Headline& head) {
  std::vector<std::string> header;
  for (const auto& [path, value] : rows.front().axes) header.push_back(short_name(path));
  header.insert(header.end(), head.columns.begin(), head.columns.end());
  const bool failed = std::ranges::any_of(rows, [](const launch::SweepRow& row) { return !row.error.empty(); });
  if (!head.part.empty() || failed) header.emplace_back(head.part == "decode" ? "decode bound by" : "bound by");
  report::Table table(header);
  for (const launch::SweepRow& row : rows) {
    std::vector<std::string> cells;
    for (const auto& [path, value] : row.axes) cells.push_back(value_text(value));
    const ordered_json metrics = row.error.empty() ? row.result["metrics"] : ordered_json::object();
    for (const std::string& column : head.columns)
      cells.push_back(metrics.contains(column) ? report::short_number(metrics[column].get<double>()) : "-");
    if (cells.size() < header.size()) cells.push_back(row.error.empty() ? bound_text(row.result, head.part) : "failed");
    table.add_row(cells);
  }
  return table.to_text();
}

/// For each axis: the ratio of the headline metric at its last value to that at its first, all other axes equal.
std::string sweep_meaning(const std::vector<const launch::SweepRow*>& rows) {
  const std::string metric = headline(*rows.front()).metric;
  std::string text;
  for (std::size_t axis = 0; axis < rows.front()->axes.size(); ++axis) {
    const std::string& path = rows.front()->axes[axis].first;
    const ordered_json first = rows.front()->axes[axis].second;
    const ordered_json last = rows.back()->axes[axis].second;
    if (first == last) continue;
    std::map<std::string, std::pair<double, double>> pairs;  // by the values of the other axes
    for (const launch::SweepRow* row : rows) {
      std::string others;
      for (std::size_t a = 0; a < row->axes.size(); ++a)
        if (a != axis) others += value_text(row->axes[a].second) + "|";
      const double value = row->result["metrics"].value(metric, 0.0);
      if (row->axes[axis].second == first) pairs[others].first = value;
      if (row->axes[axis].second == last) pairs[others].second = value;
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
    text += fmt::format("{} from {} to {}: {} is {} times as high.\n", short_name(path), value_text(first),
                        value_text(last), metric, range);
  }
  return text;
}

/// What print_rows() needs of the results.
launch::ResultParts printed_parts(const report::Search& search, Format format) {
  if (format == Format::json) return {};
  launch::ResultParts parts{"metrics", "wall", "breakdown.decode", "breakdown.measured", "stats.simulated"};
  for (const std::string& name : search.names())
    parts.insert(name.substr(0, std::min(name.find('.', name.find('.') + 1), name.size())));
  return parts;
}

/// Prints the rows of a sweep and, if something is searched for, the best points.
void print_rows(const std::vector<launch::SweepRow>& rows, const report::Search& search,
                const std::filesystem::path& directory, Format format) {
  std::vector<const launch::SweepRow*> good;
  for (const launch::SweepRow& row : rows)
    if (row.error.empty()) good.push_back(&row);
  if (good.empty()) return;
  if (format == Format::csv || format == Format::json_lines) {
    fmt::print("{}", report::read_file(directory / (format == Format::csv ? "results.csv" : "results.jsonl")));
  } else if (format == Format::json) {
    ordered_json all = ordered_json::array();
    for (const launch::SweepRow& row : rows)
      all.push_back(row.error.empty() ? row.result : ordered_json{{"name", row.name}, {"error", row.error}});
    fmt::print("{}\n", all.dump(2));
  } else {
    fmt::print("{}\n{}", sweep_table(rows, headline(*good.front())), sweep_meaning(good));
    if (const ordered_json& stats = good.front()->result["stats"]; stats.contains("simulated"))
      fmt::print("{}.\n", stats["simulated"].get<std::string>());
  }
  if (!search.empty()) {
    std::vector<ordered_json> results;
    std::vector<std::string> names;
    for (const launch::SweepRow& row : rows) {
      results.push_back(row.result);
      names.push_back(row.name);
    }
    const report::Found found = report::search_points(search, results);
    report::write_file(directory / "search.json", report::search_document(search, found, names).dump(2) + "\n");
    if (format == Format::table) fmt::print("\n{}", report::search_text(search, found, results, names));
  }
  if (format == Format::table)
    fmt::print("All figures: {}; pictures: csdsim report {}\n", (directory / "results.csv").string(),
               directory.string());
}

}  // namespace

namespace {

/// The work of a rank of mpirun other than the first. What fails in all ranks, the first one says.
int serve(const SweepArguments& arguments, launch::Ranks& ranks) {
  try {
    launch::InputFiles inputs;
    const Plan plan = plan_of(arguments, inputs, false);
    launch::serve_points(ranks, launch::digest_of(plan.points),
                         [&](std::size_t index, const std::filesystem::path& out) {
                           return run_point(*plan.scenarios[index], inputs, out);
                         });
    return 0;
  } catch (const UserError& error) {
    launch::refuse_to_serve(ranks, error.what());
    return 2;
  }
}

}  // namespace

namespace {

pid_t sweeping_process = 0;

/// Says how an interrupted sweep goes on, and ends the process as the signal would.
void on_interrupt(int signal) {
  constexpr std::string_view kSaid = "\ncsdsim sweep: interrupted; the same command with --resume goes on\n";
  if (getpid() == sweeping_process && ::write(STDERR_FILENO, kSaid.data(), kSaid.size()) < 0) ::_exit(1);
  raise(signal);  // once this function has returned
}

void tell_interrupts() {
  sweeping_process = getpid();
  struct sigaction action {};
  action.sa_handler = on_interrupt;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  for (const int signal : {SIGINT, SIGTERM}) sigaction(signal, &action, nullptr);
}

}  // namespace

int sweep(const SweepArguments& arguments) {
  const std::unique_ptr<launch::Ranks> ranks = launch::ranks_of_this_process();
  if (ranks && ranks->rank() > 0) return serve(arguments, *ranks);
  if (ranks && arguments.jobs > 1)
    throw UserError("--jobs: each rank runs one point at a time; start more ranks instead");
  launch::InputFiles inputs;
  const launch::Shard shard = shard_of(arguments.shard);
  const Plan plan = plan_of(arguments, inputs, true);
  const scenario::Loaded& first = plan.loaded.front();
  const std::filesystem::path directory =
      arguments.out.value_or(std::filesystem::path("out") / first.base.scenario.name);
  if (shard.count > plan.points.size())
    throw UserError(fmt::format("--shard {}: the sweep has {} points only", *arguments.shard, plan.points.size()));
  launch::PointRunner runner(
      plan.points,
      {.directory = directory,
       .run = [&](std::size_t index,
                  const std::filesystem::path& out) { return run_point(*plan.scenarios[index], inputs, out); },
       .jobs = arguments.jobs,
       .ranks = ranks.get(),
       .parts = printed_parts(plan.search, arguments.format),
       .resume = arguments.resume,
       .shard = shard,
       .progress = [&](const launch::PointEvent& event) { print_progress(event, arguments.quiet); }});
  write_origins(first.base, questions_of(plan), directory);
  if (!arguments.quiet) tell_interrupts();
  const int status = runner.run();
  print_rows(runner.rows(), shard.count == 1 ? plan.search : report::Search{}, directory, arguments.format);
  return status;
}

int merge(const MergeArguments& arguments) {
  const launch::StoredSweep merged = launch::merged_sweep(arguments.parts);
  for (const std::filesystem::path& part : arguments.parts)
    if (std::error_code none; std::filesystem::equivalent(part, arguments.out, none))
      throw UserError(fmt::format("--out {}: is one of the parts", arguments.out.string()));
  int status = 0;
  launch::SweepStore store(arguments.out);
  store.begin(merged.points, false);
  for (const launch::SweepRow& row : merged.rows) {
    if (row.error.empty())
      store.put(merged.points[row.index].key, row.result.dump(), 0);
    else
      status = 1;
  }
  store.write_results(merged.rows);
  for (const char* const file : {kOriginsFile, kQuestionFile})
    if (const auto of_part = arguments.parts.front() / file; std::filesystem::exists(of_part))
      report::write_file(arguments.out / file, report::read_file(of_part));
  print_rows(merged.rows, {}, arguments.out, arguments.format);
  return status;
}

}  // namespace csdsim::app
