// Protection of data in controller DRAM against a loss of power (docs/durability.md).
#pragma once

#include <optional>
#include <string_view>
#include <variant>

#include "base/param.h"
#include "base/quantity.h"
#include "base/units.h"

namespace csdsim::csd_model {

struct NoProtection {
  static constexpr std::string_view kKind = "none";
  static constexpr std::string_view kDoc = "It is lost: the write buffer is a volatile cache.";
};
struct CapacitorProtection {
  static constexpr std::string_view kKind = "capacitors";
  static constexpr std::string_view kDoc =
      "Capacitors power the drive until it has written the write buffer to flash: no volatile cache.";
  std::optional<Energy> energy;  ///< that the drive can draw; unset: enough for the write buffer
};

/// Section `power_loss`.
struct PowerLossConfig {
  std::variant<NoProtection, CapacitorProtection> protection;

  /// Null where there are none.
  const CapacitorProtection* capacitors() const { return std::get_if<CapacitorProtection>(&protection); }
};

/// Writing what is in DRAM to flash when the power fails.
struct PowerLossDump {
  SimTime time;
  double joules = 0;
};

void describe(ParamVisitor& v, NoProtection& c);
void describe(ParamVisitor& v, CapacitorProtection& c);
void describe(ParamVisitor& v, PowerLossConfig& c);

}  // namespace csdsim::csd_model
