// The flash's reliability as the FTLs ask for it.
#pragma once

#include "ftl/core/media_faults.h"
#include "nfc/core/reliability.h"

namespace csd_model {

class MediaModel final : public csdsim::ftl::MediaFaults {
 public:
  explicit MediaModel(const csdsim::nfc::ReliabilityConfig& config) : model_(config) {}

  csdsim::ftl::ReadOutcome read(csdsim::PhysicalPageAddress ppa, std::uint32_t erase_count,
                                std::uint32_t reads_since_erase) override {
    const csdsim::nfc::ReadOutcome outcome = model_.read(ppa, erase_count, reads_since_erase);
    return {outcome.retries, outcome.uncorrectable};
  }
  bool program_fails(csdsim::PhysicalPageAddress ppa, std::uint32_t erase_count) override {
    return model_.program_fails(ppa, erase_count);
  }
  bool erase_fails(csdsim::BlockId block, std::uint32_t erase_count) override {
    return model_.erase_fails(block, erase_count);
  }

 private:
  csdsim::nfc::Reliability model_;
};

}  // namespace csd_model
