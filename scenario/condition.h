// A condition over the axes of a sweep: "channels * dies_per_channel <= 64 and kind != gpu-only".
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/formula.h"

namespace csdsim::scenario {

/// A formula (base/formula.h) over the values of axes. Besides, it may hold quantities ("1.4 GB/s"), comparisons of an
/// axis with one of its values as text (kind == hybrid, system != "host-kv(attention: host)"), `and` and `or`.
class Condition {
 public:
  /// An axis: its names in conditions and its values as written.
  struct Axis {
    std::vector<std::string> names;
    std::vector<std::string> values;
  };
  /// Throws UserError for what is no condition over these axes.
  Condition(std::string text, const std::vector<Axis>& axes);

  /// True if it holds at a point, given the index of its value on every axis.
  bool holds(const std::vector<std::size_t>& indices) const;

 private:
  struct Name {
    std::size_t axis;
    std::vector<double> values;  ///< by index
  };
  const Name& name(const std::string& text) const;

  std::vector<std::pair<std::string, Name>> names_;
  std::optional<Formula> formula_;
};

}  // namespace csdsim::scenario
