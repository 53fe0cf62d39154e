// The resource model against InstInfer Table I, and how it scales.
#include <catch2/catch.hpp>

#include "attention_engine/core/fpga_resources.h"

namespace test_fpga_resources {

using namespace csdsim::engine;
using csdsim::ScorePrecision;

/// The design of InstInfer Table I: 8 channels with 13 page buffers, 2 kernels of 128 products, 108 KiB for argtopk.
const FpgaDesign kTableI{.buffer = csdsim::Bytes::kib(108),
                         .page_size = csdsim::Bytes::kib(4),
                         .page_buffers = 13,
                         .link = csdsim::Bandwidth{3'938'461'538}};  // PCIe 3.0 x4

FpgaResources unit(const FpgaUse& use, FpgaUnit u) { return use[static_cast<std::size_t>(u)]; }

TEST_CASE("every entry of Table I is met: block RAM and DSPs within 10 %, LUTs and flip-flops within 25 %") {
  struct Row {
    FpgaUnit unit;
    FpgaResources stated;
  };
  const Row rows[] = {
      {FpgaUnit::attention_kernels, {.luts = 99'200, .flip_flops = 207'300, .block_rams = 96, .dsps = 768}},
      {FpgaUnit::argtopk, {.luts = 5'830, .flip_flops = 3'870, .block_rams = 24, .dsps = 0}},
      {FpgaUnit::flash_controllers, {.luts = 58'332, .flip_flops = 27'800, .block_rams = 96, .dsps = 0}},
      {FpgaUnit::nvme, {.luts = 7'990, .flip_flops = 12'450, .block_rams = 27.5, .dsps = 0}},
      {FpgaUnit::interconnect, {.luts = 4'120, .flip_flops = 6'170, .block_rams = 7.5, .dsps = 0}},
  };
  const FpgaUse use = fpga_use(kTableI);
  FpgaResources stated;
  const auto compare = [](const FpgaResources& simulated, const FpgaResources& row) {
    CHECK(simulated.luts == Approx(row.luts).epsilon(0.25));
    CHECK(simulated.flip_flops == Approx(row.flip_flops).epsilon(0.25));
    CHECK(simulated.block_rams == Approx(row.block_rams).epsilon(0.10));
    CHECK(simulated.dsps == Approx(row.dsps).epsilon(0.10));
  };
  for (const Row& row : rows) {
    INFO(kFpgaUnitNames[static_cast<std::size_t>(row.unit)]);
    compare(unit(use, row.unit), row.stated);
    stated += row.stated;
  }
  compare(total(use), stated);
  CHECK(unit(use, FpgaUnit::scoring).luts + unit(use, FpgaUnit::shell).luts == 0);
  CHECK(fpga_lacks(kTableI, kZynq7045).empty());
  // docs/fpga_resources.md
  CHECK(unit(use, FpgaUnit::attention_kernels).block_rams == 88);
  CHECK(unit(use, FpgaUnit::argtopk).block_rams == 24);
  CHECK(unit(use, FpgaUnit::flash_controllers).block_rams == 96);
  CHECK(unit(use, FpgaUnit::nvme).block_rams == 26);
  CHECK(unit(use, FpgaUnit::interconnect).block_rams == 8);
}

TEST_CASE("block RAM follows from bytes and from ports, whichever needs more") {
  using csdsim::Bytes;
  CHECK(block_rams(Bytes{4608}, 72) == 1);
  CHECK(block_rams(Bytes{4609}, 72) == 1.5);
  CHECK(block_rams(Bytes{1}, 73) == 1.5);
  CHECK(block_rams(Bytes{2304}, 36) == 0.5);
  CHECK(block_rams(Bytes{13 * 4096}, 64) == 12);
  CHECK(block_rams({}, 0) == 0);
}

TEST_CASE("what does not fit is named") {
  FpgaDesign d = kTableI;
  d.kernels = 3;
  CHECK(total(fpga_use(d)).dsps == 1152);
  CHECK(fpga_lacks(d, kZynq7045) == "223566 LUTs of 218600, 1152 DSPs of 900");
  CHECK(fpga_lacks(d, kZynq7100).empty());
  d = kTableI;
  d.page_buffers = 100;
  CHECK(fpga_lacks(d, kZynq7045) == "858 block RAMs of 545");
  CHECK(fpga_lacks(d, kZu9eg).empty());
  d.page_buffers.reset();
  CHECK(fpga_lacks(d, kVu9p) == "unlimited page buffers");
  d.behind_switch = true;
  CHECK(fpga_lacks(d, kKu15p).empty());
}

TEST_CASE("each resource grows with what it follows from, and with nothing else") {
  const FpgaUse table = fpga_use(kTableI);
  const auto grows = [&](auto change, FpgaUnit grown, double factor, double FpgaResources::*amount) {
    FpgaDesign d = kTableI;
    change(d);
    const FpgaUse use = fpga_use(d);
    CHECK(unit(use, grown).*amount == Approx(factor * (unit(table, grown).*amount)));
    for (std::size_t i = 0; i < kFpgaUnits; ++i)
      if (i != static_cast<std::size_t>(grown) && i != static_cast<std::size_t>(FpgaUnit::interconnect))
        CHECK(use[i].*amount == table[i].*amount);
  };
  using enum FpgaUnit;
  grows([](FpgaDesign& d) { d.kernels = 4; }, attention_kernels, 2, &FpgaResources::flip_flops);
  grows([](FpgaDesign& d) { d.macs_per_cycle = 32; }, attention_kernels, 0.25, &FpgaResources::dsps);
  grows([](FpgaDesign& d) { d.macs_per_cycle = 32; }, attention_kernels, 0.25, &FpgaResources::luts);
  grows([](FpgaDesign& d) { d.channels = 4; }, flash_controllers, 0.5, &FpgaResources::luts);
  grows([](FpgaDesign& d) { d.channels = 4; }, flash_controllers, 0.5, &FpgaResources::block_rams);
  grows([](FpgaDesign& d) { d.page_buffers = 26; }, flash_controllers, 23.5 / 12, &FpgaResources::block_rams);
  grows([](FpgaDesign& d) { d.buffer = csdsim::Bytes::kib(216); }, argtopk, 2, &FpgaResources::block_rams);
  grows([](FpgaDesign& d) { d.argtopk_per_cycle = 4; }, argtopk, 4, &FpgaResources::luts);
  grows([](FpgaDesign& d) { d.jobs_in_flight = 64; }, attention_kernels, (28.5 + 14.5 + 8) / 44,
        &FpgaResources::block_rams);
  grows([](FpgaDesign& d) { d.softmax_per_cycle = 16; }, attention_kernels, (28.5 + 7.5 + 15) / 44,
        &FpgaResources::block_rams);
  grows([](FpgaDesign& d) { d.link = csdsim::Bandwidth{7'876'923'076}; }, nvme, 2, &FpgaResources::luts);
}

TEST_CASE("a scoring unit takes a row per product, and of integers fewer DSPs than of fp16") {
  // InstInfer's kernels are 256 products, so that as many fp16 lanes take their arithmetic.
  const FpgaResources kernels = unit(fpga_use(kTableI), FpgaUnit::attention_kernels);
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
  FpgaDesign design = kTableI;
  design.scoring = two;
  CHECK(unit(fpga_use(design), FpgaUnit::scoring).dsps == 1024);
}

TEST_CASE(
    "next to the shell of a SmartSSD, exact attention fits a half of the fp16 lanes, a quarter of the INT8 lanes") {
  FpgaResources room = kKu15p.available;
  FpgaDesign design = kTableI;
  design.behind_switch = true;
  const FpgaUse use = fpga_use(design);
  const FpgaResources shell = unit(use, FpgaUnit::shell);
  CHECK(shell.luts == Approx(0.2 * room.luts));
  room = {room.luts - shell.luts, room.flip_flops - shell.flip_flops, room.block_rams - shell.block_rams, room.dsps};
  const auto scoring = [](ScorePrecision precision) {
    return [precision](std::uint32_t lanes) { return scoring_use(precision, lanes); };
  };
  // docs/hillinfer.md. Exact attention takes in V besides: twice the products.
  const auto exact_attention = [&](std::uint32_t lanes) { return scoring(ScorePrecision::fp16)(2 * lanes); };
  CHECK(most_lanes(room, exact_attention) == 328);
  CHECK(most_lanes(room, scoring(ScorePrecision::fp16)) == 656);
  CHECK(most_lanes(room, scoring(ScorePrecision::int8)) == 1312);
  CHECK(most_lanes(room, scoring(ScorePrecision::int4)) == 1968);
  CHECK_FALSE(exact_attention(656).within(kKu15p.available));
  CHECK(total(use).within(kKu15p.available));
}

}  // namespace test_fpga_resources
