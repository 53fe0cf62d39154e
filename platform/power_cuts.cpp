#include "platform/power_cuts.h"

#include <fmt/format.h>

#include "base/error.h"
#include "simulation/sim_time.h"

namespace csdsim::platform {

PowerCuts::PowerCuts(const nvme::PowerConfig& config, csd_model::Drive& drive, nvme::NvmeDriver& driver)
    : config_(config), drive_(drive), driver_(driver) {
  due_.set(config_.cuts.front());
}

void PowerCuts::due() {
  if (on_) return cut();
  on_ = true;
  drive_.power_on([this] { driver_.restart(); });
  if (next_ < config_.cuts.size()) due_.set(config_.cuts[next_]);
}

void PowerCuts::cut() {
  if (next_ == 0 && !driver_.ready())
    throw UserError(
        fmt::format("platform.device.nvme.power.cuts: the power fails after {:.6g} us, before the host has "
                    "brought the drive up for the first time",
                    config_.cuts[0].seconds() * 1e6));
  ++next_;
  on_ = false;
  drive_.power_off();
  driver_.lose_controller();
  if (told_) told_();
  due_.set(sim_time_now() + config_.off_time);
}

}  // namespace csdsim::platform
