// Joins the initiators of a drive (firmware, attention engine) on the one socket of its flash.
#pragma once

#include <tlm_utils/multi_passthrough_target_socket.h>
#include <tlm_utils/simple_initiator_socket.h>

#include <span>
#include <systemc>
#include <tlm>
#include <vector>

#include "attention_engine/sysc/page_port.h"
#include "base/slot_pool.h"
#include "csd_model/drive_activity.h"
#include "csd_model/firmware/map_lookups.h"
#include "nfc/sysc/flash_target.h"
#include "simulation/event_loop.h"

namespace csdsim::csd_model {

/// Passes batches on in the order of arrival and returns responses to their initiators. Bind the firmware first and the
/// engine second. For batches of the engine it does three things more: it reports them to `activity`; it keeps the
/// event loop from running ahead, because a user's engine is a module of the kernel; and it charges FlashBatch::lookups
/// to the firmware before it passes a batch on. (The firmware's services charge their own lookups.) The drive's own
/// engine comes through the PagePort, where each page of a batch is read as soon as it is found; batches over the
/// socket, which complete as one, wait for all their lookups.
class FlashFrontend : public sc_core::sc_module, public engine::PagePort, private nfc::FlashClient, private WorkClient {
 public:
  tlm_utils::multi_passthrough_target_socket<FlashFrontend> upstream{"upstream"};
  tlm_utils::simple_initiator_socket<FlashFrontend> flash{"flash"};

  FlashFrontend(const sc_core::sc_module_name& name, DriveActivity& activity, MapLookups& lookups);

  /// Before the first batch of the PagePort: `flash` is the module behind the socket.
  void go_directly_to(nfc::FlashTarget& target) { target_ = &target; }
  void read(engine::PageRead read, std::span<const PageOp> ops, std::uint64_t lookups, bool hold,
            engine::PageReader& reader) override;
  void release(FlashTicket ticket) override;

  /// The power fails: the PagePort has been asked for nothing. The flash has forgotten its batches.
  void forget() { direct_ = {}; }

 private:
  /// A batch of the PagePort and, where its pages are looked up one by one, its first page; or another page of one.
  struct Direct {
    PageOp op;                  ///< while it is looked up
    std::uint32_t batch = 0;    ///< slot of the batch
    std::uint32_t missing = 1;  ///< batches of the flash that are to come; of a batch, as the next ones
    engine::PageRead read;
    engine::PageReader* reader = nullptr;
    FlashTicket ticket;
    bool hold = false;
  };

  void submit(std::uint32_t slot, std::span<const PageOp> ops);
  void flash_done(std::uint64_t slot, const FlashStages& stages) override;
  void work_due(std::uint64_t slot) override;
  void found(std::uint64_t slot) { submit(static_cast<std::uint32_t>(slot), {&direct_[slot].op, 1}); }
  tlm::tlm_sync_enum forward(int initiator, tlm::tlm_generic_payload& payload, tlm::tlm_phase& phase,
                             sc_core::sc_time& delay);
  tlm::tlm_sync_enum backward(tlm::tlm_generic_payload& payload, tlm::tlm_phase& phase, sc_core::sc_time& delay);

  static constexpr int kEngine = 1;

  void pass_on_after_lookups(tlm::tlm_generic_payload& payload);

  DriveActivity& activity_;
  MapLookups& lookups_;
  LoopHold hold_;
  nfc::FlashTarget* target_ = nullptr;
  SlotPool<Direct> direct_;
};

}  // namespace csdsim::csd_model
