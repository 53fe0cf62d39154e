// The block namespace and the blocks of a drive as a scenario describes them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <variant>
#include <vector>

#include "base/param.h"
#include "base/quantity.h"
#include "ftl/block/block_ftl.h"
#include "ftl/core/backing_store.h"
#include "ftl/core/block_manager.h"
#include "ftl/core/stripe.h"
#include "ftl/core/victim_index.h"
#include "ftl/kv/firmware_times.h"

namespace csdsim::ftl {

struct GreedyGc {
  static constexpr GcPolicy kPolicy = GcPolicy::greedy;
  static constexpr std::string_view kKind = "greedy";
  static constexpr std::string_view kDoc = "The block with the fewest valid pages.";
};
struct CostBenefitGc {
  static constexpr GcPolicy kPolicy = GcPolicy::cost_benefit;
  static constexpr std::string_view kKind = "cost_benefit";
  static constexpr std::string_view kDoc =
      "The block with the most age x (1 - u) / 2u, u being its share of valid pages (Kawaguchi et al., USENIX 1995).";
};
struct RandomGreedyGc {
  static constexpr GcPolicy kPolicy = GcPolicy::random_greedy;
  static constexpr std::string_view kKind = "random_greedy";
  static constexpr std::string_view kDoc = "The fewest valid pages of some blocks drawn at random.";
  std::uint32_t choices = 10;
};
struct FifoGc {
  static constexpr GcPolicy kPolicy = GcPolicy::fifo;
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

/// Garbage collection of the block namespace.
struct GcConfig {
  std::variant<GreedyGc, CostBenefitGc, RandomGreedyGc, FifoGc> policy;
  GcPace pace = GcPace::steps;
  std::optional<BackgroundGc> background;  ///< unset: only writes collect
};

/// Placement handles of the host.
struct PlacementConfig {
  std::uint32_t handles = 1;
  Isolation isolation = Isolation::initially;
};

struct WearLevellingConfig {
  FreeBlockChoice free_block = FreeBlockChoice::oldest;
  std::uint32_t spread = 0;  ///< 0: no static wear levelling
};

/// Section `ftl` of a drive, apart from the mapping of the KV cache (ftl/plugin/mapping_config.h).
struct FtlConfig {
  Ratio over_provisioning = Ratio::of(7, 100);
  std::optional<Ratio> over_provisioning_of_user;  ///< the same as a share of the rest; replaces it
  /// Erase blocks per plane of the drive that this one is a smaller copy of, and that over_provisioning is of. It then
  /// becomes that of the copy.
  std::optional<std::uint32_t> scaled_from_blocks;
  std::uint32_t gc_free_blocks = 2;
  SimTime lookup_time{};
  std::uint32_t lookup_cores = 1;
  FirmwareTimes firmware;
  std::vector<StripeLevel> stripe_order{StripeLevel::channel, StripeLevel::die, StripeLevel::plane};
  PageAllocation allocation = PageAllocation::dynamic;
  std::optional<Bytes> mapping_unit;  ///< unset: a page of the flash
  bool superblocks = false;
  std::uint32_t reclaim_unit_blocks = 1;
  PlacementConfig placement;
  std::variant<IdealMap, CachedMap> map;
  GcConfig gc;
  WearLevellingConfig wear_levelling;
  std::uint32_t read_reclaim = 0;  ///< 0: never
  std::optional<SimTime> refresh_age;
  std::uint32_t spare_blocks = 0;
  Ratio factory_bad_blocks{0, 1};
};

void describe(ParamVisitor& v, GreedyGc& c);
void describe(ParamVisitor& v, CostBenefitGc& c);
void describe(ParamVisitor& v, RandomGreedyGc& c);
void describe(ParamVisitor& v, FifoGc& c);
void describe(ParamVisitor& v, BackgroundGc& c);
void describe(ParamVisitor& v, IdealMap& c);
void describe(ParamVisitor& v, CachedMap& c);
void describe(ParamVisitor& v, GcConfig& c);
void describe(ParamVisitor& v, PlacementConfig& c);
void describe(ParamVisitor& v, WearLevellingConfig& c);
void describe(ParamVisitor& v, FtlConfig& c);

/// What the block FTL takes of it. The entries that a cached map holds are the drive's to set: it owns the DRAM.
BlockFtlConfig block_ftl_config(const FtlConfig& config);
/// What the block manager takes of it; `seed` is that of everything it draws.
BlockManagerConfig block_manager_config(const FtlConfig& config, std::uint64_t seed);

}  // namespace csdsim::ftl

namespace csdsim {

template <>
struct EnumValues<ftl::DataMode> {
  static constexpr EnumValue<ftl::DataMode> values[] = {
      {ftl::DataMode::timing, "timing", "Page operations without page bytes."},
      {ftl::DataMode::carried, "carried", "Pages hold real bytes and answers are computed from them."},
      {ftl::DataMode::wear, "wear", "What is written, moved and erased, without page operations and without time."}};
};
template <>
struct EnumValues<ftl::StripeLevel> {
  static constexpr EnumValue<ftl::StripeLevel> values[] = {
      {ftl::StripeLevel::channel, "channel", "Consecutive pages go to different channels."},
      {ftl::StripeLevel::die, "die", "Consecutive pages go to different dies."},
      {ftl::StripeLevel::plane, "plane", "Consecutive pages go to different planes."}};
};
template <>
struct EnumValues<ftl::PageAllocation> {
  static constexpr EnumValue<ftl::PageAllocation> values[] = {
      {ftl::PageAllocation::dynamic, "dynamic",
       "The plane with the least planned work, whichever page it is; of several, the next in stripe order."},
      {ftl::PageAllocation::fixed, "static", "Page p of the namespace on plane p of the stripe order, modulo."}};
};
template <>
struct EnumValues<ftl::GcPace> {
  static constexpr EnumValue<ftl::GcPace> values[] = {
      {ftl::GcPace::steps, "steps", "A few pages behind each write, in proportion to the room that they make."},
      {ftl::GcPace::blocks, "blocks", "Whole blocks, before the write that finds too few free."}};
};
template <>
struct EnumValues<ftl::Isolation> {
  static constexpr EnumValue<ftl::Isolation> values[] = {
      {ftl::Isolation::initially, "initially", "Moved pages of all handles share blocks."},
      {ftl::Isolation::persistently, "persistently", "Moved pages stay in blocks of their handle."}};
};
template <>
struct EnumValues<ftl::FreeBlockChoice> {
  static constexpr EnumValue<ftl::FreeBlockChoice> values[] = {
      {ftl::FreeBlockChoice::oldest, "oldest", "The one erased longest ago."},
      {ftl::FreeBlockChoice::least_worn, "least_worn", "Dynamic wear levelling: the one with the fewest erases."}};
};

}  // namespace csdsim
