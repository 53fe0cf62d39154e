#include "csd_model/power_loss_config.h"

namespace csdsim::csd_model {

void describe(ParamVisitor&, NoProtection&) {}

void describe(ParamVisitor& v, CapacitorProtection& c) {
  v.param("energy", c.energy, {Energy{1'000'000'000}, Energy{1'000'000'000'000'000'000}},
          "What the capacitors give until the drive stops.", assumed("about 1 mF, charged to 35 V"));
}

void describe(ParamVisitor& v, PowerLossConfig& c) {
  v.choice("protection", c.protection, "What becomes of the write buffer when the power fails.",
           assumed("the case in which hosts must flush"));
}

}  // namespace csdsim::csd_model
