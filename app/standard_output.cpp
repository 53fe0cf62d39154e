#include "app/standard_output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "base/error.h"

namespace csdsim::app {
namespace {

/// The text with its control characters but tabs and line breaks as "\x1b": a terminal would obey them.
std::string without_controls(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    // U+0080 to U+009F are the control characters of two bytes.
    const bool two = byte == 0xC2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) - 0x80U < 0x20U;
    if (two)
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[++i]));
    else if ((byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7F)
      out += fmt::format("\\x{:02x}", byte);
    else
      out += text[i];
  }
  return out;
}

}  // namespace

void print_result(std::string_view text) {
  const std::string shown = isatty(STDOUT_FILENO) == 1 ? without_controls(text) : std::string(text);
  if (std::fwrite(shown.data(), 1, shown.size(), stdout) != shown.size() || std::fflush(stdout) != 0)
    throw UserError("standard output: cannot be written");
}

void print_message(std::string_view text) {
  const std::string shown = without_controls(text);
  std::fwrite(shown.data(), 1, shown.size(), stderr);
}

}  // namespace csdsim::app
