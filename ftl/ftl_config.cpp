#include "ftl/ftl_config.h"

#include <algorithm>

#include "base/error.h"

namespace csdsim::ftl {
namespace {

/// UserError for a list that is not as long as an order; Stripe checks that it is a permutation.
StripeOrder stripe_order(const std::vector<StripeLevel>& levels) {
  StripeOrder order{};
  if (levels.size() != order.size()) throw UserError("ftl.stripe_order: must name channel, die and plane");
  std::copy(levels.begin(), levels.end(), order.begin());
  return order;
}

VictimPolicy victim_policy(const GcConfig& gc, std::uint64_t seed) {
  VictimPolicy policy{.kind = std::visit([](const auto& p) { return p.kPolicy; }, gc.policy), .seed = seed};
  if (const auto* random = std::get_if<RandomGreedyGc>(&gc.policy)) policy.choices = random->choices;
  return policy;
}

}  // namespace

void describe(ParamVisitor&, GreedyGc&) {}
void describe(ParamVisitor&, CostBenefitGc&) {}
void describe(ParamVisitor&, FifoGc&) {}

void describe(ParamVisitor& v, RandomGreedyGc& c) {
  v.param("choices", c.choices, {1, 1024}, "Blocks that are drawn.",
          assumed("Van Houdt (SIGMETRICS 2013): 10 come close to greedy"));
}

void describe(ParamVisitor& v, BackgroundGc& c) {
  v.param("free_blocks", c.free_blocks, {1, 1024},
          "Planes with at most this many free blocks collect in the background; more than gc_free_blocks.",
          assumed("two steps ahead of the writes"));
  v.param("step_pages", c.step_pages, {1, 65'536}, "Pages that one step moves at most.",
          assumed("a few programs between two pieces of host work"));
}

void describe(ParamVisitor&, IdealMap&) {}

void describe(ParamVisitor& v, CachedMap& c) {
  v.param("capacity", c.capacity, {Bytes{8}, Bytes::gib(1024)},
          "Controller DRAM for cached entries: 8 B each, logical and physical page.",
          assumed("DFTL evaluates some hundred KiB"));
}

void describe(ParamVisitor& v, GcConfig& c) {
  v.choice("policy", c.policy, "Which block of a plane is collected.",
           assumed("the least to move; common in products"));
  v.param("pace", c.pace, "How much a write collects that finds few free blocks in its plane.",
          assumed("in steps: controllers bound the latency of a write"));
  v.optional_section("background", c.background, "off",
                     "Collects in small steps between pieces of host work, before writes have to pay for it.",
                     assumed("off: only writes collect"));
}

void describe(ParamVisitor& v, PlacementConfig& c) {
  v.param("handles", c.handles, {1, kMostHandles},
          "Placement handles: data that the host writes with different ones share no block. Each has an open block in "
          "every plane.",
          assumed("1: the drive does not know which data belong together"));
  v.param("isolation", c.isolation, "Where garbage collection moves the pages of a handle.",
          assumed("initially isolated, as published drives have it (arXiv 2503.11665)"));
}

void describe(ParamVisitor& v, WearLevellingConfig& c) {
  v.param("free_block", c.free_block, "Which free block of a plane is written next.",
          assumed("in turn: the simplest wear levelling"));
  v.param("spread", c.spread, {0, 1'000'000},
          "Static wear levelling: the largest allowed difference between the erase counts of a plane's blocks. Above "
          "it, the "
          "data of the least worn block of each namespace move. 0: no limit.",
          assumed("0: data that nobody overwrites stay where they are"));
}

void describe(ParamVisitor& v, FirmwareTimes& c) {
  const Range<SimTime> range{SimTime{}, SimTime::milliseconds(1)};
  const Cite free = assumed("0: in hardware, or beside something that takes longer");
  v.param("append", c.append, range, "Per KV head of an append, or of an attend that appends: checks and tails.", free);
  v.param("flush", c.flush, range, "Per page that an append programs: its place, the map, the command.", free);
  v.param("transpose", c.transpose, range, "Further, per page of transposed keys.", free);
  v.param("collect", c.collect, range,
          "Per page that garbage collection, read reclaim, refresh or wear levelling moves.", free);
  v.param("fetch", c.fetch, range, "Per row of K and V of a KV head that a fetch returns.", free);
}

void describe(ParamVisitor& v, FtlConfig& c) {
  v.param("over_provisioning", c.over_provisioning, {Ratio{0, 1}, Ratio::of(9, 10)},
          "Share of the flash that data may not fill.", assumed("common for client drives"));
  v.optional("over_provisioning_of_user", c.over_provisioning_of_user, "over_provisioning", {Ratio{0, 1}, Ratio{9, 1}},
             "The same as vendors state it: the flash that data may not fill, over the capacity for data (28 % is 22 % "
             "of the flash).",
             assumed("unset: over_provisioning counts"));
  v.optional(
      "scaled_from_blocks", c.scaled_from_blocks, "none", {1, 1'048'576},
      "Erase blocks per plane of the drive that this one is a smaller copy of. over_provisioning is then that of "
      "the whole drive, and the copy exports less: as large a part of its blocks beside those that are open or "
      "kept free, of which both have as many.",
      assumed("none: this is the whole drive"));
  v.param("gc_free_blocks", c.gc_free_blocks, {1, 1024},
          "Garbage collection starts at this many free blocks of a plane.", assumed("enough to collect into"));
  v.param("lookup_time", c.lookup_time, {SimTime{}, SimTime::milliseconds(1)},
          "Firmware time to look up one mapping entry.", assumed("0: looked up ahead, in hardware"));
  v.param("lookup_cores", c.lookup_cores, {1, 64},
          "Cores that look up and do what `firmware` lists, each one piece of "
          "work at a time.",
          assumed("one is the least"));
  v.section("firmware", c.firmware, "What the firmware spends on the KV namespace beside map lookups.");
  v.list("stripe_order", c.stripe_order, {3, 3}, "What changes first between consecutive pages: a permutation.",
         assumed("channels first gives one stream all channels"));
  v.param("allocation", c.allocation, "Which plane a page of the block namespace goes to.",
          assumed("dynamic keeps all planes busy whatever is written"));
  v.optional("mapping_unit", c.mapping_unit, "page", {Bytes{512}, Bytes::kib(64)},
             "What the map of the block namespace addresses: divides a page of the flash, in which several units lie.",
             assumed("a page: no paper of the KV cache has another unit"));
  v.param(
      "superblocks", c.superblocks,
      "The blocks of one number in all planes of a die are one block of the block namespace: written over the planes, "
      "programmed and erased together. gc_free_blocks and the like then count these.",
      assumed("false: each plane has blocks of its own, as in MQSim"));
  v.param("reclaim_unit_blocks", c.reclaim_unit_blocks, {1, 1'048'576},
          "Erase blocks that are written and erased as one block of the block namespace, over all planes first (with "
          "superblocks: over the dies). gc_free_blocks counts such units.",
          assumed("1: the blocks as they are"));
  v.section("placement", c.placement, "Placement handles of the block namespace (NVMe Flexible Data Placement).");
  v.choice("map", c.map, "Where the page map of the block namespace is kept.",
           assumed("drives with a GB of DRAM for each TB hold it all"));
  v.section("gc", c.gc, "Garbage collection of the block namespace.");
  v.section("wear_levelling", c.wear_levelling, "How erases are spread over the blocks of a plane.");
  v.param(
      "read_reclaim", c.read_reclaim, {0, 1'000'000'000},
      "Reads of a block of the KV namespace after which its pages move and it is erased, before disturb ruins them; "
      "0: never. The next append that finds the block full starts it.",
      assumed("0: only worn flash needs it"));
  v.optional("refresh_age", c.refresh_age, "never", {SimTime::microseconds(1), SimTime::milliseconds(8'000'000'000)},
             "Age of the first page of a block at which the pages of the block move, in simulated time. The next "
             "append after that starts it in the KV namespace, the next command in the block namespace.",
             assumed("never: K and V live for minutes, and charge leaks for days"));
  v.param("spare_blocks", c.spare_blocks, {0, 65'536}, "Blocks of a plane that are kept to replace bad ones.",
          assumed("0: no block is bad, and the drive is read-only after the first that fails"));
  v.param("factory_bad_blocks", c.factory_bad_blocks, {Ratio{0, 1}, Ratio::of(1, 10)},
          "Share of blocks that are bad from the start, drawn block by block; spare blocks stand in for them.",
          assumed("0; data sheets allow about 0.02"));
}

BlockFtlConfig block_ftl_config(const FtlConfig& config) {
  BlockFtlConfig block;
  block.over_provisioning = config.over_provisioning.value();
  block.gc_free_blocks = config.gc_free_blocks;
  block.stripe_order = stripe_order(config.stripe_order);
  block.allocation = config.allocation;
  block.gc_pace = config.gc.pace;
  block.handles = config.placement.handles;
  block.isolation = config.placement.isolation;
  if (config.gc.background) {
    block.background_free_blocks = config.gc.background->free_blocks;
    block.gc_step_pages = config.gc.background->step_pages;
  }
  block.wear_spread = config.wear_levelling.spread;
  block.refresh_age = config.refresh_age.value_or(SimTime{});
  if (const auto* cached = std::get_if<CachedMap>(&config.map))
    block.map_cache_entries = cached->capacity.value / kCachedEntryBytes;
  return block;
}

BlockManagerConfig block_manager_config(const FtlConfig& config, std::uint64_t seed) {
  return {.gc = victim_policy(config.gc, seed),
          .free_block = config.wear_levelling.free_block,
          .spare_blocks = config.spare_blocks,
          .factory_bad_blocks = config.factory_bad_blocks.value(),
          .seed = seed,
          .handles = config.placement.handles};
}

}  // namespace csdsim::ftl
