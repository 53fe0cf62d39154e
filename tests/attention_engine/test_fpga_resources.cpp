// The resource model against InstInfer Table I, and how it scales.
#include <catch2/catch.hpp>

#include "attention_engine/core/fpga_resources.h"

namespace test_fpga_resources {

using namespace csdsim::engine;
using csdsim::ScorePrecision;

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

TEST_CASE("a scoring unit takes a row per product, and of integers fewer DSPs than of fp16") {
  // InstInfer's kernels are 256 products, so that as many fp16 lanes take their row of Table I.
  const FpgaResources kernels = fpga_use(2, 8)[static_cast<std::size_t>(FpgaUnit::attention_kernels)];
  const FpgaResources fp16 = scoring_use(ScorePrecision::fp16, 256), int8 = scoring_use(ScorePrecision::int8, 256),
                      int4 = scoring_use(ScorePrecision::int4, 256);
  CHECK(fp16.luts == kernels.luts);
  CHECK(fp16.dsps == 768);
  CHECK(int8.dsps == 384);  // half a DSP for a product, one for its cast
  CHECK(int4.dsps == 256);
  CHECK(int8.luts == 256 * 64);
  CHECK(int4.luts == 256 * 84);
  CHECK(scoring_use(ScorePrecision::int8, 3).dsps == 5);  // a half DSP does not exist
  CHECK(scoring_use(ScorePrecision::int8, 0).block_rams == 0);
  const ScoringConfig two{.fp16_lanes = 256, .int8_lanes = {}, .int4_lanes = 256};
  CHECK(scoring_use(two).dsps == 768 + 256);
  CHECK(fpga_use(2, 8, two)[static_cast<std::size_t>(FpgaUnit::scoring)].dsps == 1024);
  // Exact attention takes in V besides: twice the products.
  CHECK(exact_attention_use(128).dsps == fp16.dsps);
  CHECK(exact_attention_use(128).luts == fp16.luts);
}

TEST_CASE(
    "next to the shell of a SmartSSD, exact attention fits a half of the fp16 lanes, a quarter of the INT8 lanes") {
  FpgaResources room = kKu15p.available;
  const FpgaUse use = fpga_use_behind_switch(2, {});
  const FpgaResources shell = use[static_cast<std::size_t>(FpgaUnit::shell)];
  CHECK(shell.luts == Approx(0.2 * room.luts));
  room = {room.luts - shell.luts, room.flip_flops - shell.flip_flops, room.block_rams - shell.block_rams, room.dsps};
  const auto scoring = [](ScorePrecision precision) {
    return [precision](std::uint32_t lanes) { return scoring_use(precision, lanes); };
  };
  // docs/token_scores.md
  CHECK(most_lanes(room, exact_attention_use) == 328);
  CHECK(most_lanes(room, scoring(ScorePrecision::fp16)) == 656);
  CHECK(most_lanes(room, scoring(ScorePrecision::int8)) == 1312);
  CHECK(most_lanes(room, scoring(ScorePrecision::int4)) == 1968);
  CHECK_FALSE(exact_attention_use(656).within(kKu15p.available));
  CHECK(total(use).within(kKu15p.available));
}

}  // namespace test_fpga_resources
