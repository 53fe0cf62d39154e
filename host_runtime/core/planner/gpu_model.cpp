#include "host_runtime/core/planner/gpu_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace csdsim::host {

namespace {

constexpr std::array<OperatorEfficiency, kOperatorClasses> kEfficiency{{
    {0.65, 0.78, SimTime::microseconds(5),
     "compute: assumed, as attention; memory: published, whole model in one kernel; launch: assumed"},
    {0.65, 0.83, SimTime::microseconds(5),
     "compute: published, FlashAttention-3 648 of 989 TFLOP/s; memory: published decode attention; launch: assumed"},
    {0.65, 0.78, SimTime::microseconds(5), "assumed, as gemm"},
}};

constexpr std::uint64_t tera(double value) { return static_cast<std::uint64_t>(value * 1e12 + 0.5); }
constexpr Bandwidth gigabytes(std::uint64_t value) { return {value * 1'000'000'000}; }

constexpr std::array<GpuParameters, 5> kPresets{{
    {"a6000",
     tera(155),
     gigabytes(768),
     {48'000'000'000},
     "capacity: InstInfer III-A; rates: general knowledge of the NVIDIA RTX A6000, not re-checked",
     kEfficiency},
    {"a100-40",
     tera(312),
     gigabytes(1555),
     {40'000'000'000},
     "capacity and flops: KVPR; bandwidth: general knowledge of the NVIDIA A100 40 GB, not re-checked",
     kEfficiency},
    {"rtx-5000",
     tera(89.2),
     gigabytes(448),
     {16'000'000'000},
     "capacity and flops: KVPR; bandwidth: general knowledge of the Quadro RTX 5000, not re-checked",
     kEfficiency},
    {"rtx-4090",
     tera(165),
     gigabytes(1008),
     {24'000'000'000},
     "capacity: HillInfer; rates: general knowledge of the GeForce RTX 4090, not re-checked",
     kEfficiency},
    {"h200",
     tera(989),
     gigabytes(4800),
     {141'000'000'000},
     "general knowledge of the NVIDIA H200 SXM data sheet, not re-checked",
     kEfficiency},
}};

void require_share(std::string_view gpu, const char* what, double share) {
  if (!(share > 0 && share <= 1))
    throw UserError(fmt::format("gpu '{}': {} efficiency is {}, must be in (0, 1]", gpu, what, share));
}

}  // namespace

SimTime OperatorTable::time(const ComputeWork& work) {
  const auto known = entries_.find(work);
  if (known != entries_.end()) return known->second;
  return entries_.emplace(work, measure_(work)).first->second;
}

GpuModel::GpuModel(const GpuParameters& p, std::shared_ptr<OperatorTable> measured)
    : parameters_(p), rates_{}, measured_(std::move(measured)) {
  if (p.peak_flops == 0) throw UserError(fmt::format("gpu '{}': peak_flops is 0", p.name));
  if (p.memory.bytes_per_second == 0) throw UserError(fmt::format("gpu '{}': memory bandwidth is 0", p.name));
  for (std::size_t i = 0; i < kOperatorClasses; ++i) {
    const OperatorEfficiency& e = p.efficiency[i];
    require_share(p.name, "compute", e.compute);
    require_share(p.name, "memory", e.memory);
    if (e.launch < SimTime{}) throw UserError(fmt::format("gpu '{}': launch time is negative", p.name));
    const auto scaled = [](std::uint64_t peak, double share) {
      return std::max<std::uint64_t>(1, static_cast<std::uint64_t>(std::llround(static_cast<double>(peak) * share)));
    };
    rates_[i] = {scaled(p.peak_flops, e.compute), {scaled(p.memory.bytes_per_second, e.memory)}};
  }
}

SimTime GpuModel::time(const ComputeWork& work) const {
  if (measured_) return measured_->time(work);
  const auto op = static_cast<std::size_t>(work.op);
  // Operations at a rate a second divide like bytes at a bandwidth: exactly, in 128 bits.
  const SimTime arithmetic = transfer_time(Bytes{work.flops}, Bandwidth{rates_[op].flops_per_second});
  const SimTime memory = transfer_time(work.bytes(), rates_[op].memory);
  return std::max(arithmetic, memory) + parameters_.efficiency[op].launch * work.launches;
}

std::vector<std::string> gpu_preset_names() {
  std::vector<std::string> names;
  for (const GpuParameters& p : kPresets) names.emplace_back(p.name);
  return names;
}

GpuParameters gpu_preset(std::string_view name) {
  for (const GpuParameters& p : kPresets)
    if (p.name == name) return p;
  throw UserError(fmt::format("gpu preset '{}' is unknown; known: {}", name, fmt::join(gpu_preset_names(), ", ")));
}

}  // namespace csdsim::host
