// Firmware of the block namespace: read, write, flush and deallocate commands over the block FTL.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "csd_model/firmware/controller_dram.h"
#include "csd_model/firmware/dram_port.h"
#include "csd_model/firmware/firmware_cores.h"
#include "csd_model/firmware/plan_runner.h"
#include "csd_model/firmware/write_buffer.h"
#include "ftl/core/block_ftl.h"
#include "ftl/core/dram_budget.h"
#include "nvme_if/sysc/command.h"
#include "simulation/event_loop.h"

namespace csdsim::csd_model {

struct BlockServiceConfig {
  Bytes block_size;  ///< of a logical block
  FlashGeometry geometry;
  FlushConfig flush;    ///< of buffered writes
  SimTime lookup_time;  ///< firmware time a logical page
};

/// State changes when a command is planned; its page operations follow. Writes that fit the write buffer complete in
/// it, the others in flash. A flush waits for what was in the buffer when it arrived, pages of the KV cache included.
class BlockService : private nfc::FlashClient {
 public:
  BlockService(const BlockServiceConfig& config, ftl::BlockFtl& ftl, ftl::DramBudget& dram, FlashIo& flash,
               FirmwareCores& cores, DramPort& port, ControllerDram& buffers, WriteBuffer& write_buffer, bool carried);

  void read(nvme::Command& command, const nvme::BlockRead& op);
  void write(nvme::Command& command, const nvme::BlockWrite& op);
  void flush(nvme::Command& command);
  void deallocate(nvme::Command& command, const nvme::DatasetManagement& op);

  /// Calls back whenever the write buffer has given back controller DRAM.
  void on_dram_released(std::function<void()> callback) { dram_released_ = std::move(callback); }

 private:
  using Done = std::function<void()>;
  struct Read {
    nvme::Command* command = nullptr;
    ftl::IoStatus planned = ftl::IoStatus::ok;
  };

  void plan_read(nvme::Command& command, Bytes offset, Bytes length);
  void flash_done(std::uint64_t tag, const FlashStages& stages) override;
  void flash_soon(std::uint64_t tag) override { reading_[tag].command->prefetch(); }
  void end_read(std::uint64_t tag);
  void plan_mapped_read(nvme::Command& command, Bytes offset, Bytes length);
  void plan_write(nvme::Command& command, Bytes offset, Bytes length, const std::shared_ptr<DramBuffer>& data);
  void write_back(std::vector<ftl::Phase> phases, PlanRunner::Done done);
  /// A command has come: buffered writes wait on.
  void postpone_idle_flush();
  std::uint64_t pages(Bytes offset, Bytes length) const;
  /// Firmware looks up the pages in the map; at once where that costs nothing.
  template <class Work>
  void look_up(nvme::Command& command, Bytes offset, Bytes length, Work work);
  /// Starts background collection, a step at a time, in the planes that a plan programs.
  void collect_behind(const std::vector<PlaneId>& planes);
  void collect_in_background(PlaneId plane);
  /// What has passed of an observed command was this; of flash after the callback of its plan.
  static void mark(nvme::Command& command, RequestStage stage);
  void mark_plan(nvme::Command& command) const;

  BlockServiceConfig config_;
  ftl::BlockFtl& ftl_;
  ftl::DramBudget& dram_;
  FlashIo& flash_;
  PlanRunner plans_;
  std::set<PlaneId> collecting_;  ///< planes with a step of background collection in flight
  FirmwareCores& cores_;
  DramPort& port_;
  ControllerDram& dram_buffers_;
  bool carried_;
  ftl::Phase reads_;                   ///< scratch: of the command that is being planned
  std::vector<Read> reading_;          ///< commands whose pages are on their way, by tag
  std::vector<DramBuffer> read_data_;  ///< of them; carried runs only
  std::vector<std::uint64_t> free_reads_;
  WriteBuffer& write_buffer_;
  std::optional<Alarm> idle_;  ///< for FlushPolicy::idle: the host has been silent for long enough
  std::function<void()> dram_released_;
};

}  // namespace csdsim::csd_model
