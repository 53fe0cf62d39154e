// File ranges that reads of chosen rows of K and V touch where no data are carried.
#pragma once

#include <optional>

#include "attention_engine/core/selection.h"
#include "host_runtime/core/plan/operation.h"

namespace csdsim::host {

/// The work of a read whose rows `selection` chooses, as it does for pages of a drive: token groups of a logical block
/// of K, and single components. The newest tokens that are in the file are read if they are among the l local ones. Of
/// a touched group the first rows count as chosen. Nothing for any other operation.
std::optional<Work> select_rows(const Operation& op, engine::SelectionSource& selection, Bytes block);

}  // namespace csdsim::host
