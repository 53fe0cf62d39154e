// GPU time by roofline: an operator is bound by arithmetic or by memory, each at a stated share of its peak.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "host_runtime/core/planner/operation.h"

namespace csdsim::host {

/// Shares of the peaks that an operator class reaches, in (0, 1].
struct OperatorEfficiency {
  double compute = 1;
  double memory = 1;
  SimTime launch = {};           ///< added once a kernel
  std::string_view source = {};  ///< where the three values come from
};

struct GpuParameters {
  std::string_view name;
  std::uint64_t peak_flops = 0;  ///< dense fp16 tensor-core rate with fp32 accumulation, operations a second
  Bandwidth memory = {};
  Bytes memory_capacity = {};
  std::string_view source = {};
  std::array<OperatorEfficiency, kOperatorClasses> efficiency = {};  ///< indexed by OperatorClass
};

/// Times of operators by what they do, each measured once: asking again gives the same time.
class OperatorTable {
 public:
  using Measure = std::function<SimTime(const ComputeWork&)>;
  using Entries = std::map<ComputeWork, SimTime>;

  /// `entries` are known already; `measure` is asked for all others, and may throw.
  explicit OperatorTable(Measure measure, Entries entries = {})
      : measure_(std::move(measure)), entries_(std::move(entries)) {}

  SimTime time(const ComputeWork& work);
  const Entries& entries() const { return entries_; }

 private:
  Measure measure_;
  Entries entries_;
};

/// time = max(flops / (peak x compute share), bytes / (bandwidth x memory share)) + launches x launch time, in integral
/// picoseconds, each quotient rounded up. With a table of measured times, those instead.
class GpuModel {
 public:
  /// UserError if a peak is zero or a share is outside (0, 1].
  explicit GpuModel(const GpuParameters& parameters, std::shared_ptr<OperatorTable> measured = nullptr);

  SimTime time(const ComputeWork& work) const;
  const GpuParameters& parameters() const { return parameters_; }

 private:
  struct Rate {
    std::uint64_t flops_per_second;
    Bandwidth memory;
  };
  GpuParameters parameters_;
  std::array<Rate, kOperatorClasses> rates_;
  std::shared_ptr<OperatorTable> measured_;
};

std::vector<std::string> gpu_preset_names();

/// UserError that lists the names for an unknown one.
GpuParameters gpu_preset(std::string_view name);

}  // namespace csdsim::host
