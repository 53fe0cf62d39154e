// A drive whose power fails and comes back (docs/durability.md).
#pragma once

#include <cstdint>
#include <functional>

#include "csd_model/drive_activity.h"
#include "csd_model/drive_config.h"
#include "csd_model/firmware/block_service.h"
#include "csd_model/firmware/dram_port.h"
#include "csd_model/firmware/engine_io.h"
#include "csd_model/firmware/feed_forward_service.h"
#include "csd_model/firmware/firmware_cores.h"
#include "csd_model/firmware/flash_frontend.h"
#include "csd_model/firmware/flash_io.h"
#include "csd_model/firmware/flash_ledger.h"
#include "csd_model/firmware/kv_lookup.h"
#include "csd_model/firmware/kv_service.h"
#include "csd_model/firmware/timed_work.h"
#include "csd_model/power_losses.h"
#include "nfc/sysc/flash_target.h"
#include "nvme_if/sysc/nvme_controller.h"
#include "simulation/event_loop.h"

namespace csdsim::engine {
class AttentionEngine;
}

namespace csdsim::csd_model {

/// Cuts the power of a drive at any moment, and brings it up again. At a cut all stations forget their work, and the
/// flash keeps what its arrays have done: programs under way are torn, erases half done. Capacitors write what is in
/// DRAM, as far as their energy reaches: first what the KV namespace has there, then pages of blocks, the oldest first.
///
/// After power-on, and not before the dump is over, the firmware reads the metadata of every page that was handed out,
/// on all planes side by side, and finds both maps again (BlockFtl::recover, KvFtl::recover). A cut before that leaves
/// the flash as it was. The firmware then reads the pages that it needs for what it keeps of K and V in DRAM, and the
/// controller answers.
class PowerSwitch {
 public:
  struct Parts {
    DriveActivity& activity;
    ftl::BackingStore& store;
    ftl::BlockManager& blocks;
    ftl::BlockFtl& ftl;
    BlockService& service;
    ftl::BackingStore& kv_store;
    ftl::KvFtl& kv_ftl;
    KvService& kv_service;
    KvLookup& lookup;
    FeedForwardService& feed_forward;
    engine::AttentionEngine* engine;  ///< null: the drive has another one
    EngineIo& engine_io;
    FlashFrontend& flash_frontend;
    DramPort& dram_port;
    FirmwareCores& cores;
    FlashIo& flash_io;
    nfc::FlashTarget& flash;
    TimedWork* pipeline;  ///< null: there is none
    nvme::PcieDma& dma;
    nvme::NvmeController& controller;
  };

  PowerSwitch(const DriveConfig& config, const Parts& parts);

  /// UserError if the power is off, or is not to fail (DriveConfig::may_lose_power).
  void off();
  /// Calls back when the controller answers. UserError if the power is on.
  void on(std::function<void()> ready);

  const PowerLosses& losses() const { return losses_; }

 private:
  /// on: both maps are there.
  enum class State : std::uint8_t { on, off, recovering };

  void save(const FlashLedger::Found& found);
  void dump();
  void scan();
  void recover();
  void answer();

  const DriveConfig& config_;
  Parts parts_;
  FlashLedger ledger_;
  State state_ = State::on;
  ftl::BlockDump dump_;  ///< what was dumped at the last cut
  ftl::KvDump kv_dump_;  ///< likewise
  SimTime dump_end_;     ///< capacitors write until then
  SimTime switched_on_;
  std::function<void()> ready_;
  PowerLosses losses_;
  Alarm scan_due_{AlarmRank::firmware, [this] { scan(); }};
};

}  // namespace csdsim::csd_model
