// Files of report/page and of Chart.js, which are part of the binary.
#pragma once

#include <string_view>

namespace csdsim::report {

/// The text of a file. InternalError for an unknown name.
std::string_view page_file(std::string_view name);

}  // namespace csdsim::report
