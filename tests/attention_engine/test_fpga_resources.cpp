// The resource model against InstInfer Table I, and how it scales.
#include <catch2/catch.hpp>

#include "attention_engine/core/fpga_resources.h"

namespace test_fpga_resources {

using namespace csdsim::engine;

TEST_CASE("2 kernels and 8 channels take the shares of a Zynq-7045 that InstInfer states") {
  const FpgaResources share = total(fpga_use(2, 8)).share_of(kZynq7045.available);
  CHECK(share.luts * 100 == Approx(80.27).margin(0.005));
  CHECK(share.flip_flops * 100 == Approx(58.92).margin(0.005));
  CHECK(share.block_rams * 100 == Approx(46.06).margin(0.005));
  CHECK(share.dsps * 100 == Approx(85.33).margin(0.005));
  CHECK(total(fpga_use(2, 8)).within(kZynq7045.available));
}

TEST_CASE("a third kernel does not fit, for want of DSPs and LUTs") {
  const FpgaResources used = total(fpga_use(3, 8));
  CHECK_FALSE(used.within(kZynq7045.available));
  CHECK(used.dsps == 1152);
  CHECK(used.luts > kZynq7045.available.luts);
  CHECK(used.block_rams < kZynq7045.available.block_rams);
}

TEST_CASE("kernels take resources in proportion to their number, controllers to the channels") {
  const FpgaUse one = fpga_use(1, 8), four = fpga_use(2, 4);
  const auto unit = [](const FpgaUse& use, FpgaUnit u) { return use[static_cast<std::size_t>(u)]; };
  CHECK(unit(one, FpgaUnit::attention_kernels).dsps == 384);
  CHECK(unit(one, FpgaUnit::flash_controllers).luts == 58'332);
  CHECK(unit(four, FpgaUnit::flash_controllers).luts == 29'166);
  CHECK(unit(four, FpgaUnit::flash_controllers).block_rams == 48);
  CHECK(unit(four, FpgaUnit::attention_kernels).dsps == 768);
  for (const FpgaUnit fixed : {FpgaUnit::argtopk, FpgaUnit::nvme, FpgaUnit::interconnect})
    CHECK(unit(one, fixed).luts == unit(four, fixed).luts);
}

}  // namespace test_fpga_resources
