// Values of an axis that are written as a range, and values as numbers.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace csdsim::scenario {

/// The values of "2..32 step 2", "1..64 times 2" or "0.7..2.8 GB/s log 3" (so many values with equal ratios; counts are
/// whole, other values have three digits, and equal ones count once). Both ends belong to the range. Nothing when the
/// text is no range. Throws UserError when its numbers do not make one, or make more than `most` values.
std::optional<std::vector<std::string>> expand_range(std::string_view text, std::size_t most);

/// The unit of a number as exponents of base units. All are 0 for a bare number.
struct BaseUnits {
  int seconds = 0, bytes = 0, operations = 0, joules = 0;
  bool operator==(const BaseUnits&) const = default;
};

/// A unit in words, and an example of a value: "a time" and "50 us", "a bare number" and "8". A unit that no parameter
/// has is written out, as "a number of bytes * seconds", and has no example.
struct QuantityName {
  std::string name;
  std::string example;
};
QuantityName quantity_name(const BaseUnits& units);

/// A number of base units: bytes, seconds, bytes/s, Hz, flop/s, joules, watts.
struct Measured {
  double value = 0;
  BaseUnits units;
};

/// A count, share or quantity.
std::optional<Measured> measured_of(std::string_view text);

/// The number alone.
std::optional<double> number_of(std::string_view text);

}  // namespace csdsim::scenario
