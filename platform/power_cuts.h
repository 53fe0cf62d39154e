// The power of a drive fails at given moments, and comes back.
#pragma once

#include <cstddef>
#include <functional>

#include "csd_model/drive.h"
#include "nvme_if/core/nvme_config.h"
#include "nvme_if/sysc/nvme_driver.h"
#include "simulation/event_loop.h"

namespace csdsim::platform {

class PowerCuts {
 public:
  /// All must outlive the cuts. A cut before the drive was ready, or while it is without power, ends the simulation
  /// with a UserError.
  PowerCuts(const nvme::PowerConfig& config, csd_model::Drive& drive, nvme::NvmeDriver& driver);

  /// Calls back at each cut, when drive and driver know of it.
  void on_cut(std::function<void()> callback) { told_ = std::move(callback); }

 private:
  void due();
  void cut();

  nvme::PowerConfig config_;
  csd_model::Drive& drive_;
  nvme::NvmeDriver& driver_;
  std::size_t next_ = 0;  ///< index of the next cut
  bool on_ = true;
  std::function<void()> told_;
  Alarm due_{AlarmRank::kernel, [this] { due(); }};
};

}  // namespace csdsim::platform
