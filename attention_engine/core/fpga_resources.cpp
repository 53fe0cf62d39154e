#include "attention_engine/core/fpga_resources.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"

namespace csdsim::engine {
namespace {

constexpr double kDspsPerProduct = 3;
constexpr double kElementBits = 16;
constexpr std::uint64_t kHeadDim = 128;  // InstInfer IV-C
/// What a kernel keeps of a job: q and output in FP16, sums in FP32.
constexpr std::uint64_t kJobBytes = 8 * kHeadDim;

FpgaResources scaled(const FpgaResources& r, double factor) {
  return {.luts = r.luts * factor,
          .flip_flops = r.flip_flops * factor,
          .block_rams = r.block_rams * factor,
          .dsps = r.dsps * factor};
}

/// Arithmetic of `products` in a cycle.
FpgaResources arithmetic(double products) {
  const double luts = FpgaFit::kProductLuts * products;
  return {.luts = luts, .flip_flops = FpgaFit::kFlipFlopsPerLut * luts, .dsps = kDspsPerProduct * products};
}

FpgaResources filters(double count) {
  return {.luts = FpgaFit::kFilterLuts * count, .flip_flops = FpgaFit::kFilterFlipFlops * count};
}

FpgaResources streams(double count) {
  return {.luts = FpgaFit::kStreamLuts * count, .flip_flops = FpgaFit::kStreamFlipFlops * count};
}

FpgaResources kernel_use(const FpgaDesign& d) {
  FpgaResources kernel = arithmetic(d.macs_per_cycle);
  const double products = d.macs_per_cycle, exponential_bits = 32.0 * d.softmax_per_cycle;
  // While a kernel multiplies one page, the state of the job of the next one is exchanged.
  const double cycles = double(d.page_size.value) / 2 / products;
  kernel.block_rams = block_rams(d.page_size * 2, kElementBits * products) +
                      block_rams(Bytes{kJobBytes * d.jobs_in_flight}, double(8 * kJobBytes) / cycles) +
                      2 * block_rams(d.page_size, exponential_bits);
  return kernel;
}

FpgaResources nvme_use(const FpgaDesign& d) {
  const double each_way = std::ceil(double(d.link.bytes_per_second) / 1e9);
  FpgaResources nvme = streams(2 * each_way);
  constexpr std::uint64_t kPcieBuffers = 32 * 1024, kCommands = 256, kCommandBytes = 112, kStagedPages = 4;
  nvme.block_rams = 4 * block_rams({}, 32 * each_way) + block_rams(Bytes{kPcieBuffers}, 0) +
                    block_rams(Bytes{kCommands * kCommandBytes}, 0) + block_rams(d.page_size * kStagedPages, 0);
  return nvme;
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

double block_rams(Bytes bytes, double bits) {
  constexpr double kHalfBytes = 2'304, kHalfBits = 36;
  return std::max(std::ceil(double(bytes.value) / kHalfBytes), std::ceil(bits / kHalfBits)) / 2;
}

FpgaUse fpga_use(const FpgaDesign& d) {
  const double elements = double(d.argtopk_units) * d.argtopk_per_cycle;
  FpgaResources argtopk = filters(elements);
  argtopk.block_rams = block_rams(d.buffer, 64.0 * elements);
  FpgaUse use{scaled(kernel_use(d), d.kernels), argtopk};
  const auto unit = [&](FpgaUnit u) -> FpgaResources& { return use[static_cast<std::size_t>(u)]; };
  unit(FpgaUnit::scoring) = scoring_use(d.scoring, d.page_size);
  if (d.behind_switch) {
    unit(FpgaUnit::shell) = scaled(kKu15p.available, 0.2);
    unit(FpgaUnit::shell).dsps = 0;
    return use;
  }
  FpgaResources& controllers = unit(FpgaUnit::flash_controllers);
  controllers = filters(d.channels);
  controllers.block_rams = d.channels * block_rams(d.page_size * d.page_buffers.value_or(0), 0);
  unit(FpgaUnit::nvme) = nvme_use(d);
  const double ports = double(d.kernels) + d.argtopk_units + 1;
  unit(FpgaUnit::interconnect) = streams(ports);
  unit(FpgaUnit::interconnect).block_rams = 2 * ports * block_rams(Bytes{512 * 8}, 64);
  return use;
}

FpgaResources scoring_use(ScorePrecision precision, std::uint32_t lanes, Bytes page_size) {
  if (lanes == 0) return {};
  constexpr double kCastLuts = 40, kCastDsps = 1;
  constexpr FpgaResources kInt8{.luts = 24 + kCastLuts, .dsps = 0.5 + kCastDsps};
  constexpr FpgaResources kInt4{.luts = 24 + 20 + kCastLuts, .dsps = kCastDsps};
  FpgaResources use;
  if (precision == ScorePrecision::fp16) {
    use = arithmetic(lanes);
  } else {
    use = scaled(precision == ScorePrecision::int8 ? kInt8 : kInt4, lanes);
    use.flip_flops = FpgaFit::kFlipFlopsPerLut * use.luts;
    use.dsps = std::ceil(use.dsps);
  }
  use.block_rams = block_rams(page_size * 2 + Bytes{2 * kHeadDim}, kElementBits * lanes);
  return use;
}

FpgaResources scoring_use(const ScoringConfig& scoring, Bytes page_size) {
  FpgaResources use;
  for (const ScorePrecision precision : {ScorePrecision::fp16, ScorePrecision::int8, ScorePrecision::int4})
    use += scoring_use(precision, scoring.lanes(precision).value_or(0), page_size);
  return use;
}

FpgaResources total(const FpgaUse& use) {
  FpgaResources sum;
  for (const FpgaResources& unit : use) sum += unit;
  return sum;
}

const Fpga& fpga_of(FpgaPart part, bool behind_switch) {
  switch (part) {
    case FpgaPart::automatic:
      return behind_switch ? kKu15p : kZynq7045;
    case FpgaPart::zynq7045:
      return kZynq7045;
    case FpgaPart::zynq7100:
      return kZynq7100;
    case FpgaPart::zu9eg:
      return kZu9eg;
    case FpgaPart::zu17eg:
      return kZu17eg;
    case FpgaPart::ku15p:
      return kKu15p;
    case FpgaPart::vu9p:
      return kVu9p;
  }
  throw InternalError("unknown FPGA");
}

std::string fpga_lacks(const FpgaDesign& design, const Fpga& fpga) {
  constexpr std::array<std::string_view, 4> kNames{"LUTs", "flip-flops", "block RAMs", "DSPs"};
  std::vector<std::string> lacks;
  if (!design.bounded()) lacks.emplace_back("unlimited page buffers");
  const FpgaResources used = total(fpga_use(design));
  for (std::size_t i = 0; i < kFpgaResourceNames.size(); ++i) {
    const double amount = used.*kFpgaResourceNames[i].amount;
    const double available = fpga.available.*kFpgaResourceNames[i].amount;
    if (amount > available) lacks.push_back(fmt::format("{:.0f} {} of {:.0f}", amount, kNames[i], available));
  }
  return fmt::format("{}", fmt::join(lacks, ", "));
}

}  // namespace csdsim::engine
