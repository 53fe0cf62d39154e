#include "scenario/axis_range.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <type_traits>

#include "base/error.h"
#include "base/quantity.h"
#include "base/text.h"

namespace csdsim::scenario {
namespace {

using Wide = unsigned __int128;

/// A type of values: how its texts are read and written. Quantities are whole numbers of their smallest unit.
struct Scale {
  std::optional<Ratio> (*parse)(std::string_view text);
  std::string (*format)(Ratio value);
  double unit;  ///< one of the smallest unit, in base units
  bool whole;
  BaseUnits units = {};
  std::string_view name = "a bare number";
  std::string_view example = "8";
};

template <auto Parse, auto Member>
constexpr Scale quantity(double unit, BaseUnits units, std::string_view name, std::string_view example) {
  return {[](std::string_view text) -> std::optional<Ratio> {
            try {
              return Ratio{static_cast<std::uint64_t>(Parse(text).*Member), 1};
            } catch (const UserError&) {
              return std::nullopt;
            }
          },
          [](Ratio value) {
            decltype(Parse("")) quantity{};
            quantity.*Member = static_cast<std::remove_reference_t<decltype(quantity.*Member)>>(value.numerator);
            return format_quantity(quantity);
          },
          unit,
          true,
          units,
          name,
          example};
}

constexpr Scale kCount{[](std::string_view text) -> std::optional<Ratio> {
                         try {
                           return Ratio{parse_count(text), 1};
                         } catch (const UserError&) {
                           return std::nullopt;
                         }
                       },
                       [](Ratio value) { return fmt::format("{}", value.numerator); }, 1, true};
constexpr Scale kShare{[](std::string_view text) -> std::optional<Ratio> {
                         try {
                           return parse_ratio(text);
                         } catch (const UserError&) {
                           return std::nullopt;
                         }
                       },
                       [](Ratio value) { return format_quantity(value); }, 1, false};
constexpr Scale kScales[] = {
    kCount,
    kShare,
    quantity<parse_time, &SimTime::ps>(1e-12, {.seconds = 1}, "a time", "50 us"),
    quantity<parse_bytes, &Bytes::value>(1, {.bytes = 1}, "a size", "4 KiB"),
    quantity<parse_bandwidth, &Bandwidth::bytes_per_second>(1, {.seconds = -1, .bytes = 1}, "a bandwidth", "1.4 GB/s"),
    quantity<parse_frequency, &Frequency::hertz>(1, {.seconds = -1}, "a frequency", "285 MHz"),
    quantity<parse_compute_rate, &ComputeRate::flop_per_second>(1, {.seconds = -1, .operations = 1}, "a compute rate",
                                                                "155 TFLOPS"),
    quantity<parse_energy, &Energy::femtojoules>(1e-15, {.joules = 1}, "an energy", "5 pJ"),
    quantity<parse_power, &Power::nanowatts>(1e-9, {.seconds = -1, .joules = 1}, "a power", "1.5 W")};

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

/// "GB/s" of "1.4 GB/s".
std::string_view unit_of(std::string_view text) {
  return trimmed(text.substr(std::min(text.find_first_not_of("0123456789./ "), text.size())));
}

/// "A..B HOW STEP".
struct RangeText {
  std::string_view text, first, last, how, step;

  [[noreturn]] void refuse(const std::string& why) const {
    throw UserError(fmt::format("'{}': {}", printable(text), why));
  }
  /// A number of the range on a scale; one without unit has the unit of the last.
  Ratio number(const Scale& scale, std::string_view part) const {
    if (const auto value = scale.parse(part)) return *value;
    if (const auto value = scale.parse(fmt::format("{} {}", part, unit_of(last))); value && unit_of(part).empty())
      return *value;
    refuse(fmt::format("'{}' and '{}' are not of one unit", part, last));
  }
};

std::optional<RangeText> split(std::string_view text) {
  const std::size_t dots = text.find("..");
  if (dots == std::string_view::npos) return std::nullopt;
  for (const std::string_view how : {"step", "times", "log"}) {
    const std::size_t at = text.find(fmt::format(" {} ", how), dots);
    if (at == std::string_view::npos) continue;
    return RangeText{text, trimmed(text.substr(0, dots)), trimmed(text.substr(dots + 2, at - dots - 2)), how,
                     trimmed(text.substr(at + how.size() + 2))};
  }
  return std::nullopt;
}

std::vector<Ratio> steps(const RangeText& range, const Scale& scale, Ratio first, Ratio last, std::size_t most) {
  const Ratio step = range.number(scale, range.step);
  if (step.numerator == 0) range.refuse("the step is 0");
  const std::uint64_t unit = std::lcm(std::lcm(first.denominator, last.denominator), step.denominator);
  const auto whole = [&](Ratio value) { return Wide{value.numerator} * (unit / value.denominator); };
  const Wide distance = whole(last) - whole(first);
  if (distance / whole(step) >= most) range.refuse(fmt::format("more than {} values", most));
  if (distance % whole(step) != 0)
    range.refuse(fmt::format("no whole number of steps leads from {} to {}", range.first, range.last));
  std::vector<Ratio> values;
  for (Wide at = whole(first); at <= whole(last); at += whole(step))
    values.push_back(Ratio::of(static_cast<std::uint64_t>(at), unit));
  return values;
}

std::vector<Ratio> multiples(const RangeText& range, const Scale& scale, Ratio first, Ratio last, std::size_t most) {
  const auto factor = kShare.parse(range.step);
  if (!factor || *factor <= Ratio{1, 1}) range.refuse("the factor has to be a number above 1");
  if (first.numerator == 0) range.refuse("0 has no multiples");
  std::vector<Ratio> values{first};
  while (values.back() < last) {
    if (values.size() == most) range.refuse(fmt::format("more than {} values", most));
    const Ratio a = Ratio::of(values.back().numerator, factor->denominator);
    const Ratio b = Ratio::of(factor->numerator, values.back().denominator);
    if (a.numerator > std::numeric_limits<std::uint64_t>::max() / b.numerator) break;
    values.push_back(Ratio::of(a.numerator * b.numerator, a.denominator * b.denominator));
    if (scale.whole && values.back().denominator != 1)
      range.refuse(fmt::format("{} times {} is no whole number", scale.format(values[values.size() - 2]), range.step));
  }
  if (values.back() != last)
    range.refuse(fmt::format("no whole number of multiplications leads from {} to {}", range.first, range.last));
  return values;
}

/// The nearest value with three digits.
Ratio rounded(double value, const Scale& scale) {
  if (scale.whole) {
    const double digit = std::pow(10, std::max(0.0, std::floor(std::log10(value)) - 2));
    return {static_cast<std::uint64_t>(std::llround(&scale == &kScales[0] ? value : std::round(value / digit) * digit)),
            1};
  }
  const int digits = std::max(0, 2 - static_cast<int>(std::floor(std::log10(value))));
  return *kShare.parse(fmt::format("{:.{}f}", value, digits));
}

std::vector<Ratio> logarithmic(const RangeText& range, const Scale& scale, Ratio first, Ratio last, std::size_t most) {
  const auto count = kCount.parse(range.step);
  if (!count || count->numerator < 2) range.refuse("the number of values has to be 2 or more");
  if (count->numerator > most) range.refuse(fmt::format("more than {} values", most));
  if (first.numerator == 0) range.refuse("0 has no logarithm");
  std::vector<Ratio> values{first};
  for (std::uint64_t i = 1; i + 1 < count->numerator; ++i) {
    const double share = static_cast<double>(i) / static_cast<double>(count->numerator - 1);
    const Ratio value = rounded(first.value() * std::pow(last.value() / first.value(), share), scale);
    if (value > values.back() && value < last) values.push_back(value);
  }
  values.push_back(last);
  return values;
}

}  // namespace

std::optional<std::vector<std::string>> expand_range(std::string_view text, std::size_t most) {
  const std::optional<RangeText> range = split(text);
  if (!range) return std::nullopt;
  for (const Scale& scale : kScales) {
    const auto last = scale.parse(range->last);
    if (!last) continue;
    // 0.5..2 and 1..2 step 0.5 are ranges of shares.
    const bool counts = scale.parse(range->first) && (range->how != "step" || scale.parse(range->step));
    if (&scale == &kScales[0] && !counts) continue;
    const Ratio first = range->number(scale, range->first);
    if (first >= *last) range->refuse("a range goes from the smaller to the larger value");
    const auto make = range->how == "step" ? steps : range->how == "times" ? multiples : logarithmic;
    std::vector<std::string> texts;
    for (const Ratio& value : make(*range, scale, first, *last, most)) texts.push_back(scale.format(value));
    return texts;
  }
  range->refuse(
      fmt::format("'{}' is no number; write e.g. 2..32 step 2, 1..64 times 2, 0.7..2.8 GB/s log 3", range->last));
}

QuantityName quantity_name(const BaseUnits& units) {
  for (const Scale& scale : kScales)
    if (scale.units == units) return {std::string(scale.name), std::string(scale.example)};
  std::vector<std::string> factors;
  const auto add = [&factors](std::string_view unit, int exponent) {
    if (exponent != 0) factors.push_back(exponent == 1 ? std::string(unit) : fmt::format("{}^{}", unit, exponent));
  };
  add("bytes", units.bytes);
  add("operations", units.operations);
  add("joules", units.joules);
  add("seconds", units.seconds);
  return {fmt::format("a number of {}", join(factors, " * ")), ""};
}

std::optional<Measured> measured_of(std::string_view text) {
  for (const Scale& scale : kScales)
    if (const auto value = scale.parse(text)) return Measured{value->value() * scale.unit, scale.units};
  return std::nullopt;
}

std::optional<double> number_of(std::string_view text) {
  const std::optional<Measured> measured = measured_of(text);
  return measured ? std::optional(measured->value) : std::nullopt;
}

}  // namespace csdsim::scenario
