// The link between the SSD controller and the on-board PCIe switch (SmartSSD).
#pragma once

#include <array>
#include <optional>
#include <systemc>
#include <utility>

#include "base/units.h"
#include "csd_model/firmware/timed_work.h"
#include "nvme_if/core/pcie_link.h"
#include "nvme_if/core/shared_link.h"

namespace csdsim {
class Statistics;
}

namespace csdsim::csd_model {

/// One bandwidth in each direction, first come first served: what leaves the SSD controller (pages that the FPGA reads,
/// data of block reads, K and V that are not in flash yet) and what enters it (block writes, appended K and V). An idle
/// link forwards bytes as they come and adds no time. Where there is no switch nothing waits and nothing is counted.
class InternalLink : public sc_core::sc_module {
 public:
  using Work = TimedWork::Work;

  /// Without a bandwidth there is no switch.
  InternalLink(const sc_core::sc_module_name& name, std::optional<Bandwidth> bandwidth);

  bool present() const { return bandwidth_.has_value(); }

  /// When `size` bytes have passed, the last of which arrives at `arrival`. Precondition: present().
  SimTime pass(nvme::LinkDirection direction, Bytes size, SimTime arrival) {
    return directions_[static_cast<std::size_t>(direction)].pass(size, *bandwidth_, arrival);
  }
  /// Calls back when `size` bytes have passed, the last of which arrives now; at once where there is no switch.
  template <class Then>
  void move(nvme::LinkDirection direction, Bytes size, Then then) {
    if (!present() || size.value == 0) return then();
    move_over(direction, size, std::move(then));
  }

  const nvme::SharedLinkStats& stats(nvme::LinkDirection direction) const {
    return directions_[static_cast<std::size_t>(direction)].stats();
  }
  SimTime busy_until(nvme::LinkDirection direction, SimTime now) const {
    return directions_[static_cast<std::size_t>(direction)].busy_until(now);
  }
  /// Tells of busy periods; gaps of up to a microsecond count as busy. Ends the period that the observer before has not
  /// been told.
  void observe(const nvme::SharedLink::Observer& observer) {
    for (nvme::SharedLink& direction : directions_) {
      direction.end_period();
      direction.set_observer(observer, SimTime::microseconds(1));
    }
  }
  /// Registers bytes and busy time by direction; the link must outlive the dump.
  void register_statistics(Statistics& statistics) const;

 private:
  void move_over(nvme::LinkDirection direction, Bytes size, Work then);

  std::optional<Bandwidth> bandwidth_;
  std::array<nvme::SharedLink, 2> directions_{nvme::SharedLink("from the SSD controller"),
                                              nvme::SharedLink("to the SSD controller")};  ///< [LinkDirection]
  TimedWork work_;
};

}  // namespace csdsim::csd_model
