// Roofline model of GPU time: an operator is bound by arithmetic or by memory, each at a given share of its peak.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>

#include "base/units.h"
#include "host_runtime/core/machine/gpu_config.h"
#include "host_runtime/core/plan/operation.h"

namespace csdsim::host {

/// Measured operator times by work. Each work is measured once and then returns the same time.
class OperatorTable {
 public:
  using Measure = std::function<SimTime(const ComputeWork&)>;
  using Entries = std::map<ComputeWork, SimTime>;

  /// `entries` are known times; `measure` is called for all others and may throw.
  explicit OperatorTable(Measure measure, Entries entries = {})
      : measure_(std::move(measure)), entries_(std::move(entries)) {}

  SimTime time(const ComputeWork& work);
  const Entries& entries() const { return entries_; }

 private:
  Measure measure_;
  Entries entries_;
};

/// time = max(flops / (fp16_rate x compute share), bytes / (memory_bandwidth x memory share)) + launches x
/// kernel_launch + the software's time, in integral picoseconds, each quotient rounded up. Compute and memory shares:
/// gemm and gemv for matrix products, attention_prefill and attention_decode for attention, elementwise twice. A table
/// of rates by rows replaces the compute share of matrix products. If there is a table of measured times, it replaces
/// the formula.
class GpuModel {
 public:
  /// Throws UserError if a peak is zero or a share is outside (0, 1].
  explicit GpuModel(const GpuConfig& config, std::shared_ptr<OperatorTable> measured = nullptr);

  SimTime time(const ComputeWork& work) const;

 private:
  struct Rate {
    std::uint64_t flops_per_second;
    Bandwidth memory;
  };
  std::uint64_t arithmetic_rate(const ComputeWork& work) const;

  SimTime launch_;
  std::array<Rate, kOperatorClasses> rates_;
  GemmRates gemm_by_rows_;
  std::shared_ptr<OperatorTable> measured_;
};

}  // namespace csdsim::host
