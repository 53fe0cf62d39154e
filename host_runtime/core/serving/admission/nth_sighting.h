// Stores a block on its n-th sighting (vLLM: store_threshold; Dynamo stores on disk on the second).
#pragma once

#include <unordered_map>

#include "base/settings_reader.h"
#include "host_runtime/core/serving/admission/admission_policy.h"

namespace csdsim::host {

/// Counts exactly and forgets nothing: one counter per distinct block of the trace.
class NthSightingAdmission final : public AdmissionPolicy {
 public:
  static constexpr std::string_view kName = "nth_sighting";
  static constexpr std::string_view kSummary = "A block is stored when the n-th request has it; setting n, default 2.";

  explicit NthSightingAdmission(const CachePolicyContext& context) {
    SettingsReader settings(kName, context);
    n_ = settings.value("n", std::uint32_t{2}, {1, 1'000'000});
    settings.finish();
  }

  std::string_view name() const override { return kName; }
  void seen(KvBlockId id) override {
    std::uint32_t& sightings = sightings_[id.value];
    if (sightings < n_) ++sightings;
  }
  bool admits(KvBlockId id) const override {
    const auto found = sightings_.find(id.value);
    return found != sightings_.end() && found->second >= n_;
  }

 private:
  std::uint32_t n_ = 2;
  std::unordered_map<std::uint64_t, std::uint32_t> sightings_;
};

}  // namespace csdsim::host
