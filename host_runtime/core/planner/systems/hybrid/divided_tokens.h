// What the systems Hybrid and Hilos have in common: parameters, the solved division, needs and the plan.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "host_runtime/core/planner/system.h"
#include "host_runtime/core/planner/systems/hybrid/division.h"
#include "host_runtime/core/planner/systems/hybrid/planner.h"
#include "host_runtime/core/planner/systems/kv_parameters.h"
#include "host_runtime/core/planner/systems/sparf_parameters.h"

namespace csdsim::host {

class DividedTokens {
 public:
  explicit DividedTokens(NewestAt newest) : newest_(newest) {}

  /// `write_back_tokens`, `newest_tokens`, `activations`, `kv_buffers` and the parameters of K and V and of weights.
  void describe(ParamVisitor& v);
  /// `method` and the parameters of SparF. Without it, the drives attend densely.
  void describe_drives(ParamVisitor& v);
  void check_drives(config::Problems& problems, const SystemContext& context) const;
  std::vector<std::string> unused_drive_parameters() const;
  void check(config::Problems& problems, const SystemContext& context) const;
  std::vector<std::string> unused_parameters() const;
  /// Solves the shares that are not given from the rates, for the whole run.
  void choose(const ModelShape& model, const BatchLengths& workload, const PlatformRates& rates,
              const GivenShares& given);
  SystemNeeds needs(const ModelShape& model, const BatchLengths& workload, const GivenShares& given) const;
  std::unique_ptr<Planner> plan(const PlannerInputs& inputs, const GivenShares& given) const;
  std::vector<std::pair<std::string, std::string>> remarks() const;
  RowQuantisation kv_format() const { return kv_.rows(); }
  bool sparse() const { return method_ == DriveMethod::sparf; }
  const SparfParameters& sparf() const { return sparf_; }
  std::optional<SparseBudget> sparse_budget(const ModelShape& model, std::uint32_t context) const;

 private:
  /// As solved; before choose(), what is not given is in the drives.
  TokenShares shares(const GivenShares& given) const;

  std::uint32_t group_ = 16;
  NewestAt newest_;
  StoredAt activations_ = StoredAt::host;
  std::uint32_t kv_buffers_ = 2;
  KvFormat kv_;
  WeightPlacement weights_;
  DriveMethod method_ = DriveMethod::dense;
  SparfParameters sparf_;
  std::optional<TokenShares> solved_;
  std::optional<LayerTimes> times_;
};

}  // namespace csdsim::host

namespace csdsim {

template <>
struct EnumValues<host::NewestAt> {
  static constexpr EnumValue<host::NewestAt> values[] = {{host::NewestAt::gpu, "gpu", "GPU memory."},
                                                         {host::NewestAt::host, "host",
                                                          "Host memory, from which they are copied to the GPU in every "
                                                          "step."}};
};

template <>
struct EnumValues<host::StoredAt> {
  static constexpr EnumValue<host::StoredAt> values[] = {
      {host::StoredAt::host, "host", "Host memory, from which they are copied to the GPU."},
      {host::StoredAt::drives, "drives",
       "The block namespaces of the drives, which divide them and write them to the GPU over their links."}};
};

}  // namespace csdsim
