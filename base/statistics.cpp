#include "base/statistics.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace csdsim {

using Json = nlohmann::ordered_json;

/// A statistic, or a nested node when `child` is set.
struct Statistics::Item {
  std::string name;
  std::string unit;
  std::string sentence;
  StatOrigin origin = StatOrigin::modelled;
  std::function<Json()> read;
  std::unique_ptr<Statistics> child;
};

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
  items_.push_back({std::string(name), "", "", StatOrigin::modelled, nullptr, std::make_unique<Statistics>()});
  return *items_.back().child;
}

void Statistics::add(std::string_view name, std::string_view unit, std::string_view sentence, StatOrigin origin,
                     std::function<Json()> read) {
  if (name.empty() || unit.empty() || sentence.empty()) {
    throw InternalError(fmt::format("statistic '{}' needs a name, a unit and a sentence", name));
  }
  for (const Item& item : items_) {
    if (item.name == name) throw InternalError(fmt::format("statistic '{}' is registered twice", name));
  }
  items_.push_back({std::string(name), std::string(unit), std::string(sentence), origin, std::move(read), nullptr});
}

void Statistics::counter(std::string_view name, const std::uint64_t& value, std::string_view unit,
                         std::string_view sentence, StatOrigin origin) {
  add(name, unit, sentence, origin, [&value] { return Json(value); });
}

void Statistics::time(std::string_view name, const SimTime& value, std::string_view sentence, StatOrigin origin) {
  add(name, "s", sentence, origin, [&value] { return Json(value.seconds()); });
}

void Statistics::value(std::string_view name, std::function<double()> value, std::string_view unit,
                       std::string_view sentence, StatOrigin origin) {
  add(name, unit, sentence, origin, [read = std::move(value)] {
    const double number = read();
    return std::isfinite(number) ? Json(number) : Json();
  });
}

void Statistics::histogram(std::string_view name, const Histogram& value, double scale, std::string_view unit,
                           std::string_view sentence, StatOrigin origin) {
  add(name, unit, sentence, origin, [&value, scale] {
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
  Json json = Json::object();
  for (const Item& item : items_) {
    if (item.child) {
      json[item.name] = item.child->dump();
      continue;
    }
    Json value = item.read();
    if (value.is_null()) continue;
    Json& slot = json[item.name];
    slot["value"] = std::move(value);
    slot["unit"] = item.unit;
    slot["doc"] = item.sentence;
    slot["origin"] = to_string(item.origin);
  }
  return json;
}

}  // namespace csdsim
