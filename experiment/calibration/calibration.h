// Finds the parameters of a drive with which the simulator gives the points that fio has measured.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "experiment/calibration/fio_report.h"
#include "experiment/calibration/fit.h"
#include "scenario/load.h"

namespace csdsim::experiment {

/// A parameter of platform.device, and how its values are written.
struct DriveParameter {
  std::string path;      ///< "platform.device.flash.read_latency"
  FitParameter fit;      ///< in base units: seconds, bytes per second, counts
  std::string low_text;  ///< a value as text, which tells the unit
  /// A value with four digits.
  std::string text(double value) const;
};

/// What to find: the usual parameters that the points can show, without those of `fix`, and those of `fit`:
/// "flash.read_latency=20 us..80 us", "flash.channels=4,8". Names are relative to platform.device. UserError for
/// unknown ones and for values that are out of range.
std::vector<DriveParameter> parameters_to_find(const scenario::Scenario& scenario, const std::vector<FioPoint>& points,
                                               const std::vector<std::string>& fit,
                                               const std::vector<std::string>& fix);

/// Calls `run` for 0 to count - 1, maybe several at a time, and returns what it returns.
using RunAll = std::function<std::vector<std::vector<double>>(
    std::size_t count, const std::function<std::vector<double>(std::size_t)>& run)>;

/// A simulated drive at the measured points. Figures are rates and mean latencies of the reads, then of the writes, of
/// each point.
class MeasuredDrive {
 public:
  /// `scenario` has the workload block_io; how full the drive is and the queues that are used are from there.
  /// `requests`: how many requests of one page are simulated per point.
  MeasuredDrive(const scenario::Scenario& scenario, std::vector<FioPoint> points,
                std::vector<DriveParameter> parameters, std::uint64_t requests);

  std::vector<double> measured() const;
  std::vector<double> simulated(const std::vector<double>& values, const RunAll& run_all) const;

  const std::vector<FioPoint>& points() const { return points_; }
  const std::vector<DriveParameter>& parameters() const { return parameters_; }

  /// The scenario with these values and the points as its sweep.
  nlohmann::ordered_json scenario_with(const std::vector<double>& values) const;

 private:
  nlohmann::ordered_json base_;
  std::vector<FioPoint> points_;
  std::vector<DriveParameter> parameters_;
};

/// Text of a preset file (kind: device) with what the scenario states about its drive, and the found values.
std::string preset_of(const MeasuredDrive& drive, const Fit& fit, const scenario::Resolved& start,
                      const std::string& name, const std::string& fio_file);

/// Text of a scenario that runs the points on the preset `name` of the file `preset_file`.
std::string scenario_of(const MeasuredDrive& drive, const Fit& fit, const std::string& name,
                        const std::string& preset_file);

}  // namespace csdsim::experiment
