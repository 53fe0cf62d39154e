#include <catch2/catch.hpp>
#include <map>
#include <random>

#include "base/error.h"
#include "nvme_if/core/prp.h"

namespace test_prp {

using namespace csdsim;
using namespace csdsim::nvme;

namespace {

constexpr std::uint64_t kPage = 4096;

/// Memory of PRP list entries by address.
using ListMemory = std::map<std::uint64_t, std::uint64_t>;

struct Walked {
  Status error;
  std::vector<Segment> segments;
  int lists = 0;
};

Walked walk(std::uint64_t prp1, std::uint64_t prp2, std::uint64_t length, const ListMemory& memory = {}) {
  PrpWalker w;
  w.start(prp1, prp2, Bytes{length}, Bytes{kPage});
  Walked r;
  while (w.state() == WalkState::needs_list) {
    ++r.lists;
    const Segment list = w.list();
    REQUIRE(list.length.value % 8 == 0);
    REQUIRE(list.address.value / kPage == (list.address.value + list.length.value - 1) / kPage);
    std::vector<std::uint64_t> entries;
    for (std::uint64_t a = 0; a < list.length.value; a += 8) {
      const auto it = memory.find(list.address.value + a);
      entries.push_back(it == memory.end() ? 0 : it->second);
    }
    w.feed(entries);
  }
  if (w.state() == WalkState::failed)
    r.error = w.error();
  else
    r.segments.assign(w.segments().begin(), w.segments().end());
  return r;
}

Segment seg(std::uint64_t address, std::uint64_t length) { return {PhysicalAddress{address}, Bytes{length}}; }

}  // namespace

TEST_CASE("one and two pages need no list") {
  CHECK(walk(0x10000, 0, 0).segments.empty());
  CHECK(walk(0x10000, 0, 4096).segments == std::vector{seg(0x10000, 4096)});
  CHECK(walk(0x10200, 0, 512).segments == std::vector{seg(0x10200, 512)});
  // The last byte that PRP1 covers, and one dword more.
  CHECK(walk(0x10200, 0, 4096 - 0x200).segments == std::vector{seg(0x10200, 4096 - 0x200)});
  CHECK(walk(0x10200, 0x50000, 4096 - 0x200 + 4).segments == std::vector{seg(0x10200, 4096 - 0x200), seg(0x50000, 4)});
  CHECK(walk(0x10000, 0x50000, 8192).segments == std::vector{seg(0x10000, 4096), seg(0x50000, 4096)});
  // Contiguous pages are one segment.
  CHECK(walk(0x10000, 0x11000, 8192).segments == std::vector{seg(0x10000, 8192)});
}

TEST_CASE("three pages need a list, which may start inside its page") {
  const ListMemory list{{0x20F00, 0x40000}, {0x20F08, 0x60000}};
  const Walked w = walk(0x10800, 0x20F00, 2048 + 4096 + 100, list);
  CHECK(w.lists == 1);
  CHECK(w.segments == std::vector{seg(0x10800, 2048), seg(0x40000, 4096), seg(0x60000, 100)});
}

TEST_CASE("lists chain through the last entry of a page, only when more is needed") {
  // Two entries before the end of the page.
  const ListMemory chain{{0x20FF0, 0x40000}, {0x20FF8, 0x30000}, {0x30000, 0x60000}, {0x30008, 0x80000}};
  const Walked w = walk(0x10000, 0x20FF0, 4 * 4096, chain);
  CHECK(w.lists == 2);
  CHECK(w.segments == std::vector{seg(0x10000, 4096), seg(0x40000, 4096), seg(0x60000, 4096), seg(0x80000, 4096)});
  // Exactly two pages left: the last entry is a page, not a pointer.
  const Walked exact = walk(0x10000, 0x20FF0, 3 * 4096, chain);
  CHECK(exact.lists == 1);
  CHECK(exact.segments == std::vector{seg(0x10000, 4096), seg(0x40000, 4096), seg(0x30000, 4096)});
  // The list has one entry left in its page. It points to the next list.
  const Walked pointer = walk(0x10000, 0x20FF8, 3 * 4096, chain);
  CHECK(pointer.lists == 2);
  CHECK(pointer.segments == std::vector{seg(0x10000, 4096), seg(0x60000, 4096), seg(0x80000, 4096)});
}

TEST_CASE("contiguous pages of a list are one segment, also with those before and behind it") {
  // The first page of the list follows PRP1; the chain goes on in the middle of the second piece.
  const ListMemory chain{{0x20FE0, 0x11000}, {0x20FE8, 0x40000}, {0x20FF0, 0x41000}, {0x20FF8, 0x30000},
                         {0x30000, 0x42000}, {0x30008, 0x43000}, {0x30010, 0x50000}};
  const Walked w = walk(0x10800, 0x20FE0, 2048 + 5 * 4096 + 100, chain);
  CHECK(w.lists == 2);
  CHECK(w.segments == std::vector{seg(0x10800, 2048 + 4096), seg(0x40000, 4 * 4096), seg(0x50000, 100)});
  // Data that end within a page: the last segment is shorter than its pages.
  const Walked part = walk(0x10800, 0x20FE0, 2048 + 4 * 4096 + 100, chain);
  CHECK(part.segments == std::vector{seg(0x10800, 2048 + 4096), seg(0x40000, 3 * 4096 + 100)});
}

TEST_CASE("offsets and zeros where they may not be") {
  CHECK(walk(0x10002, 0, 512).error == status::prp_offset_invalid);
  CHECK(walk(0, 0, 512).error == status::invalid_field);
  CHECK(walk(0x10000, 0, 8192).error == status::invalid_field);
  CHECK(walk(0x10000, 0x50004, 8192).error == status::prp_offset_invalid);
  CHECK(walk(0x10000, 0x20004, 3 * 4096).error == status::prp_offset_invalid);  // list not on a qword
  CHECK(walk(0x10000, 0x20000, 3 * 4096).error == status::invalid_field);       // entries are zero
  CHECK(walk(0x10000, 0x20000, 3 * 4096, {{0x20000, 0x40008}, {0x20008, 0x50000}}).error == status::prp_offset_invalid);
  const ListMemory misaligned_chain{{0x20FF0, 0x40000}, {0x20FF8, 0x30008}};
  CHECK(walk(0x10000, 0x20FF0, 4 * 4096, misaligned_chain).error == status::prp_offset_invalid);
  const ListMemory no_chain{{0x20FF0, 0x40000}};
  CHECK(walk(0x10000, 0x20FF0, 4 * 4096, no_chain).error == status::invalid_field);
  // PRP2 is not looked at when PRP1 is enough.
  CHECK(walk(0x10000, 0x33333, 4096).error.ok());
}

TEST_CASE("feeding something else than the asked list is refused") {
  PrpWalker w;
  w.start(0x10000, 0x20000, Bytes{3 * 4096}, Bytes{kPage});
  const std::vector<std::uint64_t> one{0x40000};
  CHECK_THROWS_AS(w.feed(one), InternalError);
}

TEST_CASE("what the host builds is what the drive walks") {
  const auto seed = Catch::rngSeed() + 2;
  INFO("seed " << seed);
  std::mt19937_64 rng(seed);
  for (int round = 0; round < 500; ++round) {
    std::vector<Segment> buffer;
    const std::uint64_t count = 1 + rng() % 5;
    std::uint64_t at = 0x100000;
    for (std::uint64_t i = 0; i < count; ++i) {
      at += kPage * (1 + rng() % 3);  // never contiguous
      const std::uint64_t offset = i == 0 ? rng() % kPage / 4 * 4 : 0;
      const std::uint64_t pages = 1 + rng() % (round % 10 == 0 ? 700 : 5);
      const std::uint64_t cut = i + 1 == count ? rng() % (kPage - offset) : 0;
      buffer.push_back(seg(at + offset, pages * kPage - offset - cut));
      at += pages * kPage;
    }
    std::uint64_t length = 0;
    for (const Segment& s : buffer) length += s.length.value;

    ListMemory memory;
    std::uint32_t list_pages = 0;
    const DataPointerField prps = build_prps(
        buffer, Bytes{kPage},
        [&](std::uint32_t i) {
          list_pages = i + 1;
          return PhysicalAddress{0x8000'0000 + i * 0x2000ull};
        },
        [&](PhysicalAddress a, std::uint64_t v) { memory[a.value] = v; });
    // An entry for each page of the buffer at most; all list pages but the last give one of theirs to the chain.
    const std::uint64_t entries = (length + kPage - 1) / kPage;
    REQUIRE(list_pages <= (entries + 510) / 511);
    const Walked w = walk(prps.prp1, prps.prp2, length, memory);
    REQUIRE(w.error.ok());
    REQUIRE(w.segments == buffer);
  }
}

TEST_CASE("a buffer that PRPs cannot describe is the user's mistake") {
  const auto build = [](std::vector<Segment> s) {
    return build_prps(
        s, Bytes{kPage}, [](std::uint32_t) { return PhysicalAddress{0x9000}; }, [](PhysicalAddress, std::uint64_t) {});
  };
  CHECK_THROWS_AS(build({seg(0x10001, 16)}), UserError);
  CHECK_THROWS_AS(build({seg(0x10000, 100), seg(0x20000, 100)}), UserError);
  CHECK_THROWS_AS(build({seg(0x10000, 4096), seg(0x20100, 100)}), UserError);
  CHECK_THROWS_AS(build({seg(0x10000, 0)}), UserError);
  CHECK(build({}).prp1 == 0);
}

}  // namespace test_prp
