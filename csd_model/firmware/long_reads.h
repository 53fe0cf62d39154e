// Reads of the host that take several pages of flash, or fail.
#pragma once

#include <cstdint>
#include <span>

#include "base/slot_pool.h"
#include "csd_model/firmware/controller_dram.h"
#include "csd_model/firmware/dram_port.h"
#include "csd_model/firmware/flash_io.h"
#include "csd_model/firmware/internal_link.h"
#include "nvme_if/sysc/command.h"
#include "simulation/sim_time.h"

namespace csdsim::csd_model {

/// Of a command whose stages are observed: it has been in the flash until now, and the data is in DRAM.
inline void mark_read(nvme::Command& command, const FlashStages& stages) {
  RequestStages* const times = command.stages();
  if (times == nullptr) return;
  times->add_flash(stages, {}, sim_time_now());
  times->mark(RequestStage::dram, sim_time_now());
}

/// Each page that flash delivers sends an equal share of the data over the link, whichever page it is; the completion
/// follows the last one, and nothing is sent of a read that fails.
///
/// Where sending a share is nothing but a transfer on the link which nobody waits for, it is made ahead of the time of
/// its page, and the page takes no event (flash_part()).
class LongReads final : private nfc::FlashClient {
 public:
  LongReads(FlashIo& flash, DramPort& port, InternalLink& link, bool carried)
      : flash_(flash), port_(port), internal_link_(link), carried_(carried) {}

  /// Reads these pages, and then completes the command, with an error if `planned` is one. Those that cannot be
  /// corrected are read as well: the drive notices only then. `data`: carried runs only.
  void start(nvme::Command& command, nvme::Status planned, DramBuffer data, std::span<const PageOp> pages);

  /// The power fails: nothing is under way any more.
  void forget() { reading_ = {}; }

 private:
  struct Read {
    nvme::Command* command = nullptr;
    std::uint32_t pages = 0;    ///< at least 1
    std::uint32_t arrived = 0;  ///< pages of these that have arrived
    Bytes step;                 ///< share of the data for each page, where whole packets divide it evenly; else 0
    Bytes sent;                 ///< bytes of the data that have been sent, or are on the internal link
    nvme::Status planned;
    DramBuffer data;
    Bytes end() const;
  };

  void flash_done(std::uint64_t tag, const FlashStages& stages) override;
  void flash_soon(std::uint64_t tag) override { reading_[tag].command->prefetch(); }
  bool flash_part(std::uint64_t tag, SimTime at) override;
  void send(std::uint64_t tag, Bytes begin, Bytes length);
  void end(std::uint64_t tag);

  FlashIo& flash_;
  DramPort& port_;
  InternalLink& internal_link_;
  bool carried_;
  SlotPool<Read> reading_;  ///< slots are the flash's tags
};

}  // namespace csdsim::csd_model
