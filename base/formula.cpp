#include "base/formula.h"

#include <fmt/format.h>
#include <muParser.h>

#include <map>
#include <string_view>

#include "base/error.h"

namespace csdsim {
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

/// True if the text holds the assignment of muParser, which would change a value: '=' outside ==, !=, <= and >=.
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

Formula::Formula(std::string text) : text_(std::move(text)) {
  if (assigns(text_)) throw UserError(fmt::format("'{}' is not a formula: write == to compare", text_));
  try {
    mu::Parser parser = parser_of(text_);
    for (const auto& [name, unused] : parser.GetUsedVar()) names_.push_back(name);
  } catch (const mu::ParserError& error) {
    refuse(error, text_);
  }
  // Finds what is wrong besides the names, such as a missing parenthesis or two values in place of one.
  evaluate([](const std::string&) { return 1.0; });
}

double Formula::evaluate(const std::function<double(const std::string&)>& value) const {
  std::map<std::string, double> values;
  for (const std::string& name : names_) values[name] = value(name);
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

}  // namespace csdsim
