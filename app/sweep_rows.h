// Lines that a sweep prints about its rows.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "app/commands.h"
#include "launch/sweep_store.h"
#include "report/search.h"

namespace csdsim::app {

/// A point of a sweep and why it has no result.
struct PointFailure {
  std::string name;
  std::string reason;  ///< a line for each mistake
};

/// The first few points, a line each with the first line of the reason, and how many more there are.
std::string failures_text(const std::vector<PointFailure>& failures);

/// What print_rows() needs of the results.
launch::ResultParts printed_parts(const report::Search& search, Format format);

/// Prints the rows of a sweep of `points` points and, if something is searched for, the best points, which it also
/// writes to `directory`.
void print_rows(const std::vector<launch::SweepRow>& rows, std::size_t points, const report::Search& search,
                const std::filesystem::path& directory, Format format);

}  // namespace csdsim::app
