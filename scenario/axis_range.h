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

/// A count, share or quantity as a number of its base unit: bytes, seconds, bytes/s, Hz, flop/s, joules, watts.
std::optional<double> number_of(std::string_view text);

}  // namespace csdsim::scenario
