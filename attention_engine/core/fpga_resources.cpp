#include "attention_engine/core/fpga_resources.h"

namespace csdsim::engine {
namespace {

// InstInfer Table I: the numbers of units that its rows are for.
constexpr double kTableKernels = 2;
constexpr double kTableChannels = 8;

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

FpgaUse fpga_use(std::uint32_t kernels, std::uint32_t channels) {
  const FpgaResources kernel_row{.luts = 99'200, .flip_flops = 207'300, .block_rams = 96, .dsps = 768};
  const FpgaResources controller_row{.luts = 58'332, .flip_flops = 27'800, .block_rams = 96, .dsps = 0};
  return {scaled(kernel_row, kernels / kTableKernels),
          FpgaResources{.luts = 5'830, .flip_flops = 3'870, .block_rams = 24, .dsps = 0},
          scaled(controller_row, channels / kTableChannels),
          FpgaResources{.luts = 7'990, .flip_flops = 12'450, .block_rams = 27.5, .dsps = 0},
          FpgaResources{.luts = 4'120, .flip_flops = 6'170, .block_rams = 7.5, .dsps = 0}};
}

FpgaResources total(const FpgaUse& use) {
  FpgaResources sum;
  for (const FpgaResources& unit : use) sum += unit;
  return sum;
}

}  // namespace csdsim::engine
