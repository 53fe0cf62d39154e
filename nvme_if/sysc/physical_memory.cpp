#include "nvme_if/sysc/physical_memory.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cstring>

#include "base/error.h"

namespace csdsim::nvme {

PhysicalMemory::PhysicalMemory(const sc_core::sc_module_name& name, Bytes size)
    : sc_module(name), target("target"), size_(size) {
  void* mapping = size.value == 0 ? MAP_FAILED
                                  : mmap(nullptr, size.value, PROT_READ | PROT_WRITE,
                                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED)
    throw UserError(fmt::format("memory '{}': cannot reserve {} bytes of address space", this->name(), size.value));
  data_ = static_cast<std::byte*>(mapping);
  target.register_b_transport(this, &PhysicalMemory::b_transport);
  target.register_transport_dbg(this, &PhysicalMemory::transport_dbg);
  target.register_get_direct_mem_ptr(this, &PhysicalMemory::get_direct_mem_ptr);
}

PhysicalMemory::~PhysicalMemory() { munmap(data_, size_.value); }

tlm::tlm_response_status PhysicalMemory::access(tlm::tlm_generic_payload& trans) {
  const std::uint64_t address = trans.get_address();
  const std::uint64_t length = trans.get_data_length();
  if (length > size_.value || address > size_.value - length) return tlm::TLM_ADDRESS_ERROR_RESPONSE;
  if (trans.get_byte_enable_ptr() != nullptr) return tlm::TLM_BYTE_ENABLE_ERROR_RESPONSE;
  if (trans.get_streaming_width() < length) return tlm::TLM_BURST_ERROR_RESPONSE;
  if (trans.is_read())
    std::memcpy(trans.get_data_ptr(), data_ + address, length);
  else if (trans.is_write())
    std::memcpy(data_ + address, trans.get_data_ptr(), length);
  return tlm::TLM_OK_RESPONSE;
}

void PhysicalMemory::b_transport(tlm::tlm_generic_payload& trans, sc_core::sc_time& /*delay*/) {
  const tlm::tlm_response_status status = access(trans);
  trans.set_response_status(status);
  trans.set_dmi_allowed(status == tlm::TLM_OK_RESPONSE);
}

unsigned PhysicalMemory::transport_dbg(tlm::tlm_generic_payload& trans) {
  return access(trans) == tlm::TLM_OK_RESPONSE ? trans.get_data_length() : 0;
}

bool PhysicalMemory::get_direct_mem_ptr(tlm::tlm_generic_payload& trans, tlm::tlm_dmi& dmi) {
  if (trans.get_address() >= size_.value) return false;
  dmi.set_dmi_ptr(reinterpret_cast<unsigned char*>(data_));
  dmi.set_start_address(0);
  dmi.set_end_address(size_.value - 1);
  dmi.allow_read_write();
  return true;
}

}  // namespace csdsim::nvme
