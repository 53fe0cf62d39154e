// Base of the systems Hybrid and Hilos: parameters, the solved division, needs and the plan.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/one_of.h"
#include "host_runtime/core/plan/searched_system.h"
#include "host_runtime/core/plan/system.h"
#include "host_runtime/core/systems/hybrid/division.h"
#include "host_runtime/core/systems/hybrid/planner.h"
#include "host_runtime/core/systems/kv_parameters.h"
#include "host_runtime/core/systems/sparf_parameters.h"

namespace csdsim::host {

inline constexpr EnumValue<Place> kNewestPlaces[] = {
    {Place::gpu(), "gpu", "GPU memory."},
    {Place::host(), "host", "Host memory, from which they are copied to the GPU in every step."}};
inline constexpr EnumValue<Place> kActivationPlaces[] = {
    {Place::host(), "host", "Host memory, from which they are copied to the GPU."},
    {Place::drive_blocks(), "drives",
     "The block namespaces of the drives, which divide them and write them to the GPU over their links."}};

class DividedTokens {
 public:
  explicit DividedTokens(Place newest) : newest_(newest) {}

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
  Remarks remarks() const;
  RowQuantisation kv_format() const { return kv_.rows(); }
  bool sparse() const { return method_ == Method::sparf; }
  const SparfParameters& sparf() const { return sparf_; }

 private:
  /// As solved; before choose(), what is not given is in the drives.
  TokenShares shares(const GivenShares& given) const;

  std::uint32_t group_ = 16;
  OneOf<kNewestPlaces> newest_;
  OneOf<kActivationPlaces> activations_;
  std::uint32_t kv_buffers_ = 2;
  KvFormat kv_;
  WeightPlacement weights_;
  Method method_ = Method::dense;
  SparfParameters sparf_;
  std::optional<TokenShares> solved_;
  std::optional<LayerTimes> times_;
};

}  // namespace csdsim::host
