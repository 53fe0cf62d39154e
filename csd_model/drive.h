// A computational SSD as a SystemC module.
#pragma once

#include <tlm_utils/simple_initiator_socket.h>
#include <tlm_utils/simple_target_socket.h>

#include <functional>
#include <memory>
#include <systemc>
#include <tlm>

#include "attention_engine/core/engine_config.h"
#include "attention_engine/core/kv_source.h"
#include "base/statistics.h"
#include "csd_model/drive_activity.h"
#include "csd_model/drive_config.h"
#include "csd_model/drive_factories.h"
#include "csd_model/drive_totals.h"
#include "csd_model/drive_units.h"
#include "csd_model/power_switch.h"
#include "csd_model/station_times.h"
#include "ftl/block/block_ftl.h"
#include "ftl/kv/kv_ftl.h"
#include "nfc/core/flash_observers.h"
#include "nfc/core/flash_statistics.h"
#include "nvme_if/core/memory_map.h"
#include "nvme_if/core/shared_link.h"
#include "nvme_if/sysc/interrupt_if.h"
#include "nvme_if/sysc/nvme_controller.h"

namespace csdsim::engine {
class AttentionEngine;
}

namespace csdsim::csd_model {

class DramPort;
class FirmwareCores;
class InternalLink;
class PassedHeads;
class PeerReads;

/// An attention engine and the sockets by which the drive binds it. Protocol: attention_engine/sysc/attend_payload.h.
struct EngineParts {
  std::unique_ptr<sc_core::sc_module> module;
  tlm::tlm_target_socket<>* attend = nullptr;
  tlm::tlm_initiator_socket<>* flash = nullptr;
  /// The engine takes payloads of attention_engine/sysc/feed_forward_payload.h; without it the drive has no command
  /// feed_forward.
  bool feed_forward = false;
};

/// Optional observers of the parts of a drive; null: not observed.
struct DriveObservers {
  nfc::FlashObservers flash;
  WorkObserver* queues = nullptr;            ///< by QueueId, see NvmeController::observe_work()
  WorkObserver* controller_cores = nullptr;  ///< cores of the controller's firmware, as one unit
  WorkObserver* lookup_cores = nullptr;      ///< by core
  WorkObserver* dram = nullptr;              ///< where its bandwidth is limited
  WorkObserver* write_buffer = nullptr;      ///< level in bytes
  WorkObserver* link = nullptr;              ///< by LinkDirection
  WorkObserver* engine = nullptr;            ///< watches the model's engine, see HeadScheduler::observe_work()
  nvme::SharedLink::Observer internal_link;  ///< busy periods, where there is an on-board switch
};

/// A drive with one NVMe controller and two kinds of firmware behind it: blocks, and the KV cache with attention.
/// Inside, PCIe DMA, controller, firmware, flash, DRAM and attention engine are modules bound by sockets; with
/// Fidelity::at the units of engine, firmware and DRAM port are modules bound by signals, and the flash is modules,
/// too.
///
/// Bind `bar` (BAR0: registers and doorbells, 4- and 8-byte accesses) to an initiator, `dma` to the memory system that
/// the drive reads and writes as bus master, and `interrupt` to the receiver of interrupts; polling the completion
/// queues works as well. The time resolution must be 1 ps.
class Drive : public sc_core::sc_module {
 public:
  tlm::tlm_target_socket<> bar{"bar"};
  tlm::tlm_initiator_socket<> dma{"dma"};
  sc_core::sc_port<nvme::InterruptIf, 0, sc_core::SC_ZERO_OR_MORE_BOUND> interrupt{"interrupt"};

  /// `map`, if given, names the memory that `dma` reaches and counts the traffic by region; it must outlive the drive.
  /// Throws UserError for a configuration that cannot be built. Without `engine` the drive has the model's own.
  /// `units`, only with Fidelity::at, may replace units of the model, those of the model's own engine among them.
  Drive(const sc_core::sc_module_name& name, const DriveConfig& config, nvme::MemoryMap* map = nullptr,
        const EngineFactory& engine = nullptr, const DriveUnitFactory& units = nullptr);
  ~Drive() override;

  const DriveConfig& config() const;
  ftl::KvFtl& kv_ftl();
  const ftl::KvFtl& kv_ftl() const;
  ftl::BlockFtl& block_ftl();
  const ftl::BlockFtl& block_ftl() const;
  const ftl::BlockManager& block_manager() const;
  ftl::BackingStore& backing_store();     ///< data of the block namespace
  ftl::BackingStore& kv_backing_store();  ///< data of the KV namespace
  nvme::NvmeController& controller();
  const nvme::NvmeController& controller() const;
  const nfc::FlashStatistics& flash_statistics() const;
  const nvme::PcieLink& link() const;
  /// Totals of the model's own engine; null when the drive was given another one.
  const engine::EngineStats* engine_stats() const;
  /// Null likewise.
  const engine::AttentionEngine* own_engine() const;
  const ftl::DramBudget& dram() const;
  const DramPort& dram_port() const;
  /// Null where the engine is beside the flash controllers.
  const PeerReads* peer_reads() const;
  /// Not present there either.
  const InternalLink& internal_link() const;
  const FirmwareCores& lookup_cores() const;
  /// The counts of the flash controllers' filters. An engine behind a switch reads past them.
  const nfc::KvFilter& filter() const;

  /// The parts of the time of attention up to `now`, the current time.
  ActivitySplit activity(SimTime now);
  /// What the drive has done since the start of the simulation. Where the bandwidth of controller DRAM is not
  /// modelled, its traffic is taken to be the payload of the link, in and out, and the pages that garbage collection
  /// copies.
  DriveTotals totals() const;
  /// Busy and waiting times of its stations up to now.
  StationTimes station_times() const;
  /// The same without the heads that sampled runs pass over.
  DriveTotals simulated_totals() const;
  StationTimes simulated_station_times() const;
  /// Heads that attention commands have passed over; null where none does.
  const PassedHeads* passed_heads() const;
  /// Registers the statistics of all parts, with unit and meaning; the drive must outlive the dump.
  void register_statistics(Statistics& statistics) const;

  /// The observers must outlive the drive, or the next call. False if its flash model has no observers.
  bool observe(const DriveObservers& observers);
  /// With Fidelity::at, adds what its modules show to a waveform: buses, planes and page buffers of the flash,
  /// decoders, filters, the engine with its units, the firmware cores and the DRAM port. (Fidelity::fast has nothing to
  /// show.)
  void trace(sc_core::sc_trace_file* file) const override;

  /// Timing runs: appends tokens up to `tokens` to heads of a layer, which hold equally many, in no simulated time and
  /// without page operations, as sampled runs need for steps that they skip. Throws UserError where they do not fit the
  /// drive.
  void materialise(SequenceId sequence, LayerId layer, HeadRange heads, std::uint32_t tokens);

  /// The power fails now: commands, open word lines and what no capacitors protect are gone, and the controller answers
  /// no more. To be called by a process or an alarm of the owner, not within a callback of the drive. Needs
  /// DriveConfig::may_lose_power; UserError otherwise, and if the power is off.
  void power_off();
  /// The power comes back. Calls back when the drive has found its data again and the controller answers: the host then
  /// brings it up (NvmeDriver::restart()). UserError if the power is on.
  void power_on(std::function<void()> ready);
  const PowerLosses& power_losses() const;

  /// Calls back when no flush of the KV cache is in flight: what was appended is in flash.
  void when_drained(std::function<void()> callback);

 private:
  DriveActivity& activity_of_stations() const;
  SimTime flash_time(SimTime now) const;

  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace csdsim::csd_model

/// The name that users' own platforms know: csd_model::Drive.
namespace csd_model = csdsim::csd_model;
