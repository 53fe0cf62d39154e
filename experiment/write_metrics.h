// Write amplification and its parts as metrics.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <string>
#include <vector>

#include "base/metric.h"
#include "ftl/core/write_work.h"

namespace csdsim::experiment {

/// `amplification` and, where the host has written, its parts: write_amplification_host and so on. `work`: null where a
/// run has none.
template <class Source>
std::vector<Metric<Source>> write_amplification_metrics(const MetricInfo& amplification,
                                                        std::function<const ftl::WriteWork*(const Source&)> work) {
  std::vector<Metric<Source>> all{{amplification, [work](const Source& source) -> std::optional<double> {
                                     const ftl::WriteWork* const of = work(source);
                                     return of != nullptr ? std::optional(of->amplification()) : std::nullopt;
                                   }}};
  for (const ftl::WriteWork::Part& part : ftl::WriteWork::parts())
    all.push_back({{fmt::format("{}_{}", amplification.name, part.name), "1",
                    fmt::format("A part of {}, which is their sum: {}. Absent without writes.", amplification.name,
                                part.meaning)},
                   [work, part](const Source& source) -> std::optional<double> {
                     const ftl::WriteWork* const of = work(source);
                     return of != nullptr && of->written > 0 ? std::optional(of->share_of(part)) : std::nullopt;
                   }});
  return all;
}

}  // namespace csdsim::experiment
