// Refresh by age and static wear levelling over both namespaces, in simulated
// time.
#include <catch2/catch.hpp>
#include <map>

#include "tests/drive/drive_host.h"

namespace test_wear_and_age {

using namespace csdsim;
using namespace csdsim::test;
namespace status = nvme::status;

namespace {

constexpr std::uint32_t kGroup = 32;

/// Sequences come and go, so that the KV namespace erases blocks.
void churn(DriveHost& host, std::uint32_t first, std::uint32_t rounds) {
  for (std::uint32_t id = first; id < first + rounds; ++id) {
    REQUIRE(host.create(id, 1, 2, nvme::create_flag::token_major) == status::success);
    REQUIRE(host.append(id, 0, 0, 48 * kGroup, 0, 2) == status::success);
    DriveHost::settle();
    REQUIRE(host.free(id) == status::success);
    DriveHost::settle();
  }
}

}  // namespace

TEST_CASE(
    "blocks that only the KV namespace wears out: levelling moves cold "
    "data of both namespaces and keeps them") {
  std::map<std::uint32_t, std::uint32_t> distance;  ///< between erase counts, by spread
  for (const std::uint32_t spread : {0U, 5U}) {
    CAPTURE(spread);
    auto config = tiny_drive();
    config.geometry.blocks_per_plane = 16;
    config.block.wear_spread = config.kv.wear_spread = spread;
    DriveHost host(config);
    // Blocks and a sequence that nobody writes again.
    std::map<std::uint64_t, std::byte> written;
    const std::uint64_t blocks = host.drive().block_ftl().capacity().value / host.driver().block_size().value;
    for (std::uint64_t lba = 0; lba < blocks; ++lba) {
      written[lba] = std::byte(lba * 7 + 1);
      REQUIRE(host.run(host.send_write(lba, 1, written[lba])) == status::success);
    }
    REQUIRE(host.create(1, 1, 2, nvme::create_flag::token_major) == status::success);
    REQUIRE(host.append(1, 0, 0, 10 * kGroup, 0, 2) == status::success);
    churn(host, 2, 150);

    const ftl::WearStatistics wear = host.drive().block_manager().wear();
    distance[spread] = wear.max - wear.min;
    CHECK((host.drive().block_ftl().stats().wear_erases > 0) == (spread > 0));
    CHECK((host.drive().kv_ftl().stats().levelled_blocks > 0) == (spread > 0));
    const auto attend = host.attend(0, {heads_of(1, 10 * kGroup - 1, 0, 2)});
    CHECK(attend.sent->status == status::success);
    CHECK(host.error(attend) < kOutputTolerance);
    for (const auto& [lba, byte] : written) {
      const SentPtr read = host.send_read(lba, 1);
      REQUIRE(host.run(read) == status::success);
      CHECK(*host.at(read->buffer.address) == byte);
    }
    CHECK(host.integrity_errors() == 0);
  }
  CAPTURE(distance);
  CHECK(distance[0] > 5 + 4);
  CHECK(distance[5] <= 5 + 4);
}

TEST_CASE("SMART reports the erases of both namespaces over the rated cycles, with a model of errors and without") {
  for (const bool errors : {false, true}) {
    CAPTURE(errors);
    auto config = tiny_drive();
    (errors ? config.reliability.emplace().rated_cycles : config.rated_cycles) = 4;
    if (errors) config.reliability->initial_cycles = 1;
    DriveHost host(config);
    CHECK(smart_log(host).percentage_used == (errors ? 25 : 0));
    churn(host, 1, 150);
    const double erases = double(host.drive().kv_ftl().stats().erases) / double(config.geometry.blocks());
    REQUIRE(erases > 1);
    CHECK(smart_log(host).percentage_used == std::floor((erases + errors) * 100 / 4));
  }
}

TEST_CASE(
    "blocks move when simulated time has passed, with the appends that "
    "follow, and attention stays right") {
  auto config = tiny_drive();
  config.kv.refresh_age = SimTime::milliseconds(100);
  DriveHost host(config);
  REQUIRE(host.create(1, 1, 2) == status::success);
  REQUIRE(host.append(1, 0, 0, 10 * kGroup, 0, 2) == status::success);
  DriveHost::settle();
  const ftl::KvFtlStats& stats = host.drive().kv_ftl().stats();
  const std::uint64_t pages = stats.token_pages_programmed + stats.embedding_pages_programmed;
  DriveHost::run_for(SimTime::milliseconds(95));
  REQUIRE(host.append(1, 0, 10 * kGroup, 1, 0, 2) == status::success);
  CHECK(stats.refreshed_blocks == 0);
  DriveHost::run_for(SimTime::milliseconds(10));
  REQUIRE(host.append(1, 0, 10 * kGroup + 1, 1, 0, 2) == status::success);
  DriveHost::settle();
  CHECK(stats.refreshed_blocks > 0);
  CHECK(stats.refresh_pages_moved == pages);
  CHECK(stats.gc_pages_moved == 0);
  CHECK(stats.erases == stats.refreshed_blocks);
  const auto attend = host.attend(0, {heads_of(1, 10 * kGroup + 1, 0, 2)});
  CHECK(attend.sent->status == status::success);
  CHECK(host.error(attend) < kOutputTolerance);
  CHECK(host.integrity_errors() == 0);
}

TEST_CASE("old blocks of the block namespace move with the command that follows, whatever it is") {
  for (const bool reads : {false, true}) {
    CAPTURE(reads);
    auto config = tiny_drive();
    config.block.refresh_age = SimTime::milliseconds(100);
    DriveHost host(config);
    for (std::uint64_t lba = 0; lba < 40; ++lba)
      REQUIRE(host.run(host.send_write(lba, 1, std::byte(lba + 1))) == status::success);
    const ftl::BlockFtlStats& stats = host.drive().block_ftl().stats();
    const auto command = [&] {
      REQUIRE(host.run(reads ? host.send_read(7, 1) : host.send_write(50, 1, std::byte{99})) == status::success);
      DriveHost::settle();
    };
    const SimTime written = nvme::sim_now();
    REQUIRE(written < SimTime::milliseconds(60));
    DriveHost::run_for(SimTime::milliseconds(95) - written);
    command();
    CHECK(stats.refreshed_blocks == 0);
    DriveHost::run_for(SimTime::milliseconds(70));
    CHECK(stats.refreshed_blocks == 0);  // nobody asks
    command();
    // 160 pages of 1 KiB in 16 planes: each has an open block, which is closed.
    CHECK(stats.refreshed_blocks == 16);
    CHECK(stats.refresh_pages_moved >= 160 - 4);
    for (std::uint64_t lba = 0; lba < 40; ++lba) {
      const SentPtr read = host.send_read(lba, 1);
      REQUIRE(host.run(read) == status::success);
      CHECK(*host.at(read->buffer.address) == std::byte(lba + 1));
    }
    CHECK(host.integrity_errors() == 0);
    CHECK(host.drive().flash_statistics().ops[static_cast<std::size_t>(OpClass::gc)]
                                             [static_cast<std::size_t>(PageOpKind::erase)] == 16);
  }
}

}  // namespace test_wear_and_age
