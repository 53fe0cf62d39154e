// The properties of an NVMe controller that it reports in CAP and Identify.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/units.h"

namespace csdsim::nvme {

/// Flexible Data Placement of a drive with one endurance group and one configuration.
struct FdpParams {
  bool enabled = true;                 ///< at the first power-on; the host can change it (feature fdp)
  bool persistently_isolated = false;  ///< reclaim unit handles; otherwise they are initially isolated
  std::uint32_t reclaim_groups = 1;
  std::uint16_t handles = 1;  ///< reclaim unit handles, 1..128
  Bytes unit;                 ///< nominal size of a reclaim unit
  /// Reclaim unit handle of each placement handle of namespace 1, each once; empty: all of them in their order.
  std::vector<std::uint16_t> placement_handles = {};
};

/// ControllerParams::nsid while there is no namespace.
inline constexpr std::uint32_t kNoNamespace = 0xFFFF'FFFE;

struct ControllerParams {
  std::uint16_t io_queues = 4;       ///< I/O queue pairs at most, 1..65534
  std::uint32_t queue_depth = 1024;  ///< entries of a queue at most, 2..65536
  Bytes mdts = Bytes::mib(2);        ///< largest transfer of one command: 4 KiB * 2^n, up to 1 GiB
  Bytes block_size = Bytes::kib(4);  ///< logical block: 512 * 2^n, up to 64 KiB
  std::uint64_t namespace_blocks = std::uint64_t{1} << 20;  ///< size of namespace 1, at least 1
  std::uint8_t dstrd = 0;                                   ///< doorbell stride is 4 << dstrd bytes, 0..15
  std::uint8_t mpsmax = 4;                                  ///< largest memory page is 4096 << mpsmax bytes, 0..15
  bool kv_commands = true;            ///< the vendor KV commands are there; otherwise they are invalid_opcode
  bool feed_forward = false;          ///< the vendor command feed_forward is there; otherwise it is invalid_opcode
  bool volatile_cache = false;        ///< a volatile write cache is present: flush matters
  std::uint32_t nsid = 1;             ///< the attached namespace; kNoNamespace: there is none
  std::optional<FdpParams> fdp = {};  ///< unset: the controller has no Flexible Data Placement
  std::string serial = "CSDSIM0001";
  std::string model = "csdsim computational drive";
  std::string firmware = "1.0";
};

/// What is behind the registers: how commands are fetched, and the firmware.
struct NvmeControllerParams {
  ControllerParams controller;
  std::uint32_t fetch_burst = 16;          ///< submission entries that one DMA fetches at most, 1..1024
  std::uint32_t outstanding_fetches = 4;   ///< fetches under way at a time, at least 1
  std::uint32_t command_slots = 4096;      ///< commands inside the controller at a time, at least 1
  SimTime firmware_time{};                 ///< firmware work a command, before it executes
  std::uint32_t firmware_cores = 1;        ///< commands that the firmware works on at a time, at least 1
  SimTime disappears_at = SimTime::max();  ///< from then on no doorbell is heard and no completion is signalled
};

/// UserError for a value out of range, naming it.
void validate(const ControllerParams& params);

}  // namespace csdsim::nvme
