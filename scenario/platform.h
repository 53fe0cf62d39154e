// The modelled machine: GPU, host, drives and their links. Resolved values with units; nothing here knows YAML.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/param.h"
#include "base/quantity.h"
#include "base/units.h"
#include "csd_model/energy_config.h"
#include "scenario/flash_config.h"
#include "scenario/mapping.h"

namespace csdsim::scenario {

enum class Intake : std::uint8_t { automatic, phase, page };
enum class EngineMemory : std::uint8_t { sram, dram };
enum class Fidelity : std::uint8_t { fast, at };
enum class Granularity : std::uint8_t { layer_mini_batch, sequence, head };
enum class Transfer : std::uint8_t { p2p, host };
enum class StripeLevel : std::uint8_t { channel, die, plane };
enum class GpuTiming : std::uint8_t { modelled, measured };

/// The attention engine in the drive.
struct EngineConfig {
  Frequency clock{285'000'000};
  std::uint32_t kernels = 2;
  std::uint32_t macs_per_cycle = 128;
  std::uint32_t softmax_per_cycle = 8;
  std::uint32_t argtopk_per_cycle = 1;
  std::uint32_t jobs_in_flight = 16;
  Bytes buffer = Bytes::mib(1);
  EngineMemory buffer_memory = EngineMemory::sram;
  Intake intake = Intake::automatic;
};

/// When the controller interrupts the host.
struct SingleInterrupts {
  static constexpr std::string_view kKind = "single";
  static constexpr std::string_view kDoc = "For every completion.";
};
struct CoalescedInterrupts {
  static constexpr std::string_view kKind = "coalesced";
  static constexpr std::string_view kDoc = "For several completions of a queue together (NVMe interrupt coalescing).";
  std::uint32_t completions = 16;
  SimTime time = SimTime::microseconds(100);
};

/// The NVMe front end and how the host uses it.
struct NvmeConfig {
  std::uint32_t queues = 4;
  std::uint32_t queue_depth = 1024;
  std::variant<SingleInterrupts, CoalescedInterrupts> interrupts;
  Bytes mdts = Bytes::mib(2);
  Bytes block_size = Bytes::kib(4);
  SimTime firmware_time{};
  SimTime pipeline_time{};
  std::uint32_t firmware_cores = 1;
  Granularity granularity = Granularity::layer_mini_batch;
  Transfer transfer = Transfer::p2p;
};

/// A PCIe link: either generation and lanes, or its bandwidth. After loading exactly one of the two is set.
struct LinkConfig {
  std::optional<std::uint32_t> generation = 3;
  std::optional<std::uint32_t> lanes = 4;
  std::optional<Bandwidth> bandwidth;
  Bytes max_payload{256};
  Bytes max_read_request{512};
  std::optional<std::uint32_t> outstanding_reads{};
  Bytes tlp_overhead{24};
  Bytes dllp_overhead{4};
  SimTime latency{};

  /// Bytes a second in one direction: the given bandwidth (payload only), or lanes x transfer rate x line coding
  /// (8b/10b up to generation 2, 128b/130b above) rounded down, from which packet overheads are not subtracted.
  Bandwidth raw_bandwidth() const;
  /// What of it is payload when every packet is full.
  Bandwidth payload_bandwidth() const;
};

/// The GPU's link. Copies over it are large: what the size of read requests costs is on the idle direction.
struct GpuLinkConfig : LinkConfig {
  GpuLinkConfig() : LinkConfig{.generation = 4, .lanes = 16, .bandwidth = {}} {}
};

struct DramConfig {
  Bytes capacity = Bytes::gib(8);
  std::optional<Bandwidth> bandwidth;  ///< unset: unlimited
};

/// When buffered block writes go to flash.
struct ImmediateFlush {
  static constexpr std::string_view kKind = "immediate";
  static constexpr std::string_view kDoc = "As soon as they are in the buffer.";
};
struct ThresholdFlush {
  static constexpr std::string_view kKind = "threshold";
  static constexpr std::string_view kDoc = "Together, when the buffer is filled to a share of its capacity.";
  Ratio fill = Ratio::of(1, 2);
};
struct IdleFlush {
  static constexpr std::string_view kKind = "idle";
  static constexpr std::string_view kDoc = "Together, when no block command has come for a while.";
  SimTime delay = SimTime::microseconds(100);
};

struct WriteBufferConfig {
  Bytes capacity{};  ///< 0: a write completes when it is in flash
  std::variant<ImmediateFlush, ThresholdFlush, IdleFlush> flush;
};

struct GreedyGc {
  static constexpr std::string_view kKind = "greedy";
  static constexpr std::string_view kDoc = "The block with the fewest valid pages.";
};
struct CostBenefitGc {
  static constexpr std::string_view kKind = "cost_benefit";
  static constexpr std::string_view kDoc =
      "The block with the most age x (1 - u) / 2u, u being its share of valid pages (Kawaguchi et al., USENIX 1995).";
};
struct RandomGreedyGc {
  static constexpr std::string_view kKind = "random_greedy";
  static constexpr std::string_view kDoc = "The fewest valid pages of some blocks drawn at random.";
  std::uint32_t choices = 10;
};
struct FifoGc {
  static constexpr std::string_view kKind = "fifo";
  static constexpr std::string_view kDoc = "The block that was filled longest ago.";
};

/// Collection between pieces of host work.
struct BackgroundGc {
  std::uint32_t free_blocks = 4;
  std::uint32_t step_pages = 4;
};

/// Controller DRAM holds the whole page map.
struct IdealMap {
  static constexpr std::string_view kKind = "ideal";
  static constexpr std::string_view kDoc = "In controller DRAM, whatever its size.";
};
/// It holds the entries that were used last.
struct CachedMap {
  static constexpr std::string_view kKind = "cached";
  static constexpr std::string_view kDoc =
      "In flash, in translation pages; DRAM caches the entries that were used last (DFTL, ASPLOS 2009).";
  Bytes capacity = Bytes::mib(1);
};

enum class PageAllocation : std::uint8_t { dynamic, fixed };
enum class FreeBlockChoice : std::uint8_t { oldest, least_worn };

/// Garbage collection of the block namespace.
struct GcConfig {
  std::variant<GreedyGc, CostBenefitGc, RandomGreedyGc, FifoGc> policy;
  std::optional<BackgroundGc> background;  ///< unset: only writes collect
};

struct WearLevellingConfig {
  FreeBlockChoice free_block = FreeBlockChoice::oldest;
  std::uint32_t spread = 0;  ///< 0: no static wear levelling
};

struct FtlConfig {
  MappingConfig mapping;
  Ratio over_provisioning = Ratio::of(7, 100);
  std::uint32_t gc_free_blocks = 2;
  SimTime lookup_time{};
  std::uint32_t lookup_cores = 1;
  std::vector<StripeLevel> stripe_order{StripeLevel::channel, StripeLevel::die, StripeLevel::plane};
  PageAllocation allocation = PageAllocation::dynamic;
  std::variant<IdealMap, CachedMap> map;
  GcConfig gc;
  WearLevellingConfig wear_levelling;
  std::uint32_t spare_blocks = 0;
  Ratio factory_bad_blocks{0, 1};
};

struct DeviceConfig {
  std::string preset;
  std::uint32_t count = 1;
  Fidelity fidelity = Fidelity::fast;
  FlashConfig flash;
  EngineConfig engine;
  NvmeConfig nvme;
  LinkConfig link;
  DramConfig dram;
  WriteBufferConfig write_buffer;
  FtlConfig ftl;
  csd_model::EnergyConfig energy;

  /// Drives that keep no KV cache have no attention engine.
  bool has_engine() const { return kv_mapping(ftl.mapping) != nullptr; }
  /// Flash that data may fill: capacity less over-provisioning, in whole pages.
  Bytes usable_capacity() const;
};

/// Share of peak that operators reach. Compute-bound operators scale the peak rate, the others memory bandwidth.
struct GpuEfficiency {
  Ratio gemm = Ratio::of(7, 10);
  Ratio gemv = Ratio::of(8, 10);
  Ratio attention_prefill = Ratio::of(5, 10);
  Ratio attention_decode = Ratio::of(8, 10);
  Ratio elementwise = Ratio::of(8, 10);
};

struct GpuConfig {
  std::string preset;
  GpuTiming timing = GpuTiming::modelled;
  std::optional<InputPath> times;  ///< of an earlier measured run
  ComputeRate fp16_rate{155'000'000'000'000};
  Bandwidth memory_bandwidth{768'000'000'000};
  Bytes memory = Bytes::gib(48);
  SimTime kernel_launch = SimTime::microseconds(5);
  GpuEfficiency efficiency;
  GpuLinkConfig link;
};

struct HostConfig {
  std::string preset;
  std::uint32_t cores = 26;
  Bytes memory = Bytes::gib(96);
  Bandwidth memory_bandwidth{187'700'000'000};
  SimTime io_overhead{};
};

struct PlatformConfig {
  GpuConfig gpu;
  HostConfig host;
  DeviceConfig device;
};

void describe(ParamVisitor& v, EngineConfig& c);
void describe(ParamVisitor& v, NvmeConfig& c);
void describe(ParamVisitor& v, LinkConfig& c);
void describe(ParamVisitor& v, GpuLinkConfig& c);
void describe(ParamVisitor& v, DramConfig& c);
void describe(ParamVisitor& v, SingleInterrupts& c);
void describe(ParamVisitor& v, CoalescedInterrupts& c);
void describe(ParamVisitor& v, ImmediateFlush& c);
void describe(ParamVisitor& v, ThresholdFlush& c);
void describe(ParamVisitor& v, IdleFlush& c);
void describe(ParamVisitor& v, WriteBufferConfig& c);
void describe(ParamVisitor& v, GreedyGc& c);
void describe(ParamVisitor& v, CostBenefitGc& c);
void describe(ParamVisitor& v, RandomGreedyGc& c);
void describe(ParamVisitor& v, FifoGc& c);
void describe(ParamVisitor& v, BackgroundGc& c);
void describe(ParamVisitor& v, IdealMap& c);
void describe(ParamVisitor& v, CachedMap& c);
void describe(ParamVisitor& v, GcConfig& c);
void describe(ParamVisitor& v, WearLevellingConfig& c);
void describe(ParamVisitor& v, FtlConfig& c);
void describe(ParamVisitor& v, DeviceConfig& c);
void describe(ParamVisitor& v, GpuEfficiency& c);
void describe(ParamVisitor& v, GpuConfig& c);
void describe(ParamVisitor& v, HostConfig& c);
void describe(ParamVisitor& v, PlatformConfig& c);

}  // namespace csdsim::scenario

namespace csdsim {

template <>
struct EnumValues<scenario::Intake> {
  static constexpr EnumValue<scenario::Intake> values[] = {
      {scenario::Intake::automatic, "auto", "page where flash.page_buffers are limited, else phase."},
      {scenario::Intake::phase, "phase", "All pages of a phase: the kernel starts when the last one is there."},
      {scenario::Intake::page, "page", "Page by page, in the order of tokens, while others are still read."}};
};
template <>
struct EnumValues<scenario::EngineMemory> {
  static constexpr EnumValue<scenario::EngineMemory> values[] = {
      {scenario::EngineMemory::sram, "sram", "Memory of its own."},
      {scenario::EngineMemory::dram, "dram", "Controller DRAM, whose bandwidth it shares."}};
};
template <>
struct EnumValues<scenario::Fidelity> {
  static constexpr EnumValue<scenario::Fidelity> values[] = {
      {scenario::Fidelity::fast, "fast", "The timeline core, one event a batch."},
      {scenario::Fidelity::at, "at", "Event-driven channel and die modules, one event a stage; the same times."}};
};
template <>
struct EnumValues<scenario::Granularity> {
  static constexpr EnumValue<scenario::Granularity> values[] = {
      {scenario::Granularity::layer_mini_batch, "layer_mini_batch",
       "One command covers all heads of one layer for a mini-batch of sequences."},
      {scenario::Granularity::sequence, "sequence", "One command covers all heads of one layer for one sequence."},
      {scenario::Granularity::head, "head", "One command covers one KV head of one layer for one sequence."}};
};
template <>
struct EnumValues<scenario::Transfer> {
  static constexpr EnumValue<scenario::Transfer> values[] = {
      {scenario::Transfer::p2p, "p2p", "The drive reads and writes GPU memory itself."},
      {scenario::Transfer::host, "host", "Through host memory: over the GPU's link first, then over the drive's."}};
};
template <>
struct EnumValues<scenario::StripeLevel> {
  static constexpr EnumValue<scenario::StripeLevel> values[] = {
      {scenario::StripeLevel::channel, "channel", "Consecutive pages go to different channels."},
      {scenario::StripeLevel::die, "die", "Consecutive pages go to different dies."},
      {scenario::StripeLevel::plane, "plane", "Consecutive pages go to different planes."}};
};
template <>
struct EnumValues<scenario::PageAllocation> {
  static constexpr EnumValue<scenario::PageAllocation> values[] = {
      {scenario::PageAllocation::dynamic, "dynamic", "The next plane in stripe order, whichever page it is."},
      {scenario::PageAllocation::fixed, "static", "Page p of the namespace on plane p of the stripe order, modulo."}};
};
template <>
struct EnumValues<scenario::FreeBlockChoice> {
  static constexpr EnumValue<scenario::FreeBlockChoice> values[] = {
      {scenario::FreeBlockChoice::oldest, "oldest", "The one erased longest ago."},
      {scenario::FreeBlockChoice::least_worn, "least_worn", "Dynamic wear levelling: the one with the fewest erases."}};
};
template <>
struct EnumValues<scenario::GpuTiming> {
  static constexpr EnumValue<scenario::GpuTiming> values[] = {
      {scenario::GpuTiming::modelled, "modelled", "A roofline with an efficiency for each kind of operator."},
      {scenario::GpuTiming::measured, "measured", "The present GPU's, by CUDA events, each operator and size once."}};
};

}  // namespace csdsim
