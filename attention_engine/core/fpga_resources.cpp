#include "attention_engine/core/fpga_resources.h"

#include <cmath>

namespace csdsim::engine {
namespace {

// InstInfer Table I: the numbers of units that its rows are for.
constexpr double kTableKernels = 2;
constexpr double kTableChannels = 8;
/// Products per cycle of its kernels: EngineConfig::macs_per_cycle of each, 3 DSPs per product.
constexpr double kTableProducts = 256;
constexpr FpgaResources kKernelRow{.luts = 99'200, .flip_flops = 207'300, .block_rams = 96, .dsps = 768};
constexpr FpgaResources kArgtopkRow{.luts = 5'830, .flip_flops = 3'870, .block_rams = 24, .dsps = 0};

FpgaResources scaled(const FpgaResources& r, double factor) {
  return {.luts = r.luts * factor,
          .flip_flops = r.flip_flops * factor,
          .block_rams = r.block_rams * factor,
          .dsps = r.dsps * factor};
}

}  // namespace

FpgaResources& FpgaResources::operator+=(const FpgaResources& other) {
  luts += other.luts;
  flip_flops += other.flip_flops;
  block_rams += other.block_rams;
  dsps += other.dsps;
  return *this;
}

FpgaResources FpgaResources::share_of(const FpgaResources& available) const {
  return {.luts = luts / available.luts,
          .flip_flops = flip_flops / available.flip_flops,
          .block_rams = block_rams / available.block_rams,
          .dsps = dsps / available.dsps};
}

bool FpgaResources::within(const FpgaResources& available) const {
  return luts <= available.luts && flip_flops <= available.flip_flops && block_rams <= available.block_rams &&
         dsps <= available.dsps;
}

FpgaUse fpga_use(std::uint32_t kernels, std::uint32_t channels, const ScoringConfig& scoring) {
  const FpgaResources controller_row{.luts = 58'332, .flip_flops = 27'800, .block_rams = 96, .dsps = 0};
  return {scaled(kKernelRow, kernels / kTableKernels),
          kArgtopkRow,
          scaled(controller_row, channels / kTableChannels),
          FpgaResources{.luts = 7'990, .flip_flops = 12'450, .block_rams = 27.5, .dsps = 0},
          FpgaResources{.luts = 4'120, .flip_flops = 6'170, .block_rams = 7.5, .dsps = 0},
          scoring_use(scoring),
          FpgaResources{}};
}

FpgaUse fpga_use_behind_switch(std::uint32_t kernels, const ScoringConfig& scoring) {
  FpgaResources shell = scaled(kKu15p.available, 0.2);
  shell.dsps = 0;
  return {scaled(kKernelRow, kernels / kTableKernels), kArgtopkRow, {}, {}, {}, scoring_use(scoring), shell};
}

FpgaResources scoring_use(ScorePrecision precision, std::uint32_t lanes) {
  if (lanes == 0) return {};
  constexpr double kCastLuts = 40, kCastDsps = 1;
  constexpr FpgaResources kInt8{.luts = 24 + kCastLuts, .dsps = 0.5 + kCastDsps};
  constexpr FpgaResources kInt4{.luts = 24 + 20 + kCastLuts, .dsps = kCastDsps};
  FpgaResources use;
  if (precision == ScorePrecision::fp16) {
    use = scaled(kKernelRow, lanes / kTableProducts);
  } else {
    use = scaled(precision == ScorePrecision::int8 ? kInt8 : kInt4, lanes);
    use.flip_flops = 2 * use.luts;
    use.dsps = std::ceil(use.dsps);
  }
  use.block_rams = 4;
  return use;
}

FpgaResources scoring_use(const ScoringConfig& scoring) {
  FpgaResources use;
  for (const ScorePrecision precision : {ScorePrecision::fp16, ScorePrecision::int8, ScorePrecision::int4})
    use += scoring_use(precision, scoring.lanes(precision).value_or(0));
  return use;
}

FpgaResources exact_attention_use(std::uint32_t lanes) { return scaled(kKernelRow, 2 * lanes / kTableProducts); }

FpgaResources total(const FpgaUse& use) {
  FpgaResources sum;
  for (const FpgaResources& unit : use) sum += unit;
  return sum;
}

}  // namespace csdsim::engine
