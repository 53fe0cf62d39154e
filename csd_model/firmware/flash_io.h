// The controller's side of the flash socket: batches out, callbacks back.
#pragma once

#include <tlm_utils/simple_initiator_socket.h>

#include <cstdint>
#include <span>
#include <systemc>
#include <vector>

#include "base/callback.h"
#include "base/page_op.h"
#include "nfc/sysc/flash_payload.h"

namespace csd_model {

/// Submits batches of page operations and calls back when a batch is complete. Callbacks run in an SC_METHOD: they may
/// submit more, and must not wait.
class FlashIo : public sc_core::sc_module {
 public:
  using Done = csdsim::Callback<void()>;

  tlm_utils::simple_initiator_socket<FlashIo> socket{"socket"};

  explicit FlashIo(const sc_core::sc_module_name& name);

  /// At least one operation. Throws InternalError when the flash refuses the batch.
  void submit(std::span<const csdsim::PageOp> ops, Done done);

  std::uint64_t batches_in_flight() const { return in_flight_; }

 private:
  tlm::tlm_sync_enum nb_transport_bw(tlm::tlm_generic_payload& payload, tlm::tlm_phase& phase, sc_core::sc_time& delay);

  csdsim::nfc::FlashPayloadPool pool_;
  std::vector<Done> callbacks_;  ///< by tag
  std::vector<std::uint32_t> free_tags_;
  std::uint64_t in_flight_ = 0;
};

}  // namespace csd_model
