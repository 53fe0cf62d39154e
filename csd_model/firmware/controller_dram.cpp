#include "csd_model/firmware/controller_dram.h"

#include <algorithm>
#include <bit>

#include "base/error.h"

namespace csdsim::csd_model {

namespace {

constexpr std::size_t kSmallest = 4096;
std::size_t rounded(std::size_t size) { return std::bit_ceil(std::max(size, kSmallest)); }

}  // namespace

DramBuffer::~DramBuffer() {
  if (dram_ != nullptr) dram_->release(bytes_);
}

void ControllerDram::map_memory() {
  tlm::tlm_generic_payload payload;
  payload.set_command(tlm::TLM_WRITE_COMMAND);
  payload.set_address(0);
  tlm::tlm_dmi dmi;
  if (!socket->get_direct_mem_ptr(payload, dmi) || !dmi.is_read_write_allowed())
    throw InternalError("controller DRAM grants no direct access");
  memory_ = {reinterpret_cast<std::byte*>(dmi.get_dmi_ptr()), dmi.get_end_address() - dmi.get_start_address() + 1};
}

DramBuffer ControllerDram::allocate(Bytes size) {
  if (size.value == 0) return {};
  if (memory_.empty()) map_memory();
  const std::size_t taken = rounded(size.value);
  std::vector<std::byte*>& free = free_[taken];
  std::byte* at = nullptr;
  if (!free.empty()) {
    at = free.back();
    free.pop_back();
  } else {
    if (memory_.size() - next_ < taken) throw InternalError("controller DRAM: no room for another staging buffer");
    at = memory_.data() + next_;
    next_ += taken;
  }
  return {*this, {at, size.value}};
}

void ControllerDram::release(std::span<std::byte> bytes) { free_[rounded(bytes.size())].push_back(bytes.data()); }

}  // namespace csdsim::csd_model
