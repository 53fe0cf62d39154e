// Says whether more of a metric is better.
#pragma once

#include <cstdint>
#include <string_view>

namespace csdsim::report {

enum class Better : std::uint8_t {
  neither,  ///< a count or an amount of work, which is good or bad by what it is for
  more,
  less
};

/// By the name of a metric: rates, hit rates and lives are better where they are larger; times, energy, wear and losses
/// where they are smaller.
Better better_of(std::string_view metric);

}  // namespace csdsim::report
