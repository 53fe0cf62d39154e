#include "csd_model/power_loss_config.h"

namespace csdsim::csd_model {

void describe(ParamVisitor&, NoProtection&) {}

void describe(ParamVisitor& v, CapacitorProtection& c) {
  v.optional(
      "energy", c.energy, "enough", {Energy{1'000'000'000}, Energy{1'000'000'000'000'000'000}},
      "What the capacitors give until the drive stops; `csdsim check` says how much of the write buffer it writes.",
      assumed("vendors size it for the write buffer, and state no figure"));
}

void describe(ParamVisitor& v, PowerLossConfig& c) {
  v.choice("protection", c.protection, "What becomes of the write buffer when the power fails.",
           assumed("the case in which hosts must flush"));
}

}  // namespace csdsim::csd_model
