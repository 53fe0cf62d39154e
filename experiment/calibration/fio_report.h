// The points that fio has measured, from its JSON output.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/units.h"
#include "experiment/block_io/block_workload.h"

namespace csdsim::experiment {

/// What fio measured of the reads, or of the writes, of a job.
struct FioFigures {
  double iops = 0;
  double latency_ns = 0;  ///< mean, from submission to completion
};

/// One job of fio, with its clones.
struct FioPoint {
  std::string name;
  Pattern pattern = Pattern::random_read;
  Bytes request_size;
  std::uint32_t queue_depth = 1;  ///< queue depth of all clones together
  std::uint32_t clones = 1;
  double read_fraction = 1;  ///< share of reads that a mixed pattern was asked for
  std::optional<FioFigures> read = {}, write = {};
};

struct FioReport {
  std::vector<FioPoint> points;
  std::vector<std::string> notes;  ///< "FILE: note: ...", for the user
};

/// Reads `fio --output-format=json`. Jobs run one after another (fio: stonewall); clones (numjobs) run together. Throws
/// UserError that names the job for what cannot be simulated: jobs that run together, mixed block sizes, rate limits.
FioReport read_fio(const std::filesystem::path& file);

}  // namespace csdsim::experiment
