// Rows of K and V in files that are read where no data are carried.
#pragma once

#include "attention_engine/core/selection.h"
#include "host_runtime/core/plan/run_feature.h"

namespace csdsim::host {

/// The rows that `selection`, which must outlive the result, chooses as it does for pages of a drive: token groups of a
/// logical block of K, and single components. The newest tokens that are in the file are read if they are among the l
/// local ones. Of a touched group the first rows count as chosen.
RowSource selected_rows(engine::SelectionSource& selection, Bytes block);

}  // namespace csdsim::host
