// The configuration that a drive is built from.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "attention_engine/core/engine_config.h"
#include "attention_engine/core/selection.h"
#include "base/address.h"
#include "base/units.h"
#include "csd_model/firmware/write_buffer.h"
#include "csd_model/peer_read_config.h"
#include "csd_model/power_loss_config.h"
#include "ftl/block/block_ftl.h"
#include "ftl/kv/firmware_times.h"
#include "ftl/kv/kv_ftl.h"
#include "nfc/core/flash_timing.h"
#include "nfc/core/kv_filter.h"
#include "nfc/core/reliability.h"
#include "nvme_if/core/controller_params.h"
#include "nvme_if/core/link_config.h"
#include "nvme_if/core/nvme_config.h"

namespace csdsim::csd_model {

/// `fast` times flash with the timeline core, and units of engine and firmware by when they are free. `at` has
/// event-driven modules for all of these. Both give the same times.
enum class Fidelity : std::uint8_t { fast, at };

/// Everything that a drive is made of, as its parts take it; drive_config() makes it from what a user says.
struct DriveConfig {
  FlashGeometry geometry;
  nfc::FlashTiming flash;
  std::optional<nfc::ReliabilityParams> reliability;  ///< unset: nothing fails
  std::uint32_t rated_cycles = nfc::kRatedCycles;     ///< cycles of a block; `reliability` has its own
  Fidelity fidelity = Fidelity::fast;
  nfc::FilterLocation filter = nfc::FilterLocation::nfc;
  engine::EngineConfig engine;
  std::optional<PeerReadConfig> peer_reads;  ///< unset: the engine is beside the flash controllers
  nvme::LinkConfig link;
  nvme::NvmeControllerParams nvme;  ///< namespace_blocks, volatile_cache and fdp follow from the rest
  /// Flexible Data Placement: reclaim unit handles are the FTL's placement handles, reclaim groups its planes, reclaim
  /// units its blocks. Unset: the controller has none.
  std::optional<nvme::FdpConfig> fdp;
  SimTime pipeline_time;  ///< fixed latency per command in the controller; does not limit the rate of commands
  Bytes dram = Bytes::gib(8);
  std::optional<Bandwidth> dram_bandwidth;  ///< shared by all traffic; unset: never waited for
  Bytes write_buffer;                       ///< 0: a write completes when it is in flash
  FlushConfig flush;                        ///< when buffered block writes are programmed
  PowerLossConfig power_loss;
  /// What it takes to write so many bytes of DRAM to flash when the power fails; null: no time and no energy.
  std::function<PowerLossDump(Bytes)> dump;
  /// Drive::power_off() may be called. A drive with K and V needs capacitors then.
  bool may_lose_power = false;
  ftl::KvFtlConfig kv;
  /// Makes the mapping policy of the KV cache. Null: InstInfer's.
  std::function<std::unique_ptr<ftl::KvMappingPolicy>(const FlashGeometry&)> mapping;
  ftl::BlockFtlConfig block;
  /// Unit of the block namespace's map, a divisor of a page; 0: the page. The KV namespace is mapped by pages. With
  /// word lines of several pages the drive has none.
  Bytes mapping_unit{};
  /// A block of the block namespace is the blocks of one number in all planes of a die. Such a drive has a write buffer
  /// and no KV namespace.
  bool superblocks = false;
  /// Blocks of a plane that make one block of the block namespace: see ReclaimLayout. With more than 1 the drive has no
  /// KV namespace, no spare blocks and no faults.
  std::uint32_t reclaim_unit_blocks = 1;
  ftl::BlockManagerConfig blocks;
  /// Controller DRAM for cached entries of the block namespace's page map, 8 bytes each; 0: the map is held whole, and
  /// counts against nothing.
  Bytes map_cache;
  ftl::MediaFaults* faults = nullptr;  ///< what goes wrong in the flash; must outlive the drive. Null: nothing
  double kv_share =
      0.5;  ///< share of each plane's erase blocks that the KV namespace has; the block namespace has the rest
  SimTime lookup_time;             ///< firmware time of a map lookup
  std::uint32_t lookup_cores = 1;  ///< cores that look up, and do what is next
  ftl::FirmwareTimes firmware;
  ftl::DataMode data = ftl::DataMode::carried;
  /// Timing runs: which pages a SparF head touches. Must outlive the drive; not needed in carried runs.
  engine::SelectionSource* selection = nullptr;

  /// Sampled timing runs: attention commands of many heads that are alike pass over some of them, at the pace that so
  /// many heads show, a multiple of engine::HeadSampler::kBlocks; 0: none does. Only for drives with `samples_heads()`.
  std::uint32_t measured_heads = 0;
  /// Whether commands may pass over heads: engine, flash and firmware can stand still.
  bool samples_heads() const { return fidelity == Fidelity::fast && data == ftl::DataMode::timing && !peer_reads; }

  /// engine.buffer is part of `dram`, and what the engine keeps of a job passes through dram_bandwidth.
  bool engine_buffer_in_dram() const { return engine.buffer_memory == engine::EngineMemory::dram && kv_share > 0; }
  /// The unit in which pages reach an engine behind the switch: a codeword, or a page where pages have none.
  Bytes peer_piece() const { return block.codeword.value > 0 ? block.codeword : geometry.page_size; }
};

/// A mapping policy as a drive of this configuration has it.
std::unique_ptr<ftl::KvMappingPolicy> make_mapping(const DriveConfig& config);

}  // namespace csdsim::csd_model
