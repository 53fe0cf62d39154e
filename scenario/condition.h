// A condition over the axes of a sweep: "channels * dies_per_channel <= 64 and kind != gpu-only".
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace csdsim::scenario {

/// Comparisons joined by `and` and `or`. A comparison has a formula on each side: axes, numbers, quantities
/// ("1.4 GB/s"), units (us is 1 us), + - * / ^, brackets and functions. Both sides have the same unit, as have the
/// sides of + and -. A name and a text are compared with == and != (kind == hybrid, system != "host-kv(attention:
/// host)").
class Condition {
 public:
  /// An axis: its names in conditions and its values as written.
  struct Axis {
    std::vector<std::string> names;
    std::vector<std::string> values;
  };
  /// Throws UserError for what is no condition over these axes.
  Condition(const std::string& text, const std::vector<Axis>& axes);

  /// True if it holds at a point, given the index of its value on every axis. `and` and `or` evaluate their second
  /// side only where it matters. Throws UserError where it divides by zero or where a number is not finite.
  bool holds(const std::vector<std::size_t>& indices) const { return value_(indices) != 0; }

 private:
  std::function<double(const std::vector<std::size_t>&)> value_;
};

}  // namespace csdsim::scenario
