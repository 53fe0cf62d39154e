// Quantities with units as people write them (`50 us`, `4 KiB`, `1.4 GB/s`), parsed exactly in 128 bits and written
// back in the shortest exact form.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/ratio.h"
#include "base/units.h"

namespace csdsim {

/// A rate of floating-point operations (155 TFLOPS is 155'000'000'000'000).
struct ComputeRate {
  std::uint64_t flop_per_second = 0;
  constexpr auto operator<=>(const ComputeRate&) const = default;
};

/// An energy in femtojoules (1.5 pJ is 1'500).
struct Energy {
  std::uint64_t femtojoules = 0;
  constexpr double joules() const { return static_cast<double>(femtojoules) * 1e-15; }
  constexpr auto operator<=>(const Energy&) const = default;
};

/// A power in nanowatts (1.5 W is 1'500'000'000).
struct Power {
  std::uint64_t nanowatts = 0;
  constexpr double watts() const { return static_cast<double>(nanowatts) * 1e-9; }
  constexpr auto operator<=>(const Power&) const = default;
};

/// Each parser throws UserError with a message that names the text and what would be right. A number without its unit,
/// a negative number, a leading zero (`010`), a value that is not a whole number of the base unit (1.5 ps) and one
/// beyond the type are errors.
SimTime parse_time(std::string_view text);
Bytes parse_bytes(std::string_view text);
Bandwidth parse_bandwidth(std::string_view text);
Frequency parse_frequency(std::string_view text);
ComputeRate parse_compute_rate(std::string_view text);
Energy parse_energy(std::string_view text);
Power parse_power(std::string_view text);

/// A bare whole number.
std::uint64_t parse_count(std::string_view text);

/// `1/8`, a bare decimal number such as `0.07`, or `12.5 %`, kept exactly.
Ratio parse_ratio(std::string_view text);

/// The shortest exact text, which the matching parser reads back to the same value.
std::string format_quantity(SimTime value);
std::string format_quantity(Bytes value);
std::string format_quantity(Bandwidth value);
std::string format_quantity(Frequency value);
std::string format_quantity(ComputeRate value);
std::string format_quantity(Energy value);
std::string format_quantity(Power value);
std::string format_quantity(Ratio value);

}  // namespace csdsim
