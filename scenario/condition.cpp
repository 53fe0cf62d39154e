#include "scenario/condition.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <regex>

#include "base/error.h"
#include "base/text.h"
#include "scenario/axis_range.h"

namespace csdsim::scenario {
namespace {

/// Replaces each match by what `with` makes of it.
std::string replaced(const std::string& text, const std::regex& pattern,
                     const std::function<std::string(const std::smatch&)>& with) {
  std::string out;
  auto rest = text.cbegin();
  for (std::sregex_iterator at(text.begin(), text.end(), pattern), end; at != end; ++at) {
    out.append(rest, text.cbegin() + at->position()).append(with(*at));
    rest = text.cbegin() + at->position() + at->length();
  }
  return out.append(rest, text.cend());
}

std::optional<std::size_t> axis_named(const std::string& name, const std::vector<Condition::Axis>& axes) {
  for (std::size_t a = 0; a < axes.size(); ++a)
    if (std::ranges::find(axes[a].names, name) != axes[a].names.end()) return a;
  return std::nullopt;
}

std::size_t axis_or_throw(const std::string& name, const std::vector<Condition::Axis>& axes) {
  if (const auto axis = axis_named(name, axes)) return *axis;
  std::vector<std::string> names;
  for (const Condition::Axis& axis : axes) names.push_back(axis.names.front());
  throw UserError(
      fmt::format("'{}' is no axis of this sweep{}; exists: {}", name, did_you_mean(name, names), join(names)));
}

}  // namespace

Condition::Condition(std::string text, const std::vector<Axis>& axes) {
  static const std::regex words(R"re(\b(and|or)\b)re");
  static const std::regex comparison(R"re(([A-Za-z_][\w.]*)\s*(==|!=)\s*(?:"([^"]*)"|([A-Za-z][\w./-]*)))re");
  static const std::regex quantity(R"re((^|[^\w.])(\d+(?:\.\d+)?\s*(?![eE][+-]?\d)[A-Za-z%][A-Za-z/%]*))re");
  // Texts first: what they hold is no formula. Each comparison becomes a name that is 1 where it holds.
  std::string formula = replaced(text, comparison, [&](const std::smatch& match) {
    if (!match[3].matched && axis_named(match[4], axes)) return match.str();
    const std::string value = match[3].matched ? match[3] : match[4];
    const std::size_t axis = axis_or_throw(match[1], axes);
    const std::vector<std::string>& values = axes[axis].values;
    if (std::ranges::find(values, value) == values.end())
      throw UserError(fmt::format("'{}': {} never is '{}'{}; it is {}", text, match[1].str(), value,
                                  did_you_mean(value, values), join(values)));
    Name holds{axis, {}};
    for (const std::string& each : values) holds.values.push_back((each == value) == (match[2] == "==") ? 1 : 0);
    names_.emplace_back(fmt::format("text_{}", names_.size()), std::move(holds));
    return names_.back().first;
  });
  formula = replaced(formula, words, [](const std::smatch& match) { return match[1] == "and" ? "&&" : "||"; });
  formula = replaced(formula, quantity, [&](const std::smatch& match) {
    const std::optional<double> number = number_of(match[2].str());
    if (!number) throw UserError(fmt::format("'{}': '{}' is no quantity", text, match[2].str()));
    return fmt::format("{}({:.17g})", match[1].str(), *number);
  });
  formula_.emplace(formula);
  for (const std::string& each : formula_->names()) {
    if (std::ranges::any_of(names_, [&](const auto& known) { return known.first == each; })) continue;
    const std::size_t axis = axis_or_throw(each, axes);
    Name numbers{axis, {}};
    for (const std::string& value : axes[axis].values) {
      const std::optional<double> number = number_of(value);
      if (!number)
        throw UserError(
            fmt::format("'{}': the value '{}' of {} is no number; compare it with == or !=", text, value, each));
      numbers.values.push_back(*number);
    }
    names_.emplace_back(each, std::move(numbers));
  }
}

const Condition::Name& Condition::name(const std::string& text) const {
  return std::ranges::find(names_, text, &std::pair<std::string, Name>::first)->second;
}

bool Condition::holds(const std::vector<std::size_t>& indices) const {
  return formula_->evaluate([&](const std::string& each) {
    const Name& found = name(each);
    return found.values[indices[found.axis]];
  }) != 0;
}

}  // namespace csdsim::scenario
