#include "reproduction/expression.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "base/error.h"

namespace csdsim::reproduction {
namespace {

MetricName metric_name(const std::string& name) {
  const std::size_t dot = name.find('.');
  if (dot == std::string::npos || dot + 1 == name.size() || !is_point_name(name.substr(0, dot)))
    throw UserError(fmt::format("'{}' is not a metric of a point: write POINT.METRIC", name));
  return {name.substr(0, dot), name.substr(dot + 1)};
}

}  // namespace

bool is_point_name(std::string_view name) {
  const auto is_small = [](char c) { return c >= 'a' && c <= 'z'; };
  return !name.empty() && is_small(name.front()) && std::all_of(name.begin(), name.end(), [&](char c) {
    return is_small(c) || c == '_' || std::isdigit(static_cast<unsigned char>(c)) != 0;
  });
}

Expression::Expression(std::string text) : formula_(std::move(text)) {
  for (const std::string& name : formula_.names()) names_.push_back(metric_name(name));
}

double Expression::evaluate(const std::function<double(const MetricName&)>& value) const {
  return formula_.evaluate([&](const std::string& name) { return value(metric_name(name)); });
}

}  // namespace csdsim::reproduction
