// The life of a drive under writers of objects: implements `csdsim certify`.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "report/html_page.h"
#include "scenario/scenario.h"

namespace csdsim::experiment {

struct CertificateOptions {
  /// Bytes of new objects per day; unset: one capacity of the drive.
  std::optional<Bytes> writes_per_day = {};
  double rating = 1;        ///< drive writes per day that the drive is sold for
  std::uint32_t seeds = 3;  ///< runs of the scenario as it is; seeds follow that of the scenario
  bool changes = true;      ///< rerun with one change each
  std::function<void(std::string_view what, std::size_t done, std::size_t total)> progress = {};
  /// The result document of the scenario, of kind serving, which is not run again then; null: it is run.
  nlohmann::ordered_json finished = nullptr;
};

struct Certificate {
  nlohmann::ordered_json json;
  std::vector<report::PagePoint> points;  ///< the points of its page, each of a run
};

/// A scenario without a file: one writer of objects of this size, overwritten uniformly, in 89 % of the drive of
/// scenarios/endurance/nine_writers.yaml.
std::string plain_certificate_scenario(Bytes object);

/// Runs the scenario, whose workload is `objects` with simulation.data: wear, or `serving` with simulated drives: their
/// writes per day then wear a drive without time (experiment/endurance/tier_writers.h). The JSON is
///   {name, capacity_bytes, flash_bytes, rated_cycles, rated, bytes_per_day, write_amplification, samples, erases,
///    drive_writes_per_day, drive_lifetime_years, served (of kind serving), changes, origin}.
/// UserError for another workload.
Certificate certificate(const scenario::Scenario& scenario, const CertificateOptions& options);

/// The same as a page: curves over what was written, each change beside the drive as it is.
report::Page certificate_page(const Certificate& certificate);

/// Tables for people.
std::string certificate_text(const nlohmann::ordered_json& certificate);

}  // namespace csdsim::experiment
