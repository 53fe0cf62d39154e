// Output of csdsim: results on standard output, messages on standard error.
#pragma once

#include <string_view>

namespace csdsim::app {

/// Writes all of the text. On a terminal, control characters other than tabs and line ends are shown ("\x1b") instead
/// of sent: texts come from files of other people. UserError if it cannot be written: a full disk, a closed pipe.
void print_result(std::string_view text);

/// Writes a message to standard error, control characters shown. A message that cannot be written is lost.
void print_message(std::string_view text);

}  // namespace csdsim::app
