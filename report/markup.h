// Text inside XML and HTML.
#pragma once

#include <string>
#include <string_view>

namespace csdsim::report {

/// Replaces the characters that mean something else there, also within an attribute in double quotes.
std::string escaped(std::string_view text);

}  // namespace csdsim::report
