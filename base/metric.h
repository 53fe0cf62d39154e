// A metric of result.json, stated once by who works it out.
#pragma once

#include <cctype>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/counter.h"

namespace csdsim {

/// Name, unit and meaning of a metric.
struct MetricInfo {
  std::string name;
  std::string unit;     ///< "1" for shares and counts without a unit of their own
  std::string meaning;  ///< empty: that of the metric before it says this one too (the second flow, the third); pages
                        ///< leave it out
  /// A formula (base/formula.h) over other metrics and paths of the document; empty where the run counts or measures.
  /// For the usual case: sequences of equal lengths that start together and are simulated whole.
  std::string formula = {};
  bool operator==(const MetricInfo&) const = default;
};

/// The metric of a counter. `when`: the runs that have it, before its sentence.
inline MetricInfo metric_of(const CounterInfo& counter, std::string name, std::string_view when) {
  std::string sentence(counter.sentence);
  sentence.front() = static_cast<char>(std::tolower(static_cast<unsigned char>(sentence.front())));
  return {std::move(name), std::string(counter.unit), std::string(when) + ": " + sentence};
}

/// A metric and how it is worked out after a run from what the run has left.
template <class Source>
struct Metric {
  MetricInfo info;
  std::function<std::optional<double>(const Source&)> value = {};  ///< nothing: the run does not have it
  bool whole = false;                                              ///< a whole number
};

template <class Source>
std::vector<MetricInfo> infos_of(const std::vector<Metric<Source>>& metrics) {
  std::vector<MetricInfo> infos;
  for (const Metric<Source>& metric : metrics) infos.push_back(metric.info);
  return infos;
}

inline std::vector<MetricInfo> joined(std::vector<MetricInfo> infos, const std::vector<MetricInfo>& more) {
  infos.insert(infos.end(), more.begin(), more.end());
  return infos;
}

}  // namespace csdsim
