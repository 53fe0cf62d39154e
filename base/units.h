// Strong types for time, sizes and rates. Simulated time is integral picoseconds; nothing here rounds silently.
#pragma once

#include <compare>
#include <cstdint>
#include <limits>

namespace csdsim {

/// Simulated time, or a span of it, in picoseconds. Range +-106 days.
struct SimTime {
  std::int64_t ps = 0;

  static constexpr SimTime picoseconds(std::int64_t v) { return {v}; }
  static constexpr SimTime nanoseconds(std::int64_t v) { return {v * 1'000}; }
  static constexpr SimTime microseconds(std::int64_t v) { return {v * 1'000'000}; }
  static constexpr SimTime milliseconds(std::int64_t v) { return {v * 1'000'000'000}; }
  /// Later than any event: "never".
  static constexpr SimTime max() { return {std::numeric_limits<std::int64_t>::max()}; }

  constexpr double seconds() const { return static_cast<double>(ps) * 1e-12; }

  constexpr auto operator<=>(const SimTime&) const = default;
  constexpr SimTime& operator+=(SimTime o) {
    ps += o.ps;
    return *this;
  }
  constexpr SimTime& operator-=(SimTime o) {
    ps -= o.ps;
    return *this;
  }
  friend constexpr SimTime operator+(SimTime a, SimTime b) { return {a.ps + b.ps}; }
  friend constexpr SimTime operator-(SimTime a, SimTime b) { return {a.ps - b.ps}; }
  friend constexpr SimTime operator*(SimTime a, std::int64_t n) { return {a.ps * n}; }
  friend constexpr SimTime operator*(std::int64_t n, SimTime a) { return {a.ps * n}; }
};

/// A size in bytes.
struct Bytes {
  std::uint64_t value = 0;

  static constexpr Bytes kib(std::uint64_t v) { return {v << 10}; }
  static constexpr Bytes mib(std::uint64_t v) { return {v << 20}; }
  static constexpr Bytes gib(std::uint64_t v) { return {v << 30}; }

  constexpr auto operator<=>(const Bytes&) const = default;
  constexpr Bytes& operator+=(Bytes o) {
    value += o.value;
    return *this;
  }
  constexpr Bytes& operator-=(Bytes o) {
    value -= o.value;
    return *this;
  }
  friend constexpr Bytes operator+(Bytes a, Bytes b) { return {a.value + b.value}; }
  friend constexpr Bytes operator-(Bytes a, Bytes b) { return {a.value - b.value}; }
  friend constexpr Bytes operator*(Bytes a, std::uint64_t n) { return {a.value * n}; }
};

/// A data rate in bytes per second (1.4 GB/s is 1'400'000'000). Zero means "not set" and may not be transferred at.
struct Bandwidth {
  std::uint64_t bytes_per_second = 0;
  constexpr auto operator<=>(const Bandwidth&) const = default;
};

/// A clock frequency in hertz.
struct Frequency {
  std::uint64_t hertz = 0;
  constexpr auto operator<=>(const Frequency&) const = default;
};

/// Host wall-clock time in seconds. It never mixes with SimTime: a measured duration enters simulated time only through
/// host::measured_duration().
struct WallTime {
  double seconds = 0;
  constexpr auto operator<=>(const WallTime&) const = default;
};

namespace detail {
constexpr SimTime ceil_div_ps(std::uint64_t amount, std::uint64_t per_second) {
  const unsigned __int128 numerator = static_cast<unsigned __int128>(amount) * 1'000'000'000'000ULL;
  return {static_cast<std::int64_t>((numerator + per_second - 1) / per_second)};
}
}  // namespace detail

/// Time to move `size` at `rate`, rounded up to a picosecond in 128 bits: 4 KiB at 1.4 GB/s is 2'925'715 ps.
/// Precondition: rate is not zero.
constexpr SimTime transfer_time(Bytes size, Bandwidth rate) {
  return detail::ceil_div_ps(size.value, rate.bytes_per_second);
}

/// Time of `cycles` clock periods, rounded up to a picosecond. Precondition: clock is not zero.
constexpr SimTime cycles_time(std::uint64_t cycles, Frequency clock) {
  return detail::ceil_div_ps(cycles, clock.hertz);
}

}  // namespace csdsim
