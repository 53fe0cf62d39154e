#include "base/param.h"

#include <fmt/format.h>

#include <cstdlib>
#include <limits>

#include "base/error.h"
#include "base/text.h"

namespace csdsim {

namespace {
constexpr std::string_view kSourceNames[] = {"paper", "datasheet", "measured", "calibrated", "assumed"};
}

std::string_view to_string(Source source) { return kSourceNames[static_cast<std::size_t>(source)]; }

std::optional<Source> source_from(std::string_view name) {
  for (std::size_t i = 0; i < std::size(kSourceNames); ++i) {
    if (kSourceNames[i] == name) return static_cast<Source>(i);
  }
  return std::nullopt;
}

namespace detail {

std::size_t find_name(std::string_view text, const std::vector<std::string>& names) {
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i] == text) return i;
  }
  throw UserError(
      fmt::format("unknown value '{}'{}; exists: {}", printable(text), did_you_mean(text, names), join(names)));
}

bool parse_bool(std::string_view text) {
  if (text == "true") return true;
  if (text == "false") return false;
  throw UserError(fmt::format("'{}' is neither true nor false", printable(text)));
}

std::string parse_text(std::string_view text) {
  if (text.empty()) throw UserError("is an empty text");
  return std::string(text);
}

std::uint32_t narrow_count(std::uint64_t value) {
  if (value > std::numeric_limits<std::uint32_t>::max()) {
    throw UserError(fmt::format("'{}' is too large: at most {}", value, std::numeric_limits<std::uint32_t>::max()));
  }
  return static_cast<std::uint32_t>(value);
}

void throw_out_of_range(std::string_view text, const std::string& min, const std::string& max) {
  std::string hint;
  // Percent without its sign.
  if (const double given = std::strtod(std::string(text).c_str(), nullptr), most = std::strtod(max.c_str(), nullptr);
      text.find_first_not_of("0123456789.") == std::string_view::npos && most <= 1 && given > 1 && given <= 100)
    hint = fmt::format(", a share (did you mean {} %?)", text);
  throw UserError(fmt::format("{} is out of range: {} to {}{}", printable(text), min, max, hint));
}

std::string length_text(Range<std::size_t> length) {
  return length.min == length.max ? fmt::format("{} items", length.min)
                                  : fmt::format("{} to {} items", length.min, length.max);
}

std::string NamesParam::type() const { return fmt::format("list of one of {}", join(allowed_)); }

std::string NamesParam::range() const { return length_text(length_); }

void NamesParam::set(const std::vector<std::string>& texts) {
  for (const std::string& text : texts) find_name(text, allowed_);
  if (texts.size() < length_.min || texts.size() > length_.max) throw_list_length(texts.size(), length_);
  value_ = texts;
}

void throw_list_length(std::size_t length, Range<std::size_t> allowed) {
  const std::string expected =
      allowed.min == allowed.max ? fmt::format("{}", allowed.min) : fmt::format("{} to {}", allowed.min, allowed.max);
  throw UserError(fmt::format("has {} items, expected {}", length, expected));
}

void expect_single(const std::vector<std::string>& texts) {
  if (texts.size() != 1) throw InternalError("a scalar parameter was set to a list");
}

}  // namespace detail

void ParamVisitor::names(std::string_view name, std::vector<std::string>& value, std::vector<std::string> allowed,
                         Range<std::size_t> length, std::string_view doc, Cite cite) {
  detail::NamesParam p(name, value, std::move(allowed), length, doc, cite);
  on_param(p);
}

}  // namespace csdsim
