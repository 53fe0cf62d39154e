// Firmware of Flexible Data Placement: reclaim unit handles, their status and events.
#pragma once

#include "csd_model/firmware/block_service.h"
#include "ftl/block/block_ftl.h"
#include "nvme_if/core/endurance_group.h"
#include "nvme_if/sysc/command.h"

namespace csdsim::csd_model {

/// A reclaim unit handle is a placement handle of the FTL, a reclaim group one of its planes. So a handle has an open
/// reclaim unit in each group that was written with it.
class PlacementService final : private ftl::PlacementObserver {
 public:
  PlacementService(ftl::BlockFtl& ftl, BlockService& blocks, Bytes block_size, const FlashGeometry& geometry)
      : ftl_(ftl), blocks_(blocks), block_size_(block_size), geometry_(geometry) {}

  /// Events of the FTL are noted in `group`, which outlives the drive's work; null: there is none.
  void report_to(nvme::EnduranceGroup* group);

  void status(nvme::Command& command, const nvme::ReclaimUnitStatus& op);
  void update(nvme::Command& command, const nvme::ReclaimUnitUpdate& op);
  /// Bytes since the simulation began; programs and erases count when they are planned.
  nvme::FdpCounts counts() const;
  /// Deallocates the whole namespace.
  void erase_namespace(std::function<void()> done);

 private:
  void moved(ftl::PlacementHandle handle, PlaneId plane, std::uint32_t pages, ftl::LogicalPage first) override;
  void closed(ftl::PlacementHandle handle, PlaneId plane) override;
  void end_units(nvme::Command& command, nvme::EnduranceGroup& group, const std::vector<std::uint16_t>& identifiers);

  ftl::BlockFtl& ftl_;
  BlockService& blocks_;
  Bytes block_size_;
  FlashGeometry geometry_;  ///< as the FTL addresses it
  nvme::EnduranceGroup* group_ = nullptr;
};

}  // namespace csdsim::csd_model
