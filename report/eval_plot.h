// Charts of perplexity and recall over the kept share.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "report/chart_page.h"

namespace csdsim::report {

/// Charts of the rows of `csdsim eval`: one line per method, dense attention dashed. The x axes are the share of tokens
/// kept and the share of elements read; these and perplexity are logarithmic. Recall, and the share of tokens that low
/// precision chooses as fp16 scores do, have charts where rows have them.
std::vector<Chart> eval_charts(const nlohmann::ordered_json& document);

}  // namespace csdsim::report
