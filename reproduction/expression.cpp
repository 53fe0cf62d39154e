#include "reproduction/expression.h"

#include <fmt/format.h>
#include <muParser.h>

#include <algorithm>
#include <cctype>
#include <map>

#include "base/error.h"

namespace csdsim::reproduction {
namespace {

constexpr const char* kNameChars = "0123456789_.abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

mu::Parser parser_of(const std::string& text) {
  mu::Parser parser;
  parser.DefineNameChars(kNameChars);
  double bytes = 1;
  double power_of_ten = 1;
  for (const char* const prefix : {"k", "M", "G", "T"}) {
    bytes *= 1024;
    power_of_ten *= 1000;
    const std::string letter = prefix == std::string("k") ? "K" : prefix;
    parser.DefineConst(letter + "iB", bytes);
    parser.DefineConst(std::string(prefix) + "B", power_of_ten);
  }
  parser.SetExpr(text);
  return parser;
}

[[noreturn]] void refuse(const mu::ParserError& error, const std::string& text) {
  throw UserError(fmt::format("'{}' is not a formula: {}", text, error.GetMsg()));
}

/// Whether the text holds the assignment of muParser, which would change a metric: '=' outside ==, !=, <= and >=.
bool assigns(const std::string& text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '=') continue;
    if (i + 1 < text.size() && text[i + 1] == '=')
      ++i;
    else if (i == 0 || std::string_view("!<>").find(text[i - 1]) == std::string_view::npos)
      return true;
  }
  return false;
}

}  // namespace

bool is_point_name(std::string_view name) {
  const auto is_small = [](char c) { return c >= 'a' && c <= 'z'; };
  return !name.empty() && is_small(name.front()) && std::all_of(name.begin(), name.end(), [&](char c) {
    return is_small(c) || c == '_' || std::isdigit(static_cast<unsigned char>(c)) != 0;
  });
}

Expression::Expression(std::string text) : text_(std::move(text)) {
  if (assigns(text_)) throw UserError(fmt::format("'{}' is not a formula: write == to compare", text_));
  try {
    mu::Parser parser = parser_of(text_);
    for (const auto& [name, unused] : parser.GetUsedVar()) {
      const std::size_t dot = name.find('.');
      if (dot == std::string::npos || dot + 1 == name.size() || !is_point_name(name.substr(0, dot)))
        throw UserError(fmt::format("'{}' is not a metric of a point: write POINT.METRIC", name));
      names_.push_back({name.substr(0, dot), name.substr(dot + 1)});
    }
    // Finds what is wrong besides the names, such as a missing parenthesis or two values in place of one.
    evaluate([](const MetricName&) { return 1.0; });
  } catch (const mu::ParserError& error) {
    refuse(error, text_);
  }
}

double Expression::evaluate(const std::function<double(const MetricName&)>& value) const {
  std::map<std::string, double> values;
  for (const MetricName& name : names_) values[name.text()] = value(name);
  try {
    mu::Parser parser = parser_of(text_);
    for (auto& [name, number] : values) parser.DefineVar(name, &number);
    const double result = parser.Eval();
    if (parser.GetNumResults() != 1) throw UserError(fmt::format("'{}' has several results", text_));
    return result;
  } catch (const mu::ParserError& error) {
    refuse(error, text_);
  }
}

}  // namespace csdsim::reproduction
