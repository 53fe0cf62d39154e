#include <catch2/catch.hpp>

#include "base/address.h"
#include "base/units.h"

namespace test_units {

using namespace csdsim;

TEST_CASE("transfer_time rounds up and is exact in 128 bits") {
  CHECK(transfer_time(Bytes{4096}, Bandwidth{1'400'000'000}).ps == 2'925'715);  // 2925714.28...
  CHECK(transfer_time(Bytes{1}, Bandwidth{1'000'000'000'000}).ps == 1);
  CHECK(transfer_time(Bytes{1}, Bandwidth{3'000'000'000'000}).ps == 1);
  CHECK(transfer_time(Bytes{0}, Bandwidth{1}).ps == 0);
  CHECK(transfer_time(Bytes::gib(512), Bandwidth{1'400'000'000}).ps == 392'682'724'205'715);
}

TEST_CASE("geometry addresses round-trip") {
  const FlashGeometry g{.channels = 3,
                        .dies_per_channel = 2,
                        .planes_per_die = 4,
                        .blocks_per_plane = 5,
                        .pages_per_block = 7,
                        .page_size = Bytes{512}};
  std::uint64_t expected = 0;
  for (std::uint32_t c = 0; c < 3; ++c)
    for (std::uint32_t d = 0; d < 2; ++d)
      for (std::uint32_t p = 0; p < 4; ++p)
        for (std::uint32_t b = 0; b < 5; ++b)
          for (std::uint32_t page = 0; page < 7; ++page) {
            const PlaneId plane = g.plane(ChannelId{c}, d, p);
            const PhysicalPageAddress a = g.address(plane, b, page);
            REQUIRE(a.value == expected++);
            REQUIRE(g.plane_of(a) == plane);
            REQUIRE(g.channel_of(plane) == ChannelId{c});
            REQUIRE(g.die_of(plane) == DieId{c * 2 + d});
            REQUIRE(g.page_in_block(a) == page);
            REQUIRE(g.block_of(a) == BlockId{plane.value * 5 + b});
          }
  CHECK(expected == g.pages());
  CHECK_FALSE(g.contains({g.pages()}));
}

}  // namespace test_units
