#include "report/result_document.h"

#include <fmt/format.h>

#include <algorithm>

#include <istream>
#include <utility>

#include "base/error.h"

namespace csdsim::report {

using nlohmann::ordered_json;

namespace {

constexpr int kDeepest = 100;

class Checker {
 public:
  explicit Checker(const std::string& where) : where_(where) {}

  [[noreturn]] void fail(const std::string& what) const {
    throw UserError(fmt::format("{}: is no result of csdsim run: {}", where_, what));
  }
  void require(bool holds, std::string_view path, std::string_view expected) const {
    if (!holds) fail(fmt::format("{} is not {}", path, expected));
  }

  void text(const ordered_json& parent, const std::string& path, const std::string& key) const {
    if (const auto at = parent.find(key); at != parent.end()) require(at->is_string(), path + key, "a text");
  }
  void numbers(const ordered_json& parent, const std::string& path, const std::string& key) const {
    const auto at = parent.find(key);
    if (at == parent.end()) return;
    require(at->is_object(), path + key, "a map of numbers");
    for (const auto& [name, value] : at->items())
      require(value.is_number() || value.is_null(), fmt::format("{}{}.{}", path, key, name), "a number");
  }
  /// Curves over time, in groups.
  void series(const ordered_json& document) const {
    const auto series = document.find("series");
    if (series == document.end()) return;
    require(series->is_object() && series->contains("curves"), "series", "a map with curves");
    const bool timed = series->contains("time_s");
    if (!timed) {
      const ordered_json at = series->value("at", ordered_json::object());
      require(at.is_object() && at.contains("values") && at.contains("name") && at["name"].is_string(), "series",
              "a map with time_s, or with a name and values as at");
    }
    const std::string of = timed ? "series.time_s" : "series.at.values";
    const ordered_json& times = timed ? (*series)["time_s"] : (*series)["at"]["values"];
    const auto column = [&](const ordered_json& values, const std::string& path) {
      require(values.is_array() && values.size() == times.size() &&
                  std::ranges::all_of(values, [](const ordered_json& value) { return value.is_number(); }),
              path, fmt::format("a list with a number for each of {}", of));
    };
    require(times.is_array(), of, "a list");
    column(times, of);
    require((*series)["curves"].is_object(), "series.curves", "a map");
    for (const auto& [group, curves] : (*series)["curves"].items()) {
      require(curves.is_object(), "series.curves." + group, "a map");
      for (const auto& [name, values] : curves.items()) column(values, fmt::format("series.curves.{}.{}", group, name));
    }
  }
  void object(const ordered_json& parent, const std::string& key) const {
    if (const auto at = parent.find(key); at != parent.end()) require(at->is_object(), key, "a map");
  }

  void phase(const std::string& name, const ordered_json& phase) const {
    const std::string path = fmt::format("breakdown.{}.", name);
    numbers(phase, path, "utilization");
    numbers(phase, path, "critical_path_s");
    text(phase, path, "bound_by");
    text(phase, path, "waits_for");
    if (phase.contains("waits_for"))
      require(phase.contains("waits_for_share") && phase["waits_for_share"].is_number(), path + "waits_for_share",
              "a number");
    if (phase.contains("bound_by")) {
      const std::string& bound = phase["bound_by"].get_ref<const std::string&>();
      require(phase.contains("utilization") && phase["utilization"].contains(bound) &&
                  phase["utilization"][bound].is_number(),
              path + "bound_by", "one of its resources");
    }
  }

 private:
  const std::string& where_;
};

template <class Text>
ordered_json parse(Text&& text, const std::string& where, const KeepKey& keep) {
  using Event = ordered_json::parse_event_t;
  try {
    return ordered_json::parse(std::forward<Text>(text), [&](int depth, Event event, const ordered_json& parsed) {
      if (depth > kDeepest && (event == Event::object_start || event == Event::array_start))
        throw UserError(fmt::format("{}: is nested more than {} deep", where, kDeepest));
      return event != Event::key || !keep || keep(depth, parsed.get_ref<const std::string&>());
    });
  } catch (const ordered_json::parse_error&) {
    throw UserError(fmt::format("{}: is no JSON file", where));
  }
}

}  // namespace

ordered_json parse_json(std::string_view text, const std::string& where, const KeepKey& keep) {
  return parse(text, where, keep);
}

ordered_json parse_json(std::istream& text, const std::string& where) { return parse(text, where, {}); }

void check_result(const ordered_json& document, const std::string& where) {
  const Checker checker(where);
  if (!document.is_object()) checker.fail("it is not a map");
  if (!document.contains("metrics")) checker.fail("it has no metrics");
  checker.object(document, "metrics");
  for (const auto& [name, value] : document["metrics"].items())
    checker.require(value.is_primitive(), fmt::format("metrics.{}", name), "a number or a text");
  checker.numbers(document, "", "wall");
  checker.text(document, "", "name");
  checker.series(document);
  for (const char* const part : {"scenario", "build", "stats", "breakdown"}) checker.object(document, part);
  if (const auto stats = document.find("stats"); stats != document.end()) checker.text(*stats, "stats.", "simulated");
  if (const auto breakdown = document.find("breakdown"); breakdown != document.end())
    for (const auto& [name, phase] : breakdown->items())
      if (phase.is_object()) checker.phase(name, phase);
}

}  // namespace csdsim::report
