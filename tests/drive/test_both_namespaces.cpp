// Blocks and the KV cache on one drive: their garbage is collected side by side, and both keep what they hold.
#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "base/rng.h"
#include "drive_host.h"

namespace test_both_namespaces {

using namespace csdsim;
using namespace csdsim::test;
namespace status = nvme::status;

TEST_CASE("both namespaces collect garbage at the same time and lose nothing") {
  constexpr std::uint64_t kSeed = 20;
  auto config = tiny_drive();
  // The map of the block namespace addresses pages, or quarters of pages that hold as many tokens as before.
  if (const bool in_units = GENERATE(false, true); in_units) {
    config.mapping_unit = config.nvme.controller.block_size = config.geometry.page_size;
    config.geometry.page_size = config.geometry.page_size * 4;
    config.geometry.pages_per_block /= 4;
    config.kv.codeword = config.block.codeword = config.mapping_unit;
    config.flash.codewords = nfc::CodewordsConfig{.size = config.mapping_unit, .parity = {}};
  }
  config.kv_share = 0.2;
  config.write_buffer = Bytes::kib(16);
  config.flush = {
      .policy = GENERATE(csd_model::FlushPolicy::immediate, csd_model::FlushPolicy::threshold),
      .threshold = Bytes::kib(8),
      .idle_time = {},
  };
  config.flash.page_buffers = 2;
  config.flash.plane_order = nfc::PlaneOrder::reads_first;
  DriveHost host(config);
  Rng rng(kSeed, "blocks");
  std::map<std::uint64_t, std::byte> written;
  const std::uint64_t blocks = host.drive().block_ftl().capacity().value / host.driver().block_size().value;
  // Writes of a block each on queue 2, at the time of whatever happens on queue 1.
  const auto write_some = [&] {
    std::vector<SentPtr> writes;
    std::set<std::uint64_t> places;
    for (int i = 0; i < 12; ++i) {
      const std::uint64_t lba = rng.below(blocks - 1);
      if (!places.insert(lba).second) continue;  // either of two in flight may come last
      written[lba] = std::byte(rng.below(256));
      writes.push_back(host.send_write(lba, 1, written[lba], 2));
    }
    return writes;
  };
  const auto check = [](const std::vector<SentPtr>& writes) {
    for (const SentPtr& write : writes) CHECK(write->status == status::success);
  };

  // Two sequences take turns until the namespace is full. Then one goes, and the other needs the pages that it leaves.
  for (const std::uint32_t sequence : {1u, 2u})
    REQUIRE(host.create(sequence, 1, 1, nvme::create_flag::token_major) == status::success);
  constexpr std::uint32_t kGroup = 32;
  std::uint32_t tokens = 0;
  for (;; tokens += kGroup) {
    const auto writes = write_some();
    const SentPtr a = host.send_append(1, 0, tokens, kGroup, 0, 1), b = host.send_append(2, 0, tokens, kGroup, 0, 1);
    host.run(a);
    check(writes);
    if (a->status != status::success || b->status != status::success) break;
  }
  std::uint32_t kept = host.tokens_of(1);
  REQUIRE(kept >= 20 * kGroup);
  REQUIRE(host.free(2) == status::success);
  for (std::uint32_t i = 0; i < tokens / kGroup / 2; ++i, kept += kGroup) {
    const auto writes = write_some();
    const SentPtr append = host.send_append(1, 0, kept, kGroup, 0, 1);
    const SentPtr more = host.send_write(blocks - 1, 1, written[blocks - 1] = std::byte(i), 3);
    REQUIRE(host.run(append) == status::success);
    CHECK(more->status == status::success);
    check(writes);
  }
  CHECK(host.drive().kv_ftl().stats().gc_blocks > 0);
  CHECK(host.drive().block_ftl().stats().gc_erases > 0);

  const auto attend = host.attend(0, {heads_of(1, kept - 1, 0, 1)});
  CHECK(attend.sent->status == status::success);
  CHECK(host.error(attend) < kOutputTolerance);
  for (const auto& [lba, byte] : written) {
    const SentPtr read = host.send_read(lba, 1, 2);
    REQUIRE(host.run(read) == status::success);
    CHECK(*host.at(read->buffer.address) == byte);
  }
  CHECK(host.integrity_errors() == 0);
  CHECK(host.driver().issued() == host.driver().completed());
}

}  // namespace test_both_namespaces
