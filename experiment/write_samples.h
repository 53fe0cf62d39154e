// Write amplification and its parts over the course of a run.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "ftl/core/write_work.h"

namespace csdsim::experiment {

/// A piece of the writes of a run.
struct WriteSample {
  double at = 0;        ///< its end, in a unit that the run chooses: seconds, or capacities written
  ftl::WriteWork work;  ///< work of the piece
};

/// At most `most` samples, each of about as many pieces.
std::vector<WriteSample> merged(const std::vector<WriteSample>& samples, std::size_t most);

/// The number of the first of `samples` pieces that are the last quarter.
inline std::size_t late_from(std::size_t samples) { return samples * 3 / 4; }

/// Sum over the last quarter of the pieces.
ftl::WriteWork late_work(const std::vector<WriteSample>& samples);

/// A row {`at`, write_amplification, host, collection, ...} per sample; the parts where the host has written.
nlohmann::ordered_json sample_rows(const std::vector<WriteSample>& samples, std::string_view at);

/// The same as comma-separated values.
std::string samples_csv(const std::vector<WriteSample>& samples, std::string_view at);

/// The same as curves for the report, each with a value at each of `times` (those of the samples, or finer): that of
/// the piece that ends there or next. Parts that are 0 throughout have no curve.
nlohmann::ordered_json sample_curves(const std::vector<WriteSample>& samples, const std::vector<double>& times);

}  // namespace csdsim::experiment
