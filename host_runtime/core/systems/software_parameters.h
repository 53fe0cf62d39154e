// The parameters of systems whose framework costs time and memory beside its model.
#pragma once

#include "base/param.h"
#include "host_runtime/core/plan/software.h"

namespace csdsim::host {

/// `software_per_step` and `prompt_logits`.
void describe_software(ParamVisitor& v, Software& software);

/// UserError if one of them is set, for a run on the streams of a GPU.
void refuse_software(const Software& software);

}  // namespace csdsim::host
