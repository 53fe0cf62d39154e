// Formats results for people.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace csdsim::report {

enum class Format { table, json, csv, json_lines };

/// Formats one result: a table of metrics followed by `meaning`, the JSON document, or CSV.
std::string result_text(const nlohmann::ordered_json& document, const std::string& meaning, Format format);

/// Formats objects with equal keys as a table; the keys are its header.
std::string rows_text(const nlohmann::ordered_json& rows);

/// Formats a number with about four significant digits (six decimals below 1) and, from 99,999.5 on, with a unit
/// prefix: "8.710", "12.30 M".
std::string short_number(double value);

/// A metric of this name, with four significant digits and the unit that the name ends in: 3350000 of latency_p99_ns is
/// "3.350 ms", 132.4e6 of bandwidth_bytes_per_s "132.4 MB/s". Metrics without such a unit as short_number().
std::string metric_text(std::string_view name, double value);

/// "channels=4: 12 of 64 steps (19 %)"
std::string progress_text(std::string_view label, std::string_view what, std::uint64_t done, std::uint64_t total,
                          double elapsed_s = 0);

/// Shows progress on stderr: one redrawn line on a terminal, otherwise one line every ten seconds.
class Progress {
 public:
  Progress(std::string label, bool quiet);
  ~Progress();
  void update(std::string_view what, std::uint64_t done, std::uint64_t total);

 private:
  std::string label_;
  bool quiet_;
  bool terminal_;
  bool drawn_ = false;
  double last_ = 0;
  std::string what_;         ///< what is counted now,
  std::uint64_t total_ = 0;  ///< how many there are,
  double began_ = 0;         ///< since when
};

/// "[3/12] random reads (about 40 s left)": what is done next, after `done` of `total` steps in `elapsed_s` seconds.
/// The time left assumes that each other step takes as long as those before did on average; the first step has none.
std::string step_text(std::string_view what, std::size_t done, std::size_t total, double elapsed_s);

/// Prints each of a few long steps as a line of step_text() on stderr.
class Steps {
 public:
  Steps();
  void operator()(std::string_view what, std::size_t done, std::size_t total) const;

 private:
  double start_;
};

}  // namespace csdsim::report
