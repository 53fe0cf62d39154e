// Map lookups are paid by the command that caused them, once, and by no other; so is other work of the firmware.
#include <catch2/catch.hpp>
#include <vector>

#include "csd_model/firmware/firmware_cores.h"
#include "tests/drive/drive_host.h"

namespace test_lookup_cost {

using namespace csdsim;
using namespace csdsim::test;
namespace status = nvme::status;

namespace {

constexpr SimTime kLookup = SimTime::microseconds(10);

csd_model::DriveConfig drive_with(SimTime lookup_time) {
  auto config = tiny_drive();
  config.lookup_time = lookup_time;
  return config;
}

/// Heads 0 and 1 of sequence 1: 140 tokens (4 full groups of 32) and 32 tokens (1 group).
struct UnequalHeads : DriveHost {
  explicit UnequalHeads(const csd_model::DriveConfig& config) : DriveHost(config) {
    REQUIRE(create(1, 1, 2) == status::success);
    REQUIRE(append(1, 0, 0, 32, 0, 2) == status::success);
    REQUIRE(append(1, 0, 32, 108, 0, 1) == status::success);
    settle();
  }
  SentPtr send_fetch(std::uint16_t first_head, std::uint16_t heads, const std::vector<std::uint32_t>& tokens,
                     std::uint16_t queue = 1) {
    const nvme::KvFetch c{LayerId{0}, 16, static_cast<std::uint32_t>(tokens.size()), heads};
    const nvme::FetchLayout layout = nvme::fetch_layout(c);
    const nvme::Segment b = buffer(layout.size);
    put(b.address, std::vector{heads_of(1, 0, first_head, heads)});
    put(b.address + layout.tokens, tokens);
    return send(nvme::encode(kNamespace, c), b, queue);
  }
  SimTime lookup_busy() { return drive().lookup_cores().busy(); }
  /// Page reads on behalf of attention and fetches.
  std::int64_t page_reads() {
    const auto& ops = drive().flash_statistics().ops;
    return static_cast<std::int64_t>(
        ops[static_cast<std::size_t>(OpClass::attend)][static_cast<std::size_t>(PageOpKind::read)]);
  }
};

}  // namespace

namespace {

/// Lookups that take longer than the reads of all pages of a command, on so many cores.
csd_model::DriveConfig drive_with_slow_lookups(std::uint32_t cores, csd_model::Fidelity fidelity) {
  auto config = drive_with(SimTime::microseconds(500));
  config.lookup_cores = cores;
  config.fidelity = fidelity;
  return config;
}

std::int64_t pieces(std::int64_t lookups, std::uint32_t cores) { return (lookups + cores - 1) / cores; }

/// Runs until the cores have begun, and then for a lookup and the reads of what it has found.
void run_for_lookup(DriveHost& host, SimTime lookup_time) {
  while (host.drive().lookup_cores().idle()) DriveHost::run_for(SimTime::microseconds(1));
  DriveHost::run_for(lookup_time + SimTime{lookup_time.ps / 2});
}

}  // namespace

TEST_CASE("the cores share the lookups of a fetch, and each page is read as soon as it is found") {
  for (const auto fidelity : {csd_model::Fidelity::fast, csd_model::Fidelity::at}) {
    for (const std::uint32_t cores : {1u, 2u, 3u}) {
      CAPTURE(cores, fidelity == csd_model::Fidelity::at);
      const auto config = drive_with_slow_lookups(cores, fidelity);
      const auto duration = [&](const std::vector<std::uint32_t>& tokens, std::int64_t pages) {
        UnequalHeads host(config);
        const SimTime start = nvme::sim_now();
        const SentPtr fetch = host.send_fetch(0, 1, tokens);
        REQUIRE(host.run(fetch) == status::success);
        CHECK(host.page_reads() == pages);
        CHECK(host.lookup_busy() == config.lookup_time * pages);
        return fetch->at - start;
      };
      // As many rows of K and V, of one group and of four.
      const SimTime one = duration({0, 1, 2, 3, 139}, 2), four = duration({0, 40, 70, 100, 139}, 8);
      CHECK((four - one).ps == (config.lookup_time * (pieces(8, cores) - pieces(2, cores))).ps);

      UnequalHeads host(config);
      const SentPtr fetch = host.send_fetch(0, 1, {0, 40, 70, 100, 139});
      run_for_lookup(host, config.lookup_time);
      CHECK(host.page_reads() == cores);
      DriveHost::run_for(config.lookup_time);
      CHECK(host.page_reads() == std::min<std::int64_t>(8, 2 * cores));
      CHECK(!fetch->done);
      DriveHost::settle();
    }
  }
}

TEST_CASE("attention that reads its pages together has them looked up one by one, too") {
  for (const std::uint32_t cores : {1u, 3u}) {
    CAPTURE(cores);
    auto config = drive_with_slow_lookups(cores, csd_model::Fidelity::fast);
    config.engine.intake = engine::Intake::phase;
    UnequalHeads host(config);
    DriveHost::Attend attend = host.prepare_attend(0, {heads_of(1, 139, 0, 1)});
    host.send_attend(attend);
    run_for_lookup(host, config.lookup_time);
    CHECK(host.page_reads() == cores);
    DriveHost::run_for(config.lookup_time);
    CHECK(host.page_reads() == std::min<std::int64_t>(8, 2 * cores));
    DriveHost::settle();
    CHECK(attend.sent->status == status::success);
    CHECK(host.error(attend) < kOutputTolerance);
    CHECK(host.lookup_busy() == config.lookup_time * 8);
  }
}

TEST_CASE("the cores share the lookups of a block command, which goes on when all are done") {
  const auto duration = [](std::uint32_t cores, SimTime lookup_time) {
    auto config = drive_with(lookup_time);
    config.lookup_cores = cores;
    DriveHost host(config);
    REQUIRE(host.run(host.send_write(0, 4, std::byte{3})) == status::success);
    DriveHost::settle();
    const SimTime start = nvme::sim_now();
    const SentPtr read = host.send_read(0, 4);  // 16 pages of 1 KiB
    REQUIRE(host.run(read) == status::success);
    return read->at - start;
  };
  const SimTime free = duration(1, SimTime{});
  for (const std::uint32_t cores : {1u, 3u, 16u, 20u})
    CHECK((duration(cores, kLookup) - free).ps == (kLookup * pieces(16, cores)).ps);
}

TEST_CASE("a fetch that is refused half way leaves no lookups to be paid by others") {
  UnequalHeads host(drive_with(kLookup));
  // Head 0 has token 100, head 1 has not.
  REQUIRE(host.run(host.send_fetch(0, 2, {0, 100})) == status::kv_bad_token);
  const SimTime before = host.lookup_busy();
  REQUIRE(host.attend(0, {heads_of(1, 31, 1, 1)}).sent->status == status::success);
  CHECK(host.page_reads() == 2);
  CHECK((host.lookup_busy() - before).ps == (kLookup * 2).ps);
}

TEST_CASE("attention whose pages wait for page buffers pays for its lookups beside fetches") {
  auto config = drive_with(kLookup);
  config.flash.page_buffers = 1;
  UnequalHeads host(config);
  std::vector<SentPtr> sent;
  for (int i = 0; i < 3; ++i) {
    auto a = host.prepare_attend(0, {heads_of(1, 139, 0, 1)});
    host.send_attend(a, 1);
    sent.push_back(a.sent);
    sent.push_back(host.send_fetch(0, 1, {0, 100}, 2));
  }
  DriveHost::settle();
  for (const SentPtr& each : sent) CHECK(each->status == status::success);
  CHECK(host.page_reads() == 3 * 8 + 3 * 4);
  CHECK((host.lookup_busy()).ps == (kLookup * host.page_reads()).ps);
}

namespace {

csd_model::DriveConfig drive_with_work(std::uint32_t cores) {
  auto config = tiny_drive();
  config.lookup_cores = cores;
  config.firmware = {.append = SimTime::microseconds(3),
                     .flush = SimTime::microseconds(5),
                     .transpose = SimTime::microseconds(7),
                     .collect = SimTime::microseconds(11),
                     .fetch = SimTime::microseconds(13)};
  return config;
}

}  // namespace

TEST_CASE("the firmware's cores pay for appends, flushes, transposition, moved pages and fetched rows, by the piece") {
  for (const std::uint32_t cores : {1u, 3u}) {
    CAPTURE(cores);
    auto config = drive_with_work(cores);
    config.reliability.emplace();  // whose errors are corrected
    config.kv.read_reclaim = 4;
    DriveHost host(config);
    constexpr std::uint16_t kHeads = 32;
    std::int64_t heads = 0, rows = 0;
    REQUIRE(host.create(1, 1, kHeads) == status::success);
    for (std::uint32_t first = 0; first < 200; first += 50, heads += kHeads)
      REQUIRE(host.append(1, 0, first, 50, 0, kHeads) == status::success);
    for (std::uint32_t token = 200; token < 216; ++token, heads += kHeads) {
      const auto a = host.attend(0, {heads_of(1, token, 0, kHeads, true)});
      REQUIRE(a.sent->status == status::success);
      CHECK(host.error(a) < kOutputTolerance);
    }
    const nvme::KvFetch fetch{LayerId{0}, 16, 5, 2};
    const nvme::FetchLayout layout = nvme::fetch_layout(fetch);
    const nvme::Segment buffer = host.buffer(layout.size);
    host.put(buffer.address, std::vector{heads_of(1, 0, 3, 2)});
    host.put(buffer.address + layout.tokens, std::vector<std::uint32_t>{0, 1, 2, 70, 215});
    REQUIRE(host.run(nvme::encode(kNamespace, fetch), buffer) == status::success);
    rows += 10;
    DriveHost::settle();
    const ftl::KvFtlStats& kv = host.drive().kv_ftl().stats();
    const std::uint64_t moved = kv.gc_pages_moved + kv.reclaim_pages_moved;
    REQUIRE(moved > 0);
    REQUIRE(kv.embedding_pages_programmed > 0);
    const auto times = [](std::uint64_t count, std::int64_t microseconds) {
      return SimTime::microseconds(static_cast<std::int64_t>(count) * microseconds);
    };
    CHECK(host.drive().lookup_cores().busy() ==
          times(heads, 3) + times(kv.token_pages_programmed + kv.embedding_pages_programmed, 5) +
              times(kv.embedding_pages_programmed, 7) + times(moved, 11) + times(rows, 13));
  }
}

TEST_CASE("commands wait for what the firmware does for them, and tokens keep their order on several cores") {
  const auto duration = [](std::uint32_t cores, const ftl::FirmwareTimes& firmware, auto run) {
    auto config = tiny_drive();
    config.lookup_cores = cores;
    config.firmware = firmware;
    UnequalHeads host(config);
    const SimTime start = nvme::sim_now();
    run(host);
    return nvme::sim_now() - start;
  };
  const auto fetch = [](UnequalHeads& host) {
    REQUIRE(host.run(host.send_fetch(0, 1, {0, 40, 70, 100, 139})) == status::success);
  };
  const auto append = [](UnequalHeads& host) { REQUIRE(host.append(1, 0, 140, 1, 0, 1) == status::success); };
  const auto attend = [](UnequalHeads& host) {
    REQUIRE(host.attend(0, {heads_of(1, 140, 0, 1, true)}).sent->status == status::success);
  };
  const SimTime work = SimTime::microseconds(10);
  const ftl::FirmwareTimes free, appending{work, {}, {}, {}, {}}, fetching{{}, {}, {}, {}, work};
  CHECK(duration(1, fetching, fetch) - duration(1, free, fetch) == work * 5);
  // The rows of a head are a piece: two cores take two heads side by side.
  const auto fetch_two = [](UnequalHeads& host) {
    REQUIRE(host.run(host.send_fetch(0, 2, {0, 1, 2})) == status::success);
  };
  for (const std::uint32_t cores : {1u, 2u})
    CHECK(duration(cores, fetching, fetch_two) - duration(cores, free, fetch_two) == work * 3 * pieces(2, cores));
  CHECK(duration(1, appending, append) - duration(1, free, append) == work);
  CHECK(duration(1, appending, attend) - duration(1, free, attend) == work);
  // An append of two heads and, behind it, one of a single head: the shorter work ends first, on a core of its own.
  const auto both = [](UnequalHeads& host) {
    REQUIRE(host.append(1, 0, 32, 108, 1, 1) == status::success);
    const auto send = [&](std::uint32_t first, std::uint16_t heads) {
      const nvme::KvAppend command{SequenceId{1}, LayerId{0}, TokenIndex{first}, 1, KvHead{0}, heads};
      return host.send(nvme::encode(kNamespace, command, 16), host.buffer(nvme::append_size(command, 16)));
    };
    const SentPtr two = send(140, 2), one = send(141, 1);
    DriveHost::settle();
    CHECK(two->status == status::success);
    CHECK(one->status == status::success);
    CHECK(one->at < two->at);
  };
  duration(2, appending, both);
}

}  // namespace test_lookup_cost
