#include "nvme_if/core/data_pointer_walker.h"

#include <array>
#include <bit>

namespace csdsim::nvme {

void DataPointerWalker::start_sgl(const SubmissionEntry& command, Bytes length) {
  if (sgls_ == nullptr) sgls_ = std::make_unique<SglWalker>();
  sgls_->start(std::bit_cast<SglDescriptor>(std::array{command.prp1, command.prp2}), length);
}

}  // namespace csdsim::nvme
