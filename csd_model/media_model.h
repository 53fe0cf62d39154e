// The reliability model of the flash behind the interface that the FTLs ask.
#pragma once

#include "ftl/core/media_faults.h"
#include "nfc/core/reliability.h"

namespace csdsim::csd_model {

class MediaModel final : public ftl::MediaFaults {
 public:
  explicit MediaModel(const nfc::ReliabilityParams& params) : model_(params) {}

  ReadOutcome read(PhysicalPageAddress ppa, std::uint32_t erase_count, std::uint32_t reads_since_erase) override {
    return model_.read(ppa, erase_count, reads_since_erase);
  }
  bool program_fails(PhysicalPageAddress ppa, std::uint32_t erase_count) override {
    return model_.program_fails(ppa, erase_count);
  }
  bool erase_fails(BlockId block, std::uint32_t erase_count) override { return model_.erase_fails(block, erase_count); }

 private:
  nfc::Reliability model_;
};

}  // namespace csdsim::csd_model
