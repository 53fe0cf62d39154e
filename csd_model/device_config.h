// A drive as a scenario describes it: the sections of its parts, put together.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "attention_engine/core/engine_config.h"
#include "base/param.h"
#include "base/quantity.h"
#include "csd_model/drive_config.h"
#include "csd_model/energy_config.h"
#include "csd_model/firmware/write_buffer.h"
#include "csd_model/peer_read_config.h"
#include "csd_model/power_loss_config.h"
#include "ftl/ftl_config.h"
#include "ftl/plugin/mapping_config.h"
#include "nfc/core/flash_config.h"
#include "nvme_if/core/link_config.h"
#include "nvme_if/core/nvme_config.h"

namespace csdsim::csd_model {

struct DramConfig {
  Bytes capacity = Bytes::gib(8);
  std::optional<Bandwidth> bandwidth;  ///< unset: unlimited
};

/// The time at which buffered block writes go to flash.
struct ImmediateFlush {
  static constexpr FlushPolicy kPolicy = FlushPolicy::immediate;
  static constexpr std::string_view kKind = "immediate";
  static constexpr std::string_view kDoc = "As soon as they are in the buffer.";
};
struct ThresholdFlush {
  static constexpr FlushPolicy kPolicy = FlushPolicy::threshold;
  static constexpr std::string_view kKind = "threshold";
  static constexpr std::string_view kDoc = "Together, when the buffer is filled to a share of its capacity.";
  Ratio fill = Ratio::of(1, 2);
};
struct IdleFlush {
  static constexpr FlushPolicy kPolicy = FlushPolicy::idle;
  static constexpr std::string_view kKind = "idle";
  static constexpr std::string_view kDoc = "Together, when no block command has come for a while.";
  SimTime delay = SimTime::microseconds(100);
};

struct WriteBufferConfig {
  Bytes capacity{};  ///< 0: a write completes when it is in flash
  std::variant<ImmediateFlush, ThresholdFlush, IdleFlush> flush;
};

/// The place of the engine.
struct ControllersPlacement {
  static constexpr std::string_view kKind = "controllers";
  static constexpr std::string_view kDoc = "Beside the flash controllers, whose filters pages pass (InstCSD).";
};
struct SwitchPlacement : PeerReadConfig {
  static constexpr std::string_view kKind = "switch";
  static constexpr std::string_view kDoc =
      "In an FPGA with DRAM behind a PCIe switch, which reads whole pages from the SSD controller (SmartSSD).";
};

/// Section `engine`: the engine itself, and where it is.
struct DeviceEngineConfig : engine::EngineConfig {
  std::variant<ControllersPlacement, SwitchPlacement> placement;

  bool behind_switch() const { return std::holds_alternative<SwitchPlacement>(placement); }
};

/// Section `ftl`: the mapping of the KV cache, and everything else.
struct DriveFtlConfig : ftl::FtlConfig {
  ftl::MappingConfig mapping;
};

/// Section `platform.device`: `count` drives that are alike.
struct DeviceConfig {
  std::string preset;
  std::uint32_t count = 1;
  Fidelity fidelity = Fidelity::fast;
  std::optional<Bytes> capacity;  ///< that the host sees; unset: what flash and over-provisioning make
  nfc::FlashConfig flash;
  DeviceEngineConfig engine;
  nvme::NvmeConfig nvme;
  nvme::LinkConfig link;
  DramConfig dram;
  WriteBufferConfig write_buffer;
  PowerLossConfig power_loss;
  DriveFtlConfig ftl;
  EnergyConfig energy;

  /// Drives that keep no KV cache have no attention engine.
  bool has_engine() const { return ftl::kv_mapping(ftl.mapping) != nullptr; }
  /// Planes of the block FTL: reclaim groups of Flexible Data Placement. Units that do not divide the planes count as
  /// if they did.
  std::uint32_t reclaim_groups() const;
};

void describe(ParamVisitor& v, DramConfig& c);
void describe(ParamVisitor& v, ImmediateFlush& c);
void describe(ParamVisitor& v, ThresholdFlush& c);
void describe(ParamVisitor& v, IdleFlush& c);
void describe(ParamVisitor& v, WriteBufferConfig& c);
void describe(ParamVisitor& v, ControllersPlacement& c);
void describe(ParamVisitor& v, SwitchPlacement& c);
void describe(ParamVisitor& v, DeviceEngineConfig& c);
void describe(ParamVisitor& v, DriveFtlConfig& c);
void describe(ParamVisitor& v, DeviceConfig& c);

/// What a drive is built from: everything but the share of the KV namespace, the data mode and the selection source,
/// which depend on what is run. `seed` is that of everything random in the drive. Precondition: the path of a mapping
/// library is resolved, and exactly one of the link's bandwidth and generation is set.
DriveConfig drive_config(const DeviceConfig& device, std::uint64_t seed);

}  // namespace csdsim::csd_model

namespace csdsim {

template <>
struct EnumValues<csd_model::Fidelity> {
  static constexpr EnumValue<csd_model::Fidelity> values[] = {
      {csd_model::Fidelity::fast, "fast", "By when each resource is free: an event per batch."},
      {csd_model::Fidelity::at, "at",
       "Event-driven modules: channels, dies, units of the engine, firmware cores, DRAM port; the same times."}};
};

}  // namespace csdsim
