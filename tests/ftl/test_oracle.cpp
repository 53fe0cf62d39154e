// Both namespaces of one drive against plain maps: writes, overwrites, trims, reads, appends and frees under garbage
// collection, wear levelling, failing programs and erases and factory bad blocks. Every byte is checked.
#include <catch2/catch.hpp>
#include <cstdio>

#include "namespaces_oracle.h"

namespace test_oracle {

using namespace csdsim;
using namespace csdsim::ftl;
using namespace csdsim::ftl::test;

namespace {

Variant variant(std::uint64_t seed) {
  Rng rng(seed, "variant");
  Variant v;
  v.geometry = {1 + static_cast<std::uint32_t>(rng.below(3)),     1 + static_cast<std::uint32_t>(rng.below(2)),
                1 + static_cast<std::uint32_t>(rng.below(2)),     48,
                8 + static_cast<std::uint32_t>(rng.below(3)) * 4, kPage};
  v.block = {.over_provisioning = std::array{0.0, 0.07, 0.2}[rng.below(3)],
             .gc_free_blocks = 1 + static_cast<std::uint32_t>(rng.below(3)),
             .check = PageCheck::key_and_crc,
             .allocation = rng.below(3) == 0 ? PageAllocation::fixed : PageAllocation::dynamic,
             .background_free_blocks = rng.below(2) == 0 ? 0u : 6u,
             .gc_step_pages = 1 + static_cast<std::uint32_t>(rng.below(8)),
             .wear_spread = rng.below(2) == 0 ? 0u : 4u,
             .gc_pace = seed % 2 == 0 ? GcPace::steps : GcPace::blocks};
  v.gc.kind = static_cast<GcPolicy>(rng.below(4));
  v.gc.choices = 4;
  v.free_block = rng.below(2) == 0 ? FreeBlockChoice::oldest : FreeBlockChoice::least_worn;
  v.tail = rng.below(2) == 0 ? TailPolicy::token_index : TailPolicy::dram;
  // Every third drive has units of a half or a quarter of a word line; half of those have no buffer to pack them in.
  if (seed % 3 == 0) {
    v.block.units_per_program = 2u << rng.below(2);
    v.block.pads = rng.below(2) == 0;
  }
  return v;
}

void run_oracles(std::uint64_t total, std::uint64_t each, std::uint64_t checkpoint) {
  BlockFtlStats block;
  KvFtlStats kv;
  std::uint64_t read_only = 0;
  std::uint64_t seed = 1;
  for (std::uint64_t done = 0; done < total; ++seed) {
    CAPTURE(seed);
    Oracle oracle(variant(seed), seed);
    done += oracle.run(std::min(each, total - done), checkpoint);
    const BlockFtlStats& b = oracle.block_stats();
    const KvFtlStats& k = oracle.kv_stats();
    block.gc_pages_moved += b.gc_pages_moved;
    block.gc_erases += b.gc_erases;
    block.background_steps += b.background_steps;
    block.wear_pages_moved += b.wear_pages_moved;
    block.retired_pages_moved += b.retired_pages_moved;
    block.program_failures += b.program_failures;
    kv.gc_pages_moved += k.gc_pages_moved;
    kv.program_failures += k.program_failures;
    kv.erases += k.erases;
    read_only += oracle.blocks().read_only() ? 1 : 0;
  }
  std::printf(
      "oracle: %llu operations, seeds 1 to %llu, %llu drives ended read-only; block: %llu pages moved, %llu erases, "
      "%llu "
      "background steps, %llu pages levelled, %llu programs failed, %llu pages rescued; KV: %llu pages moved, %llu "
      "erases, %llu programs failed\n",
      static_cast<unsigned long long>(total), static_cast<unsigned long long>(seed - 1),
      static_cast<unsigned long long>(read_only), static_cast<unsigned long long>(block.gc_pages_moved),
      static_cast<unsigned long long>(block.gc_erases), static_cast<unsigned long long>(block.background_steps),
      static_cast<unsigned long long>(block.wear_pages_moved), static_cast<unsigned long long>(block.program_failures),
      static_cast<unsigned long long>(block.retired_pages_moved), static_cast<unsigned long long>(kv.gc_pages_moved),
      static_cast<unsigned long long>(kv.erases), static_cast<unsigned long long>(kv.program_failures));
  CHECK(block.gc_erases > total / 100);
  CHECK(block.background_steps > total / 1000);
  CHECK(block.wear_pages_moved > total / 1000);
  CHECK(block.program_failures > 10);
  CHECK(block.retired_pages_moved > 10);
  CHECK(kv.gc_pages_moved > total / 1000);
  CHECK(kv.program_failures > 5);
}

}  // namespace

TEST_CASE("300,000 random operations on both namespaces lose no byte and return no stale one") {
  run_oracles(300'000, 20'000, 2'000);
}

TEST_CASE("10 million random operations on both namespaces lose no byte and return no stale one", "[.][long]") {
  run_oracles(10'000'000, 200'000, 10'000);
}

}  // namespace test_oracle
