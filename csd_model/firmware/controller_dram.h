// The firmware's access to controller DRAM: staging buffers that DMA fills and drains.
#pragma once

#include <tlm_utils/simple_initiator_socket.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <systemc>
#include <utility>
#include <vector>

#include "base/units.h"

namespace csdsim::csd_model {

class ControllerDram;

/// A piece of controller DRAM, given back by its destructor. Must not outlive its ControllerDram.
class DramBuffer {
 public:
  DramBuffer() = default;
  DramBuffer(ControllerDram& dram, std::span<std::byte> bytes) : dram_(&dram), bytes_(bytes) {}
  DramBuffer(DramBuffer&& other) noexcept : dram_(std::exchange(other.dram_, nullptr)), bytes_(other.bytes_) {}
  DramBuffer& operator=(DramBuffer&& other) noexcept {
    std::swap(dram_, other.dram_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~DramBuffer();

  bool empty() const { return dram_ == nullptr; }
  std::span<std::byte> bytes() const { return dram_ == nullptr ? std::span<std::byte>{} : bytes_; }
  template <class T>
  T* as(Bytes offset = {}) const {
    return dram_ == nullptr ? nullptr : reinterpret_cast<T*>(bytes_.data() + offset.value);
  }

 private:
  ControllerDram* dram_ = nullptr;
  std::span<std::byte> bytes_;
};

/// Hands out buffers in the memory behind `socket`, through its direct memory interface (asked for on first use).
/// Access takes no simulated time; DramPort models the bandwidth. The number of commands that the controller holds
/// bounds this memory. The DRAM capacity of a scenario bounds what outlives a command: ftl::DramBudget keeps account
/// of that.
class ControllerDram : public sc_core::sc_module {
 public:
  tlm_utils::simple_initiator_socket<ControllerDram> socket{"socket"};

  explicit ControllerDram(const sc_core::sc_module_name& name) : sc_module(name) {}

  /// Contents are unspecified. Empty for size 0. InternalError when the memory grants no DMI or is full.
  DramBuffer allocate(Bytes size);

 private:
  friend class DramBuffer;
  void release(std::span<std::byte> bytes);
  void map_memory();

  std::span<std::byte> memory_;
  std::size_t next_ = 0;
  std::map<std::size_t, std::vector<std::byte*>> free_;  ///< by size, a power of two: commands come in few sizes
};

}  // namespace csdsim::csd_model
