#include "host_runtime/core/machine/gpu_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace csdsim::host {

namespace {

struct Shares {
  Ratio compute;
  Ratio memory;
};

/// Compute and memory shares by OperatorClass.
std::array<Shares, kOperatorClasses> shares_of(const RooflineEfficiency& e) {
  static_assert(static_cast<int>(OperatorClass::gemm) == 0 && static_cast<int>(OperatorClass::attention) == 1);
  return {{{e.gemm, e.gemv}, {e.attention_prefill, e.attention_decode}, {e.elementwise, e.elementwise}}};
}

void require_shares(const RooflineEfficiency& e) {
  const std::pair<std::string_view, Ratio> shares[] = {{"gemm", e.gemm},
                                                       {"gemv", e.gemv},
                                                       {"attention_prefill", e.attention_prefill},
                                                       {"attention_decode", e.attention_decode},
                                                       {"elementwise", e.elementwise}};
  for (const auto& [name, share] : shares)
    if (share.numerator == 0 || share > Ratio{1, 1})
      throw UserError(fmt::format("gpu.efficiency.{}: {} is not in (0, 1]", name, format_quantity(share)));
}

}  // namespace

SimTime OperatorTable::time(const ComputeWork& work) {
  const auto known = entries_.find(work);
  if (known != entries_.end()) return known->second;
  return entries_.emplace(work, measure_(work)).first->second;
}

GpuModel::GpuModel(const GpuConfig& config, std::shared_ptr<OperatorTable> measured)
    : launch_(config.kernel_launch), rates_{}, gemm_by_rows_(config.gemm_by_rows), measured_(std::move(measured)) {
  if (config.fp16_rate.flop_per_second == 0) throw UserError("gpu.fp16_rate: is 0");
  if (config.memory_bandwidth.bytes_per_second == 0) throw UserError("gpu.memory_bandwidth: is 0");
  if (config.kernel_launch < SimTime{}) throw UserError("gpu.kernel_launch: is negative");
  require_shares(config.efficiency);
  if (const std::string problem = gemm_by_rows_.problem(); !problem.empty())
    throw UserError(fmt::format("gpu.gemm_by_rows: {}", problem));
  const auto scaled = [](std::uint64_t peak, Ratio share) {
    return std::max<std::uint64_t>(1,
                                   static_cast<std::uint64_t>(std::llround(static_cast<double>(peak) * share.value())));
  };
  const auto shares = shares_of(config.efficiency);
  for (std::size_t i = 0; i < kOperatorClasses; ++i) {
    rates_[i] = {scaled(config.fp16_rate.flop_per_second, shares[i].compute),
                 {scaled(config.memory_bandwidth.bytes_per_second, shares[i].memory)}};
  }
}

/// A product with a matrix of n elements of two bytes takes 2 n operations for each row.
std::uint64_t GpuModel::arithmetic_rate(const ComputeWork& work) const {
  const std::uint64_t rate = rates_[static_cast<std::size_t>(work.op)].flops_per_second;
  if (work.op != OperatorClass::gemm || !gemm_by_rows_.given()) return rate;
  if (work.weights.value == 0) return gemm_by_rows_.rates.back().flop_per_second;
  return static_cast<std::uint64_t>(
      std::llround(gemm_by_rows_.rate(static_cast<double>(work.flops) / static_cast<double>(work.weights.value))));
}

SimTime GpuModel::time(const ComputeWork& work) const {
  if (measured_) {
    ComputeWork kernels = work;
    kernels.software = {};
    return measured_->time(kernels) + work.software;
  }
  const auto op = static_cast<std::size_t>(work.op);
  // transfer_time() divides exactly, in 128 bits; operations per second work like bytes per second.
  const SimTime arithmetic = transfer_time(Bytes{work.flops}, Bandwidth{arithmetic_rate(work)});
  const SimTime memory = transfer_time(work.bytes(), rates_[op].memory);
  return std::max(arithmetic, memory) + launch_ * work.launches + work.software;
}

}  // namespace csdsim::host
