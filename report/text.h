// Results as people read them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace csdsim::report {

enum class Format { table, json, csv };

/// One result in the requested format: a table of metrics with what they mean, the JSON document, or CSV.
std::string result_text(const nlohmann::ordered_json& document, const std::string& meaning, Format format);

/// Objects with equal keys as a table with the keys as its header.
std::string rows_text(const nlohmann::ordered_json& rows);

/// A number with at most four significant digits and a unit prefix where it helps: "8.71", "12.3 M".
std::string short_number(double value);

/// A progress line on stderr: redrawn in place on a terminal, otherwise one line every ten seconds.
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
};

}  // namespace csdsim::report
