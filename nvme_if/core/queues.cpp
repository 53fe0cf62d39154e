#include "nvme_if/core/queues.h"

#include "base/error.h"

namespace csdsim::nvme {

void SubmissionQueue::refuse_end() { throw InternalError("a command ends that is not outstanding"); }

}  // namespace csdsim::nvme
