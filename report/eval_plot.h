// A picture of perplexity and recall over the kept share.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace csdsim::report {

/// A standalone SVG of the rows of `csdsim eval`: one line per method, both axes of shares logarithmic, dense attention
/// dashed. The x axis is the share of tokens kept and, in a second row of panels, the share of elements read.
std::string eval_svg(const nlohmann::ordered_json& document);

}  // namespace csdsim::report
