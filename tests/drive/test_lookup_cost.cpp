// Map lookups are paid by the command that caused them, once, and by no other.
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

TEST_CASE("a fetch waits for the map lookups that planning it took") {
  const auto duration = [](SimTime lookup_time) {
    UnequalHeads host(drive_with(lookup_time));
    const SimTime start = nvme::sim_now();
    const SentPtr fetch = host.send_fetch(0, 1, {0, 40, 70, 100, 139});
    REQUIRE(host.run(fetch) == status::success);
    CHECK(host.page_reads() == 8);  // K and V of four groups; token 139 is in DRAM
    CHECK(host.lookup_busy() == lookup_time * 8);
    return fetch->at - start;
  };
  CHECK((duration(kLookup) - duration(SimTime{})).ps == (kLookup * 8).ps);
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

}  // namespace test_lookup_cost
