// TLM-2.0 protocol of flash work: a generic payload with a batch of page operations as its extension.
#pragma once

#include <span>
#include <tlm>

#include "contracts/page_op.h"
#include "simulation/payload_pool.h"

namespace csdsim::nfc {

/// Phase from the initiator after the response has come: the buffers of the pages of batch `ticket` are free. Any
/// payload may carry it, with a FlashBatch that names the ticket; its delay is ignored.
DECLARE_EXTENDED_PHASE(RELEASE_BUFFERS);

/// Batch of page operations that completes as one. Base protocol: BEGIN_REQ submits (at now + annotated delay), the
/// target answers with END_REQ in the same call; BEGIN_RESP comes at the completion time of the batch, with no delay.
struct FlashBatch : tlm::tlm_extension<FlashBatch> {
  std::span<const PageOp> ops;  ///< at least one; read during BEGIN_REQ only
  FlashTicket ticket;           ///< set by the target at END_REQ: counts its batches from 0
  std::uint64_t lookups =
      0;                    ///< map entries that the firmware looks up to find these pages; the target does not read it
  std::uint64_t tag = 0;    ///< for the initiator; the target does not read it
  std::uint32_t route = 0;  ///< for the interconnect; the target does not read it
  bool hold = false;        ///< pages read keep their buffers until the target gets the phase RELEASE_BUFFERS
  FlashStages stages{};     ///< set by the target at BEGIN_RESP: stages of the operation that finished last

  tlm::tlm_extension_base* clone() const override { return new FlashBatch(*this); }
  void copy_from(const tlm::tlm_extension_base& other) override { *this = static_cast<const FlashBatch&>(other); }
};

/// Memory manager of flash payloads. Must outlive its payloads.
class FlashPayloadPool : public PayloadPool<FlashBatch> {
 public:
  /// A payload with reference count 1 that carries `ops` and the map lookups that finding them took; `release()` gives
  /// it back.
  tlm::tlm_generic_payload& allocate(std::span<const PageOp> ops, std::uint64_t tag = 0, std::uint64_t lookups = 0) {
    tlm::tlm_generic_payload& payload = take();
    auto& batch = *payload.get_extension<FlashBatch>();
    batch.ops = ops;
    batch.lookups = lookups;
    batch.tag = tag;
    batch.hold = false;
    return payload;
  }
};

}  // namespace csdsim::nfc
