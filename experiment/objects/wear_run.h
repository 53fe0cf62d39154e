// Writes objects to a drive without time.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "csd_model/wear_drive.h"
#include "experiment/objects/object_writes.h"
#include "experiment/write_samples.h"

namespace csdsim::experiment {

struct WearSetup {
  csd_model::DriveConfig drive;
  std::vector<WriterConfig> writers;
  std::vector<ftl::PlacementHandle> handles;  ///< by writer
  Bytes request;
  Bytes writes;  ///< in all
  Bytes warmup;  ///< the first of these bytes, which are not measured
  std::uint32_t samples = 1;
  std::optional<double> error;  ///< ends the run when the samples' write amplification is known so well
  std::uint64_t seed = 1;
};

/// What a part of the writes says about all of them.
struct WearError {
  std::uint32_t windows = 0;
  double error = 0;  ///< half of the confidence interval of the windows' mean write amplification, over the mean
};

struct WriterWear {
  WriterCounts counts;
  std::uint64_t moved_bytes = 0;  ///< by collection and wear levelling
};

/// What a part of the writes moved, in bytes: what applications wrote of new objects, what the host wrote (these and
/// what stores copied), and what was programmed.
struct WearBytes {
  std::uint64_t fresh = 0, written = 0, programmed = 0;

  /// 1 without writes.
  double programmed_per_written() const { return written == 0 ? 1 : double(programmed) / double(written); }
  friend WearBytes operator-(const WearBytes& a, const WearBytes& b) {
    return {a.fresh - b.fresh, a.written - b.written, a.programmed - b.programmed};
  }
};

struct WearOutcome {
  Bytes capacity;
  Bytes unit;                ///< a mapping unit, which `work` counts
  std::uint64_t blocks = 0;  ///< blocks of the namespace
  ftl::WriteWork work;       ///< measured
  WearBytes bytes;           ///< measured
  WearBytes late_bytes;      ///< sum over the last quarter of `samples`
  std::vector<WriterWear> writers;
  /// Samples of the measured writes, each until so many capacities were written from the first write of the run on.
  std::vector<WriteSample> samples;
  std::optional<WearError> sampled;  ///< where WearSetup::error ended the run
  ftl::WearStatistics erases;        ///< in the whole run
  double measured_erases = 0;        ///< mean of the blocks, in the measured part
  std::uint64_t programmed = 0;      ///< units, in the whole run
};

using WearProgress = std::function<void(std::uint64_t done, std::uint64_t total)>;

/// Regions of writers begin at multiples of this, so that what is moved can be counted for each.
Bytes region_alignment(Bytes capacity, const csd_model::DriveConfig& drive);

/// The mean of windows is within this part of itself with a confidence of 95 %: Student's t, with the larger of the
/// windows' own scatter and that of ten groups of them in a row, because neighbours are alike. Half the difference of
/// the two halves, if that is more: the drive is not in its steady state. Nothing for fewer than kLeastWindows.
inline constexpr std::uint32_t kLeastWindows = 20;
std::optional<double> error_of_windows(const std::vector<WriteSample>& windows);

/// UserError when the drive runs out of blocks.
WearOutcome run_wear(const WearSetup& setup, const WearProgress& progress = {});

}  // namespace csdsim::experiment
