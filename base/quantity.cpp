#include "base/quantity.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "base/unit_names.h"

namespace csdsim {
namespace {

using Wide = unsigned __int128;

struct Unit {
  std::string_view name;
  std::uint64_t scale;        ///< base units in one of this unit
  std::uint64_t divisor = 1;  ///< 8 where the unit counts bits
  bool shown = true;          ///< used when writing
};

constexpr std::uint64_t kKilo = 1'000, kMega = 1'000'000, kGiga = 1'000'000'000, kTera = 1'000'000'000'000;
constexpr Unit kTime[] = {{"ps", 1},     {"ns", kKilo}, {"us", kMega},
                          {"ms", kGiga}, {"s", kTera},  {"min", 60 * kTera, 1, false}};
constexpr Unit kBytes[] = {{"B", 1},
                           {"kB", kKilo},
                           {"MB", kMega},
                           {"GB", kGiga},
                           {"TB", kTera},
                           {"KiB", std::uint64_t{1} << 10},
                           {"MiB", std::uint64_t{1} << 20},
                           {"GiB", std::uint64_t{1} << 30},
                           {"TiB", std::uint64_t{1} << 40}};
constexpr Unit kBandwidth[] = {{"B/s", 1},
                               {"kB/s", kKilo},
                               {"MB/s", kMega},
                               {"GB/s", kGiga},
                               {"TB/s", kTera},
                               {"KiB/s", std::uint64_t{1} << 10, 1, false},
                               {"MiB/s", std::uint64_t{1} << 20, 1, false},
                               {"GiB/s", std::uint64_t{1} << 30, 1, false},
                               {"Mb/s", kMega, 8, false},
                               {"Gb/s", kGiga, 8, false}};
constexpr Unit kFrequency[] = {{"Hz", 1}, {"kHz", kKilo}, {"MHz", kMega}, {"GHz", kGiga}};
constexpr Unit kCompute[] = {{"MFLOPS", kMega}, {"GFLOPS", kGiga}, {"TFLOPS", kTera}, {"PFLOPS", kTera* kKilo}};

constexpr Unit kEnergy[] = {{"fJ", 1}, {"pJ", kKilo}, {"nJ", kMega}, {"uJ", kGiga}, {"mJ", kTera}, {"J", kTera* kKilo}};
constexpr Unit kPower[] = {{"nW", 1}, {"uW", kKilo}, {"mW", kMega}, {"W", kGiga}, {"kW", kTera}};

struct Quantity {
  std::string_view name;     ///< "time"
  std::string_view example;  ///< "50 us"
  std::string_view base;     ///< "picoseconds"
  std::span<const Unit> units;
};
constexpr Quantity kTimeQuantity{"time", "50 us", "picoseconds", kTime};
constexpr Quantity kBytesQuantity{"size", "4 KiB", "bytes", kBytes};
constexpr Quantity kBandwidthQuantity{"bandwidth", "1.4 GB/s", "bytes per second", kBandwidth};
constexpr Quantity kFrequencyQuantity{"frequency", "285 MHz", "hertz", kFrequency};
constexpr Quantity kComputeQuantity{"compute rate", "155 TFLOPS", "operations per second", kCompute};

constexpr Quantity kEnergyQuantity{"energy", "5 pJ", "femtojoules", kEnergy};
constexpr Quantity kPowerQuantity{"power", "1.5 W", "nanowatts", kPower};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::string_view trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

/// With "u" for the micro sign and the Greek mu, and with plain blanks for those that do not break a line.
std::string plain(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = invalid_utf8(text) == text.npos ? code_point_at(text, i).length : 1;
    const std::string_view character = text.substr(i, length);
    const auto is_one_of = [&](std::initializer_list<std::string_view> list) {
      return std::ranges::find(list, character) != list.end();
    };
    if (is_one_of({"\u00b5", "\u03bc"})) {
      out += 'u';
    } else if (is_one_of({"\u00a0", "\u2007", "\u2009", "\u202f"})) {
      out += ' ';
    } else {
      out += character;
    }
    i += length;
  }
  return out;
}

[[noreturn]] void refuse(std::string_view text, std::string_view why) {
  throw UserError(fmt::format("'{}' {}", printable(text), why));
}

/// digits * 10^exponent
struct Decimal {
  Wide digits = 0;
  int exponent = 0;
};

/// Takes a decimal number off the front of `rest`; `whole` is for messages only.
Decimal take_decimal(std::string_view& rest, std::string_view whole, std::string_view expected) {
  if (!rest.empty() && rest.front() == '-') refuse(whole, "is negative");
  if (rest.empty() || !is_digit(rest.front())) refuse(whole, fmt::format("is not {}", expected));
  if (rest.size() > 1 && rest[0] == '0' && is_digit(rest[1])) {
    refuse(whole, "starts with a zero: some readers take that for octal, so write it without");
  }
  Decimal number;
  int significant = 0;
  const auto digits = [&](bool fraction) {
    while (!rest.empty() && is_digit(rest.front())) {
      if (number.digits != 0 || rest.front() != '0') ++significant;
      if (significant > 20) refuse(whole, "has more than 20 digits");
      number.digits = number.digits * 10 + static_cast<unsigned>(rest.front() - '0');
      if (fraction && --number.exponent < -30) refuse(whole, "has more than 30 decimals");
      rest.remove_prefix(1);
    }
  };
  digits(false);
  if (rest.size() > 1 && rest[0] == '.' && is_digit(rest[1])) {
    rest.remove_prefix(1);
    digits(true);
  }
  // 1e6, but not the E of a unit.
  if (!rest.empty() && (rest[0] == 'e' || rest[0] == 'E')) {
    std::string_view tail = rest.substr(1);
    const bool down = !tail.empty() && tail.front() == '-';
    if (!tail.empty() && (tail.front() == '-' || tail.front() == '+')) tail.remove_prefix(1);
    if (!tail.empty() && is_digit(tail.front())) {
      int exponent = 0;
      while (!tail.empty() && is_digit(tail.front())) {
        exponent = exponent * 10 + (tail.front() - '0');
        if (exponent > 60) refuse(whole, "has an exponent beyond 60");
        tail.remove_prefix(1);
      }
      number.exponent += down ? -exponent : exponent;
      rest = tail;
    }
  }
  while (number.exponent < 0 && number.digits % 10 == 0) {
    if (number.digits == 0) {
      number.exponent = 0;
    } else {
      number.digits /= 10, ++number.exponent;
    }
  }
  return number;
}

/// number * scale / divisor as a whole number of at most `limit`.
std::uint64_t whole_units(Decimal number, std::uint64_t scale, std::uint64_t divisor, std::uint64_t limit,
                          std::string_view text, std::string_view base) {
  // digits < 10^20 and scale < 10^17, so this product fits.
  Wide value = number.digits * scale;
  Wide below = divisor;
  if (number.exponent < -37) refuse(text, fmt::format("is not a whole number of {}", base));
  for (int e = number.exponent; e < 0; ++e) {
    if (__builtin_mul_overflow(below, Wide{10}, &below)) refuse(text, fmt::format("is not a whole number of {}", base));
  }
  for (int e = number.exponent; e > 0 && value != 0; --e) {
    if (__builtin_mul_overflow(value, Wide{10}, &value)) refuse(text, "is too large");
  }
  if (value % below != 0) refuse(text, fmt::format("is not a whole number of {}", base));
  if (value / below > limit) refuse(text, fmt::format("is too large: at most {} {}", limit, base));
  return static_cast<std::uint64_t>(value / below);
}

std::uint64_t parse_quantity(std::string_view text, const Quantity& quantity, std::uint64_t limit) {
  const std::string simple = plain(text);
  const std::string_view whole = trim(simple);
  std::string_view rest = whole;
  const std::string expected = fmt::format("a {} such as {}", quantity.name, quantity.example);
  const Decimal number = take_decimal(rest, whole, expected);
  const std::string_view unit = trim(rest);
  std::vector<std::string> names;
  for (const Unit& u : quantity.units) {
    if (u.name == unit) return whole_units(number, u.scale, u.divisor, limit, whole, quantity.base);
    names.emplace_back(u.name);
  }
  if (unit.empty()) refuse(whole, fmt::format("has no unit: write a {} such as {}", quantity.name, quantity.example));
  if (&quantity == &kBytesQuantity && unit.size() == 1 &&
      std::string_view("KkMGT").find(unit) != std::string_view::npos)
    throw UserError(fmt::format("'{}': a size needs a unit: {} {}iB?", printable(whole),
                                trim(whole.substr(0, whole.size() - 1)), unit == "k" ? "K" : unit));
  if (unit == "KB" || unit == "KB/s") {
    refuse(whole, fmt::format("is ambiguous: write k{0} for 1000 or Ki{0} for 1024", unit.substr(1)));
  }
  throw UserError(fmt::format("'{}' has the unit '{}', which is not one of a {}{}; known: {}", printable(whole),
                              printable(unit), quantity.name, did_you_mean(unit, names), join(names)));
}

/// value/scale as a decimal with at most three decimals, or "" when that is not exact.
std::string decimal_text(std::uint64_t value, std::uint64_t scale) {
  const std::uint64_t whole = value / scale;
  const Wide thousandths = static_cast<Wide>(value % scale) * 1000;
  if (thousandths % scale != 0) return "";
  std::string text = fmt::format("{}", whole);
  if (thousandths != 0) {
    text += fmt::format(".{:03}", static_cast<std::uint64_t>(thousandths / scale));
    while (text.back() == '0') text.pop_back();
  }
  return text;
}

/// In the largest unit that is exact with three decimals; binary units (which come after the decimal ones) only whole.
std::string format_units(std::uint64_t value, const Quantity& quantity) {
  if (value == 0) return fmt::format("0 {}", quantity.units.front().name);
  std::string best, binary;
  for (const Unit& unit : quantity.units) {
    if (!unit.shown || unit.scale > value) continue;
    const std::string number = decimal_text(value, unit.scale);
    if (number.empty()) continue;
    const bool power_of_two = unit.scale > 1 && (unit.scale & (unit.scale - 1)) == 0;
    if (power_of_two && number.find('.') != std::string::npos) continue;
    (power_of_two ? binary : best) = fmt::format("{} {}", number, unit.name);
  }
  return !binary.empty() && (best.empty() || binary.size() <= best.size()) ? binary : best;
}

constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();

}  // namespace

std::vector<std::string_view> unit_names(std::string_view quantity) {
  std::vector<std::string_view> names;
  for (const Quantity* known : {&kTimeQuantity, &kBytesQuantity, &kBandwidthQuantity, &kFrequencyQuantity,
                                &kComputeQuantity, &kEnergyQuantity, &kPowerQuantity})
    if (known->name == quantity)
      for (const Unit& unit : known->units) names.push_back(unit.name);
  return names;
}

SimTime parse_time(std::string_view text) {
  return {static_cast<std::int64_t>(
      parse_quantity(text, kTimeQuantity, static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())))};
}
Bytes parse_bytes(std::string_view text) { return {parse_quantity(text, kBytesQuantity, kMax)}; }
Bandwidth parse_bandwidth(std::string_view text) { return {parse_quantity(text, kBandwidthQuantity, kMax)}; }
Frequency parse_frequency(std::string_view text) { return {parse_quantity(text, kFrequencyQuantity, kMax)}; }
ComputeRate parse_compute_rate(std::string_view text) { return {parse_quantity(text, kComputeQuantity, kMax)}; }

Energy parse_energy(std::string_view text) { return {parse_quantity(text, kEnergyQuantity, kMax)}; }
Power parse_power(std::string_view text) { return {parse_quantity(text, kPowerQuantity, kMax)}; }

std::uint64_t parse_count(std::string_view text) {
  const std::string simple = plain(text);
  const std::string_view whole = trim(simple);
  std::string_view rest = whole;
  const Decimal number = take_decimal(rest, whole, "a whole number");
  if (const std::string_view prefix = trim(rest); prefix == "k" || prefix == "K")
    refuse(whole,
           fmt::format("is not a bare whole number: write {} or {}", whole_units(number, 1000, 1, kMax, whole, "ones"),
                       whole_units(number, 1024, 1, kMax, whole, "ones")));
  if (!rest.empty() || number.exponent < 0) refuse(whole, "is not a bare whole number");
  return whole_units(number, 1, 1, kMax, whole, "ones");
}

Ratio parse_ratio(std::string_view text) {
  const std::string simple = plain(text);
  const std::string_view whole = trim(simple);
  std::string_view rest = whole;
  Decimal number = take_decimal(rest, whole, "a ratio such as 1/8, 0.125 or 12.5 %");
  if (trim(rest) == "%") {
    number.exponent -= 2;
    rest = {};
  }
  if (rest.empty()) {
    if (number.exponent >= 0) return {whole_units(number, 1, 1, kMax, whole, "ones"), 1};
    std::uint64_t denominator = 1;
    if (number.exponent < -19 || number.digits > kMax) refuse(whole, "has too many digits for a ratio");
    for (int e = number.exponent; e < 0; ++e) denominator *= 10;
    return Ratio::of(static_cast<std::uint64_t>(number.digits), denominator);
  }
  rest = trim(rest);
  if (!rest.empty() && rest.front() == '/' && number.exponent >= 0) {
    rest = trim(rest.substr(1));
    const std::uint64_t numerator = whole_units(number, 1, 1, kMax, whole, "ones");
    const Decimal below = take_decimal(rest, whole, "a ratio such as 1/8, 0.125 or 12.5 %");
    if (rest.empty() && below.exponent >= 0) {
      const std::uint64_t denominator = whole_units(below, 1, 1, kMax, whole, "ones");
      if (denominator == 0) refuse(whole, "divides by zero");
      return Ratio::of(numerator, denominator);
    }
  }
  refuse(whole, "is not a ratio such as 1/8, 0.125 or 12.5 %");
}

std::string format_quantity(SimTime value) {
  if (value.ps < 0) {
    return fmt::format("-{}", format_units(static_cast<std::uint64_t>(-(value.ps + 1)) + 1, kTimeQuantity));
  }
  return format_units(static_cast<std::uint64_t>(value.ps), kTimeQuantity);
}
std::string format_quantity(Bytes value) { return format_units(value.value, kBytesQuantity); }
std::string format_quantity(Bandwidth value) { return format_units(value.bytes_per_second, kBandwidthQuantity); }
std::string format_quantity(Frequency value) { return format_units(value.hertz, kFrequencyQuantity); }
std::string format_quantity(Energy value) { return format_units(value.femtojoules, kEnergyQuantity); }
std::string format_quantity(Power value) { return format_units(value.nanowatts, kPowerQuantity); }
std::string format_quantity(ComputeRate value) {
  if (value.flop_per_second == 0) return "0 MFLOPS";
  const std::string text = format_units(value.flop_per_second, kComputeQuantity);
  if (!text.empty()) return text;
  // Finer than a thousandth of a MFLOPS: six decimals of one are single operations.
  return fmt::format("{}.{:06} MFLOPS", value.flop_per_second / kMega, value.flop_per_second % kMega);
}
std::string format_quantity(Ratio value) {
  std::uint64_t scale = 1;
  for (int decimals = 0; decimals <= 6; ++decimals, scale *= 10) {
    if (scale % value.denominator != 0) continue;
    const auto units = static_cast<Wide>(value.numerator) * (scale / value.denominator);
    if (units > kMax) break;
    const auto all = static_cast<std::uint64_t>(units);
    if (decimals == 0) return fmt::format("{}", all);
    return fmt::format("{}.{:0{}}", all / scale, all % scale, decimals);
  }
  return fmt::format("{}/{}", value.numerator, value.denominator);
}

}  // namespace csdsim
