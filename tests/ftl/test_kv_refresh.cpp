// Blocks of the KV namespace that move because of their age, or because they
// are worn too little: nothing is lost, no page grows old, wear stays together.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <random>

#include "kv_fixture.h"

namespace test_kv_refresh {

using namespace csdsim;
using namespace csdsim::ftl;
using namespace csdsim::ftl::test;

namespace {

const FlashGeometry kGeometry{2, 1, 1, 16, 8, Bytes{512}};  // 256 pages of 16 rows
constexpr std::uint32_t kDim = 16, kGroup = 16;
const KvShape kShape{1, 1, kDim, 0, false};

/// A drive with a clock, and what it should hold.
struct Aging {
  explicit Aging(const KvFtlConfig& config) : drive(kGeometry, config, DataMode::carried) {}

  void create(std::uint32_t id) { REQUIRE(drive.ftl.create_sequence(SequenceId{id}, kShape) == KvStatus::ok); }
  void append(std::uint32_t id, std::uint32_t groups) {
    drive.ftl.pass(now);
    const std::uint32_t first = tokens[id], count = groups * kGroup;
    const std::vector<Half> k = random_halves(rng, count * kDim), v = random_halves(rng, count * kDim);
    for (int tries = 0;; ++tries) {
      REQUIRE(tries < 100);
      const AppendResult result =
          drive.ftl.append(SequenceId{id}, LayerId{0}, TokenIndex{first}, count, {KvHead{0}, 1}, k, v);
      run(result);
      if (result.status == KvStatus::ok) break;
      REQUIRE(result.status == KvStatus::busy);
    }
    for (std::uint32_t t = 0; t < count; ++t)
      for (const auto& [kind, rows] : {std::pair{KvKind::key, &k}, std::pair{KvKind::value, &v}})
        content[{id, kind, first + t}] = std::vector<Half>(rows->begin() + t * kDim, rows->begin() + (t + 1) * kDim);
    tokens[id] += count;
  }
  void free(std::uint32_t id) {
    for (const PageOp& op : drive.ftl.free_sequence(SequenceId{id}).erases) drive.erase(op);
    tokens.erase(id);
    std::erase_if(content, [id](const auto& row) { return std::get<0>(row.first) == id; });
  }
  void run(const AppendResult& result) {
    for (const PageOp& op : result.erases) drive.erase(op);
    for (const FlushJob& job : result.jobs) {
      for (const PageOp& op : job.programs) programmed[op.ppa.value] = now;
      for (const PageOp& op : drive.finish(job)) drive.erase(op);
    }
  }
  void check_content() {
    REQUIRE(!content.empty());
    for (const auto& [row, values] : content) {
      const auto& [id, kind, token] = row;
      const Half* const found = drive.ftl.token_row({SequenceId{id}, LayerId{0}, KvHead{0}}, kind, TokenIndex{token});
      REQUIRE(std::equal(values.begin(), values.end(), found,
                         [](Half a, Half b) { return std::memcmp(&a, &b, sizeof a) == 0; }));
    }
    REQUIRE(drive.store.integrity_errors() == 0);
  }
  /// The age of the oldest page that holds something.
  SimTime oldest() {
    SimTime oldest{};
    drive.ftl.visit_pages(
        [&](const KvPageId&, PhysicalPageAddress ppa) { oldest = std::max(oldest, now - programmed.at(ppa.value)); });
    return oldest;
  }

  KvDrive drive;
  SimTime now{};
  std::mt19937_64 rng{7};
  std::map<std::uint32_t, std::uint32_t> tokens;  ///< by sequence
  std::map<std::tuple<std::uint32_t, KvKind, std::uint32_t>, std::vector<Half>> content;
  std::map<std::uint64_t, SimTime> programmed;  ///< by page
};

}  // namespace

TEST_CASE(
    "with refresh_age no page grows older than that and the time between "
    "appends, and none is lost") {
  constexpr std::int64_t kAge = 50;
  for (const bool refreshes : {false, true}) {
    CAPTURE(refreshes);
    KvFtlConfig config;
    if (refreshes) config.refresh_age = SimTime::milliseconds(kAge);
    Aging d(config);
    d.create(1);
    d.create(2);
    d.append(1, 30);  // 60 pages that nobody touches
    SimTime oldest{};
    for (int step = 0; step < 60; ++step) {
      d.now += SimTime::milliseconds(7);
      d.append(2, 1);
      oldest = std::max(oldest, d.oldest());
    }
    d.check_content();
    const KvFtlStats& stats = d.drive.ftl.stats();
    if (refreshes) {
      CHECK(oldest < SimTime::milliseconds(kAge + 7));
      CHECK(oldest > SimTime::milliseconds(kAge - 7));
      // 60 to 180 pages in blocks of 8, every 50 to 57 ms for 420 ms.
      CHECK(stats.refreshed_blocks > 60);
      CHECK(stats.refreshed_blocks == stats.gc_blocks);
      CHECK(stats.erases == stats.refreshed_blocks);
    } else {
      CHECK(oldest == SimTime::milliseconds(60 * 7));
      CHECK(stats.refreshed_blocks == 0);
      CHECK(stats.gc_pages_moved == 0);
    }
    CHECK(stats.levelled_blocks == 0);
    CHECK(d.drive.ftl.draining_blocks() == 0);
  }
}

TEST_CASE("a block that was erased meanwhile is as young as its new pages") {
  KvFtlConfig config;
  config.refresh_age = SimTime::milliseconds(10);
  Aging d(config);
  for (int step = 0; step < 40; ++step) {
    // Each sequence lives for 4 ms, and fills blocks that the ones before it
    // had.
    const auto id = static_cast<std::uint32_t>(step + 1);
    d.create(id);
    d.append(id, 8);
    d.now += SimTime::milliseconds(4);
    d.free(id);
  }
  CHECK(d.drive.ftl.stats().erases > 60);
  CHECK(d.drive.ftl.stats().refreshed_blocks == 0);
}

TEST_CASE(
    "static wear levelling keeps the erase counts of the KV namespace "
    "together, and loses nothing") {
  std::map<std::uint32_t, std::uint32_t> distance;  ///< between erase counts, by spread
  for (const std::uint32_t spread : {0U, 4U, 10U}) {
    CAPTURE(spread);
    KvFtlConfig config;
    config.wear_spread = spread;
    Aging d(config);
    d.create(1);
    d.append(1, 50);  // 100 pages of 256 that stay
    for (std::uint32_t round = 0; round < 250; ++round) {
      d.create(2 + round);
      d.append(2 + round, 40);
      d.free(2 + round);
    }
    d.append(1, 1);
    d.check_content();
    const WearStatistics wear = d.drive.blocks.wear();
    distance[spread] = wear.max - wear.min;
    const KvFtlStats& stats = d.drive.ftl.stats();
    CHECK((stats.levelled_blocks > 0) == (spread > 0));
    // A move per so many erases of a block at least: levelling does not feed
    // itself.
    if (spread > 0) CHECK(stats.levelled_blocks * spread < stats.erases);
  }
  CAPTURE(distance);
  CHECK(distance[0] > 60);
  CHECK(distance[4] <= 4 + 4);
  CHECK(distance[10] <= 10 + 4);
  CHECK(distance[4] < distance[10]);
}

}  // namespace test_kv_refresh
