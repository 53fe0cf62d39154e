// Plots perplexity and recall over the kept share.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace csdsim::report {

/// Returns a standalone SVG of the rows of `csdsim eval`: one line per method, dense attention dashed. The x axis is
/// the share of tokens kept and, in a second row of panels, the share of elements read. The axes of x and of perplexity
/// are logarithmic. A column of panels shows recall, and one the share of tokens that low precision chooses as fp16
/// scores do, where rows have them.
std::string eval_svg(const nlohmann::ordered_json& document);

}  // namespace csdsim::report
