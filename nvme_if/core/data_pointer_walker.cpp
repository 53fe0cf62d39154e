#include "nvme_if/core/data_pointer_walker.h"

#include <array>
#include <bit>

namespace csdsim::nvme {

void DataPointerWalker::start(const SubmissionEntry& command, Bytes length, Bytes page_size) {
  sgl_ = (command.flags & kPsdtMask) == kPsdtSgl;
  if (!sgl_) return prps_.start(command.prp1, command.prp2, length, page_size);
  if (sgls_ == nullptr) sgls_ = std::make_unique<SglWalker>();
  sgls_->start(std::bit_cast<SglDescriptor>(std::array{command.prp1, command.prp2}), length);
}

}  // namespace csdsim::nvme
