#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <functional>
#include <iterator>
#include <memory>
#include <set>
#include <string_view>

#include "app/commands.h"
#include "app/point_lines.h"
#include "app/standard_output.h"
#include "app/sweep_rows.h"
#include "base/error.h"
#include "base/rng.h"
#include "base/text.h"
#include "experiment/experiments.h"
#include "experiment/runner.h"
#include "launch/grid_search.h"
#include "launch/input_files.h"
#include "launch/interrupts.h"
#include "launch/point_runner.h"
#include "launch/ranks.h"
#include "launch/sweep_store.h"
#include "report/files.h"
#include "report/result_lookup.h"
#include "report/search.h"

namespace csdsim::app {
namespace {

using nlohmann::ordered_json;

/// A count as a number, anything else as it is written: "007" may be the name of a file.
ordered_json axis_value(const std::string& text) {
  std::uint64_t count = 0;
  const auto end = text.data() + text.size();
  if (std::from_chars(text.data(), end, count) == std::from_chars_result{end, {}} && std::to_string(count) == text)
    return count;
  return text;
}

/// The value of a path that is no axis of this scenario, as its effective configuration has it.
ordered_json fixed_value(const ordered_json& config, const std::string& path) {
  const ordered_json* value = report::find_path(config, path);
  if (value != nullptr && value->is_object()) value = report::find_path(*value, "kind");
  return value == nullptr ? ordered_json(nullptr) : *value;
}

/// True if a path is the other one, or a map that holds it.
bool holds(const std::string& outer, const std::string& path) {
  return path.starts_with(outer) && (path.size() == outer.size() || path[outer.size()] == '.');
}

/// UserError for an override that no point would have, because an axis sets the same key.
void refuse_set_axes(const std::vector<std::string>& overrides, const scenario::SweepPoint& point) {
  for (const std::string& set : overrides)
    for (const auto& [axis, value] : point.axes)
      if (const std::string path = set.substr(0, set.find('=')); holds(axis, path) || holds(path, axis))
        throw UserError(fmt::format(
            "--set {}: {} is an axis of the sweep; change the axis: --set 'sweep.axes.{}=[...]', or run those of its "
            "values that meet a condition: --set 'sweep.where={} == ...'",
            set, axis, axis, axis.substr(axis.rfind('.') + 1)));
}

/// What a sweep runs: the points of one scenario, or of several with the scenario as the first axis.
struct Plan {
  std::vector<scenario::Loaded> loaded;
  std::vector<const scenario::Scenario*> scenarios;  ///< by point
  std::vector<launch::Point> points;
  report::Search search;
};

/// `refusal`: see SweepPoint. The configuration of a point that does not fit is not looked at.
void add_point(Plan& plan, const std::string& name, const std::vector<std::pair<std::string, std::string>>& axes,
               const std::vector<std::string>& paths, const scenario::Scenario& s, const std::string& refusal,
               launch::InputFiles& inputs) {
  const bool several = plan.loaded.size() > 1;
  launch::Point point{.name = name, .axes = {}, .refusal = refusal};
  if (several) {
    point.name = fmt::format("scenario={}{}{}", s.name, name.empty() ? "" : ",", name);
    point.axes.emplace_back("scenario", s.name);
  }
  point.fingerprint = refusal.empty() ? fingerprint(s, inputs) : fnv1a64(point.name + refusal);
  const ordered_json config = several && refusal.empty() ? scenario::effective_config(s) : ordered_json();
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
      for (const std::string& note : scenario::all_notes(loaded)) print_message(fmt::format("{}\n", note));
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
    if (loaded.points.empty()) add_point(plan, "", {}, paths, loaded.base.scenario, "", inputs);
    for (const scenario::SweepPoint& point : loaded.points)
      add_point(plan, point.name, point.axes, paths, point.scenario, point.refusal, inputs);
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

/// Which systems of the points give other outputs than dense attention, in a sentence.
std::string approximations(const Plan& plan) {
  std::vector<std::string> systems;
  for (std::size_t i = 0; i < plan.points.size(); ++i) {
    const scenario::Scenario& s = *plan.scenarios[i];
    if (!plan.points[i].refusal.empty() || !s.workload->attends() || s.system->traits().method.name == "dense")
      continue;
    const std::string name(s.system.kind());
    if (std::ranges::find(systems, name) == systems.end()) systems.push_back(name);
  }
  return systems.empty() ? ""
                         : fmt::format("Approximate, with other outputs than dense attention: {}.\n", join(systems));
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

void print_progress(const launch::PointEvent& event, PointLines& lines, bool quiet) {
  lines.end(event.name);
  print_message(event.said);
  if (quiet) return;
  const std::string rate =
      event.points_per_s > 0 && event.finished < event.total
          ? fmt::format("; {}, about {:.0f} s left",
                        event.points_per_s >= 1 ? fmt::format("{:.1f} points/s", event.points_per_s)
                                                : fmt::format("{:.1f} s per point", 1 / event.points_per_s),
                        event.left_s)
          : "";
  print_message(fmt::format("[{}/{}] {}: {}{}\n", event.finished, event.total, event.name, event.what, rate));
}

}  // namespace

namespace {

/// The work of a rank of mpirun other than the first. What fails in all ranks, the first one says.
int serve(const SweepArguments& arguments, launch::Ranks& ranks) {
  try {
    launch::InputFiles inputs;
    const Plan plan = plan_of(arguments, inputs, false);
    launch::serve_points(ranks, launch::digest_of(plan.points),
                         [&](std::size_t index, const std::filesystem::path& out, const launch::TellProgress& tell) {
                           return run_point(*plan.scenarios[index], inputs, out, tell);
                         });
    return 0;
  } catch (const UserError& error) {
    launch::refuse_to_serve(ranks, error.what());
    return 2;
  }
}

}  // namespace

namespace {

/// Chooses the points where the search has an optimiser; nothing where it looks at every point.
std::function<std::vector<std::size_t>(const std::vector<launch::SweepRow>&)> chooser_of(const Plan& plan,
                                                                                         const launch::Shard& shard) {
  if (plan.search.evaluations == 0) return {};
  if (shard.count > 1)
    throw UserError("--shard: sweep.evaluations chooses points by the results of others; leave one out");
  if (plan.loaded.size() > 1)
    throw UserError("sweep.evaluations: an optimiser searches the points of one scenario, not of several");
  std::vector<launch::GridSearch::Coordinates> coordinates;
  for (const scenario::SweepPoint& point : plan.loaded.front().points) coordinates.push_back(point.indices);
  const auto optimiser = std::make_shared<launch::GridSearch>(std::move(coordinates), plan.search.evaluations);
  return [optimiser, &search = plan.search, told = std::size_t{0}](const std::vector<launch::SweepRow>& rows) mutable {
    for (; told < rows.size(); ++told) {
      const launch::SweepRow& row = rows[told];
      optimiser->tell(row.index, row.error.empty() ? report::merit(search, row.result) : std::nullopt);
    }
    return optimiser->next();
  };
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
  PointLines lines(arguments.quiet);
  launch::PointRunner runner(
      plan.points,
      {.directory = directory,
       .run = [&](std::size_t index, const std::filesystem::path& out,
                  const launch::TellProgress& tell) { return run_point(*plan.scenarios[index], inputs, out, tell); },
       .jobs = arguments.jobs,
       .ranks = ranks.get(),
       .parts = printed_parts(plan.search, arguments.format),
       .resume = arguments.resume,
       .overwrite = arguments.overwrite,
       .shard = shard,
       .choose = chooser_of(plan, shard),
       .most_chosen = std::min(plan.search.evaluations, plan.points.size()),
       .progress = [&](const launch::PointEvent& event) { print_progress(event, lines, arguments.quiet); },
       .point_progress = [&](const std::string& name, const launch::PointProgress& p) { lines.update(name, p); }});
  write_origins(first.base, questions_of(plan), directory);
  // Under mpirun a signal ends all ranks: what they have computed so far is stored, and no table is written.
  constexpr std::string_view kInterrupted = "interrupted; the same command with --resume goes on";
  if (ranks)
    launch::tell_interrupts(fmt::format("\ncsdsim sweep: {}\n", kInterrupted));
  else
    launch::note_interrupts();
  const int status = runner.run();
  lines.clear();
  print_rows(runner.rows(), plan.points.size(), shard.count == 1 ? plan.search : report::Search{}, directory,
             arguments.format);
  if (arguments.format == Format::table && !runner.rows().empty()) print_result(approximations(plan));
  if (launch::interrupt() != 0) {
    print_message(fmt::format("\ncsdsim sweep: {} of {} points are done: {}\n", runner.rows().size(),
                              plan.points.size(), kInterrupted));
    launch::end_by_interrupt();
  }
  return status;
}

int merge(const MergeArguments& arguments) {
  const launch::StoredSweep merged = launch::merged_sweep(arguments.parts);
  for (const std::filesystem::path& part : arguments.parts)
    if (std::error_code none; std::filesystem::equivalent(part, arguments.out, none))
      throw UserError(fmt::format("--out {}: is one of the parts", arguments.out.string()));
  launch::SweepStore store(arguments.out);
  if (store.runs() > 0 && !arguments.overwrite)
    throw UserError(
        fmt::format("--out {}: holds the results of a sweep; --overwrite deletes them", arguments.out.string()));
  store.begin(merged.points, false);
  for (const launch::SweepRow& row : merged.rows)
    if (row.error.empty()) store.put(merged.points[row.index].key, row.result.dump(), 0);
  store.write_results(merged.rows);
  for (const char* const file : {kOriginsFile, kQuestionFile})
    if (const auto of_part = arguments.parts.front() / file; std::filesystem::exists(of_part))
      report::write_file(arguments.out / file, report::read_file(of_part));
  print_rows(merged.rows, merged.points.size(), {}, arguments.out, arguments.format);
  return launch::exit_status_of(merged.rows);
}

}  // namespace csdsim::app
