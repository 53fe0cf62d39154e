// Writes objects to a drive without time.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "csd_model/wear_drive.h"
#include "experiment/objects/object_writes.h"
#include "ftl/core/write_work.h"

namespace csdsim::experiment {

struct WearSetup {
  csd_model::DriveConfig drive;
  std::vector<WriterConfig> writers;
  std::vector<ftl::PlacementHandle> handles;  ///< by writer
  Bytes request;
  Bytes writes;  ///< in all
  Bytes warmup;  ///< of these, not measured
  std::uint32_t samples = 1;
  std::uint64_t seed = 1;
};

/// Erases of the blocks of the namespace.
struct EraseCounts {
  double mean = 0, deviation = 0;  ///< standard deviation over the blocks
  std::uint32_t least = 0, most = 0;
};

struct WriterWear {
  WriterCounts counts;
  std::uint64_t moved_bytes = 0;  ///< by collection and wear levelling
};

/// A piece of the measured writes.
struct WearSample {
  std::uint64_t written_bytes = 0;  ///< from the first write of the run to the end of the piece
  ftl::WriteWork work;              ///< of the piece
};

struct WearOutcome {
  Bytes capacity;
  Bytes unit;                ///< a mapping unit, which `work` counts
  std::uint64_t blocks = 0;  ///< of the namespace
  ftl::WriteWork work;       ///< measured
  std::vector<WriterWear> writers;
  std::vector<WearSample> samples;
  EraseCounts erases;            ///< in the whole run
  double measured_erases = 0;    ///< mean of the blocks, in the measured part
  std::uint64_t programmed = 0;  ///< units, in the whole run
};

using WearProgress = std::function<void(std::uint64_t done, std::uint64_t total)>;

/// Regions of writers begin at multiples of this, so that what is moved can be counted for each.
Bytes region_alignment(Bytes capacity, const csd_model::DriveConfig& drive);

/// UserError when the drive runs out of blocks.
WearOutcome run_wear(const WearSetup& setup, const WearProgress& progress = {});

}  // namespace csdsim::experiment
