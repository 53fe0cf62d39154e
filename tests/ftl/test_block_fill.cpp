// Drives that were used before: preconditioning, ageing, trimming.
#include <catch2/catch.hpp>
#include <vector>

#include "base/error.h"
#include "base/rng.h"
#include "block_drive.h"

namespace test_block_fill {

using namespace csdsim;
using namespace csdsim::ftl;
using csdsim::ftl::test::check_mapping;
using Drive = csdsim::ftl::test::BlockDrive;

namespace {

constexpr Bytes kPage = Bytes::kib(4);

}  // namespace

TEST_CASE("an aged drive is consistent, counts nothing, and goes on as after that much use") {
  const FlashGeometry g{2, 1, 1, 256, 32, kPage};
  const auto measured = [&](double overwrites) {
    Drive drive(g, {256, 0}, DataMode::timing, {.over_provisioning = 0.2});
    drive.ftl.precondition(drive.ftl.capacity(), 1);
    drive.ftl.age(overwrites, 2);
    check_mapping(drive);
    CHECK(drive.ftl.stats().host_pages_written == 0);
    CHECK(drive.ftl.stats().gc_pages_moved == 0);
    drive.program_what_is_written();
    Rng rng(3);
    for (std::uint64_t i = 0; i < drive.pages(); ++i) {
      REQUIRE_NOTHROW(drive.run(drive.ftl.write(kPage * rng.below(drive.pages()), kPage)));
    }
    check_mapping(drive);
    return drive.ftl.stats().write_amplification();
  };
  const double fresh = measured(0);
  const double aged = measured(4);
  CAPTURE(fresh, aged);
  CHECK(aged > 1.1 * fresh);                         // a drive that was just filled still has room
  CHECK(measured(8) == Approx(aged).epsilon(0.04));  // four overwrites have reached the steady state
  CHECK(measured(4) == aged);
}

TEST_CASE("a drive that is aged for long tells how far it is") {
  Drive drive({2, 1, 1, 256, 32, kPage}, {256, 0}, DataMode::timing, {.over_provisioning = 0.2});
  drive.ftl.precondition(drive.ftl.capacity(), 1);
  std::vector<std::uint64_t> written;
  const std::uint64_t pages = 20 * drive.pages();
  drive.ftl.age(20, 2, [&](std::uint64_t done, std::uint64_t total) {
    CHECK(total == pages);
    written.push_back(done);
  });
  REQUIRE(written.size() == pages / written.front());
  CHECK(written.size() > 2);
  for (std::size_t i = 0; i < written.size(); ++i) CHECK(written[i] == (i + 1) * written.front());
}

TEST_CASE("only a preconditioned drive without data can be aged") {
  const FlashGeometry g{1, 1, 1, 16, 8, kPage};
  Drive empty(g, {16, 0}, DataMode::timing);
  CHECK_THROWS_WITH(empty.ftl.age(1, 1), Catch::Contains("preconditioned"));
  Drive carried(g, {16, 0}, DataMode::carried);
  CHECK_THROWS_AS(carried.ftl.age(1, 1), UserError);
  empty.ftl.precondition(kPage * 8, std::nullopt);
  CHECK_THROWS_AS(empty.ftl.age(-1, 1), UserError);
}

TEST_CASE("trimming half of the drive reduces write amplification, and read pages are zeros again") {
  const FlashGeometry g{2, 1, 1, 64, 32, kPage};
  const auto measured = [&](bool trim) {
    Drive drive(g, {64, 0}, DataMode::timing);
    drive.ftl.precondition(drive.ftl.capacity(), 1);
    drive.ftl.age(4, 2);
    const std::uint64_t half = drive.pages() / 2;
    if (trim) {
      CHECK(drive.ftl.trim(kPage * half, kPage * (drive.pages() - half)).phases.empty());
      CHECK(drive.ftl.read(kPage * half, kPage).phases.empty());
      CHECK(drive.ftl.stats().trimmed_pages == drive.pages() - half);
      check_mapping(drive);
    }
    Rng rng(3);
    for (std::uint64_t i = 0; i < 4 * half; ++i) drive.ftl.write(kPage * rng.below(half), kPage);
    return drive.ftl.stats().write_amplification();
  };
  const double full = measured(false);
  const double trimmed = measured(true);
  CAPTURE(full, trimmed);
  CHECK(full > 3);
  CHECK(trimmed < 1.6);
}

TEST_CASE("blocks whose pages were all trimmed are erased without moving a page") {
  const FlashGeometry g{1, 1, 1, 32, 16, kPage};
  for (const GcPolicy policy : {GcPolicy::greedy, GcPolicy::cost_benefit, GcPolicy::random_greedy, GcPolicy::fifo}) {
    Drive drive(g, {32, 0}, DataMode::timing, {}, {.gc = {.kind = policy, .choices = 32}});
    const std::uint64_t pages = drive.pages();
    for (std::uint64_t p = 0; p < pages; ++p) drive.run(drive.ftl.write(kPage * p, kPage));
    drive.ftl.trim(Bytes{}, kPage * pages);
    for (std::uint64_t p = 0; p < pages; ++p) drive.run(drive.ftl.write(kPage * p, kPage));
    CHECK(drive.ftl.stats().gc_erases > 10);
    CHECK(drive.ftl.stats().gc_pages_moved == 0);
  }
}

}  // namespace test_block_fill
