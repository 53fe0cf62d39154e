// Results on standard output.
#pragma once

#include <cstdio>
#include <string_view>

#include "base/error.h"

namespace csdsim::app {

/// Writes all of the text. UserError if it cannot be written: a full disk, a closed pipe.
inline void print_result(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    throw UserError("standard output: cannot be written");
}

}  // namespace csdsim::app
