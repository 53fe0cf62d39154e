// Everything is stored.
#pragma once

#include "host_runtime/core/serving/admission/admission_policy.h"

namespace csdsim::host {

class AlwaysAdmission final : public AdmissionPolicy {
 public:
  static constexpr std::string_view kName = "always";
  static constexpr std::string_view kSummary = "Every block is stored.";

  std::string_view name() const override { return kName; }
  void seen(KvBlockId) override {}
  bool admits(KvBlockId) const override { return true; }
};

}  // namespace csdsim::host
