// Plots what predicted neurons cost in perplexity.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace csdsim::report {

/// Returns a standalone SVG of the rows of `csdsim eval --predictor FILE`: perplexity above that of the dense
/// feed-forward block in percent over the threshold, one line per rank. Both axes are logarithmic; what is below
/// 0.01 % is drawn there.
std::string neuron_svg(const nlohmann::ordered_json& document);

}  // namespace csdsim::report
