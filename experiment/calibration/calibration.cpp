#include "experiment/calibration/calibration.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/config/dump.h"
#include "base/error.h"
#include "base/quantity.h"
#include "base/text.h"
#include "experiment/experiments.h"
#include "experiment/runner.h"
#include "scenario/axis_range.h"

namespace csdsim::experiment {
namespace {

using nlohmann::ordered_json;

constexpr const char* kDevice = "platform.device.";

ordered_json::json_pointer pointer_of(const std::string& path) {
  std::string pointer = "/" + path;
  std::ranges::replace(pointer, '.', '/');
  return ordered_json::json_pointer(pointer);
}

/// The usual parameters with their values.
struct Usual {
  const char* name;
  const char* values;
  bool of_reads, of_writes;  ///< seen by points with reads, or with writes
};
constexpr Usual kUsual[] = {
    {"flash.read_latency", "2 us..500 us", true, false},         {"flash.program_latency", "10 us..10 ms", false, true},
    {"flash.channel_bandwidth", "100 MB/s..5 GB/s", true, true}, {"flash.dies_per_channel", "1,2,4,8,16", true, true},
    {"nvme.firmware_time", "20 ns..50 us", true, true},          {"nvme.pipeline_time", "100 ns..200 us", true, true}};

double number(const std::string& name, const std::string& text) {
  const std::optional<double> value = scenario::number_of(text);
  if (!value || !(*value > 0))
    throw UserError(
        fmt::format("--fit {}: '{}' is no value above 0; write LOW..HIGH or a list, e.g. 20 us..80 us or "
                    "4,8,16",
                    name, printable(text)));
  return *value;
}

std::string trimmed(const std::string& text) {
  const std::size_t begin = text.find_first_not_of(' ');
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(' ') + 1 - begin);
}

DriveParameter parameter(const std::string& name, const std::string& values, const ordered_json& config) {
  DriveParameter made{.path = kDevice + name, .fit = {}, .low_text = {}};
  made.fit.name = name;
  const std::size_t dots = values.find("..");
  if (dots != std::string::npos) {
    made.low_text = trimmed(values.substr(0, dots));
    made.fit.low = number(name, made.low_text);
    made.fit.high = number(name, trimmed(values.substr(dots + 2)));
    if (made.fit.high <= made.fit.low)
      throw UserError(fmt::format("--fit {}: {} leaves no choice", name, printable(values)));
  } else {
    for (std::size_t begin = 0; begin <= values.size();) {
      const std::size_t end = std::min(values.find(',', begin), values.size());
      const std::string text = trimmed(values.substr(begin, end - begin));
      if (begin == 0) made.low_text = text;
      made.fit.choices.push_back(number(name, text));
      begin = end + 1;
    }
    made.fit.low = std::ranges::min(made.fit.choices);
    made.fit.high = std::ranges::max(made.fit.choices);
  }
  const ordered_json::json_pointer pointer = pointer_of(made.path);
  if (!config.contains(pointer)) throw UserError(fmt::format("--fit {}: has no effect in this scenario", name));
  const std::string text = config[pointer].is_string() ? config[pointer].get<std::string>() : config[pointer].dump();
  made.fit.start = scenario::number_of(text).value_or(0);
  if (made.fit.choices.empty()) {
    if (made.fit.start < made.fit.low || made.fit.start > made.fit.high)
      made.fit.start = std::sqrt(made.fit.low * made.fit.high);
  } else {
    made.fit.start = *std::ranges::min_element(made.fit.choices, {}, [&](double choice) {
      return made.fit.start > 0 ? std::abs(std::log(choice / made.fit.start)) : choice;
    });
  }
  return made;
}

std::string relative(const std::string& name) {
  return name.starts_with(kDevice) ? name.substr(std::string_view(kDevice).size()) : name;
}

/// The values of an axis of all points; one value where they are equal.
void put_axis(ordered_json& scenario, const std::string& key, const std::vector<ordered_json>& values) {
  if (std::ranges::all_of(values, [&](const ordered_json& value) { return value == values.front(); }))
    scenario["workload"][key] = values.front();
  else
    scenario["sweep"]["zip"]["workload." + key] = values;
}

bool is_mixed(const FioPoint& point) { return point.read && point.write; }
bool is_sequential(const FioPoint& point) {
  return point.pattern == Pattern::sequential_read || point.pattern == Pattern::sequential_write ||
         point.pattern == Pattern::sequential_mixed;
}

/// The workload of the points in place of that of the scenario.
void put_points(ordered_json& base, const scenario::Scenario& s, const std::vector<FioPoint>& points,
                std::uint64_t requests) {
  const csd_model::DeviceConfig& device = s.platform.device;
  ordered_json& workload = base["workload"];
  for (const char* const key : {"pattern", "request_size", "request_sizes", "request_weights", "alignment",
                                "queue_depth", "requests", "duration", "read_fraction", "trim_fraction",
                                "zipf_exponent", "streams", "arrival", "warmup_requests", "lose_completion"})
    workload.erase(key);
  std::vector<ordered_json> patterns, sizes, depths, measured, warmup, fractions, streams;
  for (const FioPoint& point : points) {
    const std::uint64_t pages =
        std::max<std::uint64_t>(1, point.request_size.value / device.flash.geometry.page_size.value);
    // A write buffer fills before the rate is that of the flash.
    const std::uint64_t buffered =
        point.write ? device.write_buffer.capacity.value * 5 / 4 / point.request_size.value : 0;
    patterns.emplace_back(std::string(name_of(point.pattern)));
    sizes.emplace_back(format_quantity(point.request_size));
    depths.emplace_back(point.queue_depth);
    measured.emplace_back(std::max<std::uint64_t>({requests / pages, 16 * std::uint64_t{point.queue_depth}, 100}));
    warmup.emplace_back(2 * std::uint64_t{point.queue_depth} + buffered);
    fractions.emplace_back(is_mixed(point) ? fmt::format("{}", point.read_fraction) : "auto");
    streams.emplace_back(is_sequential(point) ? point.clones : 1);
  }
  put_axis(base, "pattern", patterns);
  put_axis(base, "request_size", sizes);
  put_axis(base, "queue_depth", depths);
  put_axis(base, "requests", measured);
  put_axis(base, "warmup_requests", warmup);
  put_axis(base, "read_fraction", fractions);
  put_axis(base, "streams", streams);
}

/// Rates and latencies of the reads and the writes of a run with so many requests in flight. By Little's law the rate
/// is that of a long run; the rate of a short one suffers from its end.
std::vector<double> figures_of(const ordered_json& result, std::uint32_t queue_depth) {
  std::vector<double> figures;
  const ordered_json& kinds = result["breakdown"]["requests"];
  const double rate = queue_depth / (result["metrics"]["latency_mean_ns"].get<double>() * 1e-9);
  double all = 0;
  for (const auto& [kind, counts] : kinds.items()) all += counts["requests"].get<double>();
  for (const char* const kind : {"read", "write"}) {
    if (!kinds.contains(kind)) continue;
    figures.push_back(rate * kinds[kind]["requests"].get<double>() / all);
    figures.push_back(result["metrics"][fmt::format("{}_latency_mean_ns", kind)].get<double>());
  }
  return figures;
}

}  // namespace

std::string DriveParameter::text(double value) const {
  const double step = std::pow(10, std::floor(std::log10(value)) - 3);
  const double rounded = std::round(value / step) * step;
  const auto whole = [](double v) { return static_cast<std::uint64_t>(std::llround(v)); };
  const auto is = [&](auto parse) {
    try {
      parse(low_text);
      return true;
    } catch (const UserError&) {
      return false;
    }
  };
  if (is(parse_time)) return format_quantity(SimTime{std::llround(rounded * 1e12)});
  if (is(parse_bandwidth)) return format_quantity(Bandwidth{whole(rounded)});
  if (is(parse_bytes)) return format_quantity(Bytes{whole(rounded)});
  if (is(parse_frequency)) return format_quantity(Frequency{whole(rounded)});
  if (is(parse_count)) return fmt::format("{}", whole(value));
  return fmt::format("{:.4g}", value);
}

std::vector<DriveParameter> parameters_to_find(const scenario::Scenario& scenario, const std::vector<FioPoint>& points,
                                               const std::vector<std::string>& fit,
                                               const std::vector<std::string>& fix) {
  const ordered_json config = scenario::effective_config(scenario);
  std::set<std::string> known, fixed;
  for (const config::ParamRow& row : config::ParamTable::of(scenario).rows) known.insert(row.path);
  const auto known_name = [&](const char* option, const std::string& given) {
    const std::string name = relative(given);
    if (!known.contains(kDevice + name)) {
      std::vector<std::string> names;
      for (const std::string& path : known)
        if (path.starts_with(kDevice)) names.push_back(relative(path));
      throw UserError(fmt::format("{} {}: is no parameter of platform.device{}", option, printable(name),
                                  did_you_mean(name, names)));
    }
    return name;
  };
  for (const std::string& name : fix) fixed.insert(known_name("--fix", name));
  std::vector<DriveParameter> found;
  for (const std::string& one : fit) {
    const std::size_t equals = one.find('=');
    if (equals == std::string::npos)
      throw UserError(fmt::format("--fit {}: expected KEY=LOW..HIGH or KEY=VALUE,VALUE,...", printable(one)));
    const std::string name = known_name("--fit", one.substr(0, equals));
    if (!fixed.insert(name).second) throw UserError(fmt::format("--fit {}: is given twice, or fixed", name));
    found.push_back(parameter(name, one.substr(equals + 1), config));
  }
  const bool reads = std::ranges::any_of(points, [](const FioPoint& p) { return p.read.has_value(); });
  const bool writes = std::ranges::any_of(points, [](const FioPoint& p) { return p.write.has_value(); });
  for (const Usual& usual : kUsual)
    if (!fixed.contains(usual.name) && ((usual.of_reads && reads) || (usual.of_writes && writes)))
      found.push_back(parameter(usual.name, usual.values, config));
  if (found.empty()) throw UserError("--fix: leaves nothing to find");
  return found;
}

MeasuredDrive::MeasuredDrive(const scenario::Scenario& scenario, std::vector<FioPoint> points,
                             std::vector<DriveParameter> parameters, std::uint64_t requests)
    : base_(scenario::effective_config(scenario)), points_(std::move(points)), parameters_(std::move(parameters)) {
  if (scenario.workload.kind() != BlockIoWorkload::kKind)
    throw UserError(
        fmt::format("{}: workload: fio measures block commands; use workload: {{kind: block_io}}", scenario.name));
  put_points(base_, scenario, points_, requests);
  base_.erase("simulation");
  // Both ends of each range and each choice have to be values of the parameter.
  std::vector<double> values;
  for (const DriveParameter& p : parameters_) values.push_back(p.fit.low);
  const RunAll none = [](std::size_t, const auto&) { return std::vector<std::vector<double>>(); };
  simulated(values, none);
  for (std::size_t i = 0; i < parameters_.size(); ++i) values[i] = parameters_[i].fit.high;
  simulated(values, none);
}

std::vector<double> MeasuredDrive::measured() const {
  std::vector<double> figures;
  for (const FioPoint& point : points_)
    for (const std::optional<FioFigures>& kind : {point.read, point.write})
      if (kind) figures.insert(figures.end(), {kind->iops, kind->latency_ns});
  return figures;
}

ordered_json MeasuredDrive::scenario_with(const std::vector<double>& values) const {
  ordered_json scenario = base_;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const std::string text = parameters_[i].text(values[i]);
    const bool count = text.find_first_not_of("0123456789") == std::string::npos;
    scenario[pointer_of(parameters_[i].path)] = count ? ordered_json(std::stoull(text)) : ordered_json(text);
  }
  return scenario;
}

std::vector<double> MeasuredDrive::simulated(const std::vector<double>& values, const RunAll& run_all) const {
  const scenario::Loaded loaded = load_scenario_text(scenario_with(values).dump(1), "the calibrated drive", ".");
  for (const scenario::SweepPoint& point : loaded.points)
    if (!point.refusal.empty()) throw UserError(point.refusal);
  const auto scenario_at = [&](std::size_t i) -> const scenario::Scenario& {
    return loaded.points.empty() ? loaded.base.scenario : loaded.points[i].scenario;
  };
  const std::vector<std::vector<double>> all = run_all(points_.size(), [&](std::size_t i) {
    const scenario::RunResult result = run_scenario(scenario_at(i));
    if (!result.failure.empty()) throw UserError(fmt::format("point '{}': {}", points_[i].name, result.failure));
    return figures_of(result.document, points_[i].queue_depth);
  });
  std::vector<double> figures;
  for (const std::vector<double>& of_point : all) figures.insert(figures.end(), of_point.begin(), of_point.end());
  return figures;
}

}  // namespace csdsim::experiment
