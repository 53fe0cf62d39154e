// Feed-forward networks of drives, computed on the host.
#pragma once

#include "host_runtime/core/carried/operation_data.h"

namespace csdsim::host {

/// The function of a drive that takes commands of at most `mdts` bytes: a list that does not fit one is cut, and the
/// results of the parts are added.
NeuronSums sums_on_host(Bytes mdts);

}  // namespace csdsim::host
