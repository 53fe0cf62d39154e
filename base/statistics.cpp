#include "base/statistics.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_object.h"

namespace csdsim {

using Json = nlohmann::ordered_json;

/// A statistic, or a nested node when `child` is set.
struct Statistics::Item {
  std::string name;
  std::string unit;
  std::string sentence;
  StatOptions options;
  std::function<Json()> read;
  std::unique_ptr<Statistics> child;
};

StatOptions skip_zero() {
  StatOptions options;
  options.skip_zero = true;
  return options;
}

StatOptions written_if(std::function<bool()> condition) {
  StatOptions options;
  options.written = std::move(condition);
  return options;
}

std::string_view to_string(StatOrigin origin) {
  constexpr std::string_view names[] = {"modelled", "measured", "calibrated", "sampled"};
  return names[static_cast<std::size_t>(origin)];
}

Statistics::Statistics() = default;
Statistics::~Statistics() = default;
Statistics::Statistics(Statistics&&) noexcept = default;
Statistics& Statistics::operator=(Statistics&&) noexcept = default;

Statistics& Statistics::child(std::string_view name) {
  if (name.empty()) throw InternalError("statistics need a name");
  for (Item& item : items_) {
    if (item.name != name) continue;
    if (!item.child) throw InternalError(fmt::format("'{}' is a statistic, not a node", name));
    return *item.child;
  }
  items_.push_back({std::string(name), "", "", {}, nullptr, std::make_unique<Statistics>()});
  return *items_.back().child;
}

Statistics& Statistics::child_if_any(std::string_view name) {
  Statistics& node = child(name);
  node.skip_empty_ = true;
  return node;
}

void Statistics::add(std::string_view name, std::string_view unit, std::string_view sentence, StatOptions options,
                     std::function<Json()> read) {
  if (name.empty() || unit.empty() || sentence.empty()) {
    throw InternalError(fmt::format("statistic '{}' needs a name, a unit and a sentence", name));
  }
  for (const Item& item : items_) {
    if (item.name == name) throw InternalError(fmt::format("statistic '{}' is registered twice", name));
  }
  items_.push_back(
      {std::string(name), std::string(unit), std::string(sentence), std::move(options), std::move(read), nullptr});
}

void Statistics::counter(std::string_view name, const std::uint64_t& value, std::string_view unit,
                         std::string_view sentence, StatOptions options) {
  const bool skip = options.skip_zero;
  add(name, unit, sentence, std::move(options), [&value, skip] { return skip && value == 0 ? Json() : Json(value); });
}

void Statistics::time(std::string_view name, const SimTime& value, std::string_view sentence, StatOptions options) {
  const bool skip = options.skip_zero;
  add(name, "s", sentence, std::move(options),
      [&value, skip] { return skip && value.ps == 0 ? Json() : Json(value.seconds()); });
}

void Statistics::value(std::string_view name, std::function<double()> value, std::string_view unit,
                       std::string_view sentence, StatOptions options) {
  const bool skip = options.skip_zero;
  add(name, unit, sentence, std::move(options), [read = std::move(value), skip] {
    const double number = read();
    return !std::isfinite(number) || (skip && number == 0) ? Json() : Json(number);
  });
}

void Statistics::histogram(std::string_view name, const Histogram& value, double scale, std::string_view unit,
                           std::string_view sentence, StatOptions options) {
  const bool skip = options.skip_zero;
  add(name, unit, sentence, std::move(options), [&value, scale, skip] {
    if (skip && value.count() == 0) return Json();
    Json json = Json::object();
    json["count"] = value.count();
    if (value.count() == 0) return json;
    const auto scaled = [&](std::uint64_t sample) { return static_cast<double>(sample) * scale; };
    json["mean"] = value.mean() * scale;
    json["min"] = scaled(value.min());
    json["p50"] = scaled(value.quantile(50));
    json["p90"] = scaled(value.quantile(90));
    json["p99"] = scaled(value.quantile(99));
    json["p99_9"] = scaled(value.quantile(999, 1000));
    json["max"] = scaled(value.max());
    return json;
  });
}

Json Statistics::dump() const {
  if (update_) update_();
  Json json = object_for(items_.size());
  for (const Item& item : items_) {
    if (item.child) {
      Json node = item.child->dump();
      if (!node.empty() || !item.child->skip_empty_) json[item.name] = std::move(node);
      continue;
    }
    if (item.options.written && !item.options.written()) continue;
    Json value = item.read();
    if (value.is_null()) continue;
    Json& slot = json[item.name] = object_for(4);
    slot["value"] = std::move(value);
    slot["unit"] = item.unit;
    slot["doc"] = item.sentence;
    slot["origin"] = to_string(item.options.origin);
  }
  return json;
}

}  // namespace csdsim
