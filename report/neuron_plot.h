// A chart of what predicted neurons cost in perplexity.
#pragma once

#include <nlohmann/json.hpp>

#include "report/chart_page.h"

namespace csdsim::report {

/// A chart of the rows of `csdsim eval --predictor FILE`: perplexity above that of the dense feed-forward block in
/// percent over the threshold, one line per rank. The y axis is logarithmic; what is below 0.01 % is drawn there.
Chart neuron_chart(const nlohmann::ordered_json& document);

}  // namespace csdsim::report
