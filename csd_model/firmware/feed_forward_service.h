// Firmware of the command feed_forward: the feed-forward network of neurons whose records are in the block namespace.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "attention_engine/core/neuron_job.h"
#include "base/slot_pool.h"
#include "csd_model/firmware/block_service.h"
#include "csd_model/firmware/controller_dram.h"
#include "csd_model/firmware/dram_port.h"
#include "csd_model/firmware/engine_io.h"
#include "csd_model/firmware/map_lookups.h"
#include "csd_model/firmware/record_pages.h"
#include "ftl/block/block_ftl.h"
#include "nvme_if/sysc/command.h"

namespace csdsim::csd_model {

struct FeedForwardServiceConfig {
  Bytes page_size;
  bool carried = false;         ///< bytes move with the commands
  bool engine_in_dram = false;  ///< the engine's buffer lies in controller DRAM, whose bandwidth it uses
};

/// The list, the biases and x come over the link; pages that are not in flash yet are looked up and read from
/// controller DRAM; then the command is one job of the attention engine, which reads the other pages past controller
/// DRAM, each when it is looked up, as it reads pages of K and V, and y goes back. What a record holds is settled when
/// the job starts, with a cached map when the map is read: later writes do not change the result.
class FeedForwardService : private engine::NeuronSource {
 public:
  FeedForwardService(const FeedForwardServiceConfig& config, ftl::BlockFtl& ftl, BlockService& blocks, EngineIo& engine,
                     MapLookups& lookups, ControllerDram& dram, DramPort& port);
  ~FeedForwardService() override;

  void feed_forward(nvme::Command& command, const nvme::FeedForward& op);

  /// The power fails: no command is under way any more.
  void forget() { in_engine_ = {}; }

 private:
  using Status = nvme::Status;
  struct Job;
  using JobPtr = std::shared_ptr<Job>;

  void fetch_inputs(const JobPtr& job);
  Status validate(const Job& job) const;
  void inputs_arrived(const JobPtr& job);
  void read_buffered(const JobPtr& job);
  void start_engine(const JobPtr& job);
  void plan_records(const engine::NeuronJob& of_engine, engine::NeuronPages& out) override;
  void plan_page(Job& job, std::uint32_t index, ftl::Phase& ops);
  void computed(const JobPtr& job);

  FeedForwardServiceConfig config_;
  ftl::BlockFtl& ftl_;
  BlockService& blocks_;
  EngineIo& engine_;
  MapLookups& lookups_;
  ControllerDram& dram_;
  DramPort& port_;
  SlotPool<JobPtr> in_engine_;   ///< a slot is NeuronJob::tag
  std::vector<std::byte> page_;  ///< scratch: the wanted bytes of a page
};

}  // namespace csdsim::csd_model
