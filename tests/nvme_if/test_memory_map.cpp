#include <catch2/catch.hpp>

#include "base/error.h"
#include "nvme_if/core/memory_map.h"

namespace test_memory_map {

using namespace csdsim;
using namespace csdsim::nvme;

TEST_CASE("regions are found by address and length") {
  MemoryMap map;
  const RegionId host = map.add({"host", PhysicalAddress{0x1000}, Bytes{0x1000}, RegionKind::host_dram});
  const RegionId gpu = map.add({"gpu", PhysicalAddress{0x2000}, Bytes{0x1000}, RegionKind::gpu_memory});
  CHECK(map.find({PhysicalAddress{0x1000}, Bytes{1}}) == host);
  CHECK(map.find({PhysicalAddress{0x1FFF}, Bytes{1}}) == host);
  CHECK(map.find({PhysicalAddress{0x2000}, Bytes{0x1000}}) == gpu);
  CHECK_FALSE(map.find({PhysicalAddress{0x1FFF}, Bytes{2}}).has_value());
  CHECK_FALSE(map.find({PhysicalAddress{0x0FFF}, Bytes{1}}).has_value());
  CHECK_FALSE(map.find({PhysicalAddress{0x3000}, Bytes{1}}).has_value());
  CHECK_FALSE(map.find({PhysicalAddress{0x2800}, Bytes{~std::uint64_t{0}}}).has_value());

  CHECK(map.record({map.region(gpu).base, Bytes{10}}, LinkDirection::to_host));
  CHECK(map.record({map.region(host).base, Bytes{7}}, LinkDirection::to_drive));
  const PhysicalAddress last = map.region(host).base + Bytes{map.region(host).size.value - 1};
  CHECK_FALSE(map.record({last, Bytes{2}}, LinkDirection::to_drive));
  CHECK(map.traffic(RegionKind::gpu_memory).bytes_to_region == 10);
  CHECK(map.traffic(RegionKind::host_dram).bytes_from_region == 7);
  CHECK(map.traffic(RegionKind::host_dram).bytes_to_region == 0);
}

TEST_CASE("regions may not overlap, be empty, wrap or share a name") {
  MemoryMap map;
  map.add({"a", PhysicalAddress{0x1000}, Bytes{0x1000}, RegionKind::host_dram});
  CHECK_THROWS_AS(map.add({"b", PhysicalAddress{0x1FFF}, Bytes{1}, RegionKind::host_dram}), UserError);
  CHECK_THROWS_AS(map.add({"b", PhysicalAddress{0}, Bytes{0x1001}, RegionKind::host_dram}), UserError);
  CHECK_THROWS_AS(map.add({"b", PhysicalAddress{0}, Bytes{0}, RegionKind::host_dram}), UserError);
  CHECK_THROWS_AS(map.add({"b", PhysicalAddress{~std::uint64_t{0}}, Bytes{2}, RegionKind::host_dram}), UserError);
  CHECK_THROWS_AS(map.add({"a", PhysicalAddress{0x9000}, Bytes{1}, RegionKind::host_dram}), UserError);
  CHECK_NOTHROW(map.add({"b", PhysicalAddress{0x2000}, Bytes{1}, RegionKind::drive_memory}));
  CHECK_NOTHROW(map.add({"c", PhysicalAddress{~std::uint64_t{0}}, Bytes{1}, RegionKind::drive_memory}));
  CHECK(map.regions().size() == 3);
}

}  // namespace test_memory_map
