#include "base/located_value.h"

#include <fmt/format.h>

#include <charconv>

#include "base/error.h"
#include "base/text.h"

namespace csdsim {
namespace {

template <class Number>
bool parse(std::string_view text, Number& number) {
  const char* const end = text.data() + text.size();
  const auto [stop, code] = std::from_chars(text.data(), end, number);
  return !text.empty() && code == std::errc() && stop == end;
}

}  // namespace

void LocatedValue::fail(const std::string& message) const {
  throw UserError(fmt::format("{}: error: {}{}", source->position(offset), message, source->remark()));
}

std::uint64_t whole_number(const LocatedValue& value, std::string_view what, std::uint64_t least, std::uint64_t most) {
  std::uint64_t number = 0;
  if (!parse(value.text, number) || number < least || number > most)
    value.fail(fmt::format("{}: '{}' is not a whole number from {} to {}", what, printable(value.text), least, most));
  return number;
}

double real_number(const LocatedValue& value, std::string_view what, double least, double most) {
  double number = 0;
  if (!parse(value.text, number) || !(number >= least && number <= most))
    value.fail(fmt::format("{}: '{}' is not a number from {:.0f} to {:.0f}", what, printable(value.text), least, most));
  return number;
}

}  // namespace csdsim
