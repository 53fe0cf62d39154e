// One self-contained HTML file about the points of a sweep, or about one run.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace csdsim::report {

struct PagePoint {
  std::vector<std::pair<std::string, nlohmann::ordered_json>> axes;  ///< path and value; the same paths in all points
  nlohmann::ordered_json result;                                     ///< result.json; null if the point has failed
  std::string error;                                                 ///< why it has
};

struct Page {
  std::string name;
  std::string question;           ///< what the scenarios ask; may be empty
  std::vector<PagePoint> points;  ///< at least one, and at least one without an error
  /// Where each value of the configuration is from, by path; empty: not known.
  nlohmann::ordered_json origins = nlohmann::ordered_json::object();
  /// What metrics mean, a sentence each, by name.
  std::map<std::string, std::string> meanings = {};
};

/// A value of an axis as a number, such as 1.4e9 for "1.4 GB/s"; nothing if it is none.
using NumberOf = std::function<std::optional<double>(const std::string&)>;

/// The metric that a result is about.
std::string headline(const nlohmann::ordered_json& metrics);

/// The page: charts with selectors, tables, the effective configuration. It needs no other file and no network. The
/// same points make the same bytes.
std::string html_page(const Page& page, const NumberOf& number_of);

}  // namespace csdsim::report
