// A part of a definition: some rows and what they need.
#pragma once

#include <string>
#include <vector>

#include "reproduction/definition.h"

namespace csdsim::reproduction {

/// Returns the definition with these rows only, in the order of the definition: with the points that they need, all
/// constants (their points are planned where no row needs them), the curves that need no other points, and the
/// contradictions that concern one of the rows. Throws config::ConfigError that names every id that is no row.
Definition only_rows(Definition definition, const std::vector<std::string>& ids);

/// Returns the definition without columns, and without the points that only they need.
Definition one_column(Definition definition);

}  // namespace csdsim::reproduction
