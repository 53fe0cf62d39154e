// The controller's side of the flash socket: batches out, callbacks back.
#pragma once

#include <tlm_utils/simple_initiator_socket.h>

#include <cstdint>
#include <span>
#include <systemc>
#include <vector>

#include "base/callback.h"
#include "base/slot_pool.h"
#include "contracts/page_op.h"
#include "csd_model/firmware/dram_port.h"
#include "nfc/sysc/flash_payload.h"
#include "nfc/sysc/flash_target.h"

namespace csdsim::csd_model {

/// Submits batches of page operations and calls back when a batch is complete. Callbacks run in an SC_METHOD: they may
/// submit more, and must not wait. Batches go over `socket`, or directly to a flash (docs/embedding.md). Data to be
/// programmed leaves controller DRAM first; data read goes into it before the batch is complete.
class FlashIo : public sc_core::sc_module, private nfc::FlashClient {
 public:
  using Done = Callback<void()>;

  tlm_utils::simple_initiator_socket<FlashIo> socket{"socket"};

  FlashIo(const sc_core::sc_module_name& name, DramPort& dram);

  /// At least one operation; notifies `client`. Throws InternalError when the flash refuses the batch. Without
  /// `staged`, `client` does not look at the stages, which may be 0.
  [[gnu::always_inline]] void submit(std::span<const PageOp> ops, nfc::FlashClient& client, std::uint64_t tag,
                                     bool staged = true) {
    if (flash_ != nullptr && !dram_.limited()) [[likely]]
      flash_->submit_directly(ops, client, tag, false, staged);
    else
      dram_.limited() ? stage(ops, client, tag) : send(ops, client, tag);
  }
  /// Each operation as a batch of its own.
  void submit_each(std::span<const PageOp> ops, nfc::FlashClient& client, std::uint64_t tag, bool staged) {
    if (flash_ != nullptr && !dram_.limited()) return flash_->submit_each_directly(ops, client, tag, staged);
    for (const PageOp& op : ops) submit({&op, 1}, client, tag, staged);
  }
  /// The same with a callback instead of a client.
  void submit(std::span<const PageOp> ops, Done&& done);

  /// The power fails: nobody is called back any more. The flash has forgotten its batches.
  void forget();

  /// Batches that went over the socket and are not complete.
  std::uint64_t batches_in_flight() const { return waiting_.in_use(); }

  /// Makes batches go to `flash` directly.
  void go_directly_to(nfc::FlashTarget& flash) { flash_ = &flash; }

  /// Valid while the callback of a batch runs: where the time of its last operation went, and how long its bytes took
  /// through DRAM. Null at other times.
  struct Finished {
    FlashStages stages{};
    SimTime dram{};
  };
  const Finished* finished() const { return finished_; }
  /// For a client that is being notified of the end of a batch: makes `call` a callback of that batch.
  template <class Call>
  void finish(const FlashStages& stages, Call&& call) {
    const Finished finished{stages, staged_time_};
    finished_ = &finished;
    call();
    finished_ = nullptr;
  }

 private:
  /// A batch whose bytes pass through a DRAM of limited bandwidth.
  struct Staged {
    std::vector<PageOp> ops;
    nfc::FlashClient* client = nullptr;
    std::uint64_t tag = 0;
    Bytes read;       ///< bytes that the batch reads
    SimTime since{};  ///< when its bytes began to move through DRAM
    SimTime dram{};   ///< time that this took
    FlashStages stages{};
  };
  struct StagedDone final : nfc::FlashClient {
    FlashIo& io;
    explicit StagedDone(FlashIo& owner) : io(owner) {}
    void flash_done(std::uint64_t tag, const FlashStages& stages) override { io.staged_done(tag, stages); }
  };

  void send(std::span<const PageOp> ops, nfc::FlashClient& client, std::uint64_t tag);
  void stage(std::span<const PageOp> ops, nfc::FlashClient& client, std::uint64_t tag);
  void staged_done(std::uint64_t index, const FlashStages& stages);
  void flash_done(std::uint64_t tag, const FlashStages& stages) override;
  tlm::tlm_sync_enum nb_transport_bw(tlm::tlm_generic_payload& payload, tlm::tlm_phase& phase, sc_core::sc_time& delay);

  DramPort& dram_;
  nfc::FlashTarget* flash_ = nullptr;
  StagedDone staged_client_{*this};
  SlotPool<Staged> staged_;
  nfc::FlashPayloadPool pool_;
  struct Waiting {
    nfc::FlashClient* client = nullptr;
    std::uint64_t tag = 0;
  };
  SlotPool<Waiting> waiting_;  ///< for batches over the socket; a slot is the payload's tag
  SlotPool<Done> callbacks_;
  const Finished* finished_ = nullptr;
  SimTime staged_time_{};  ///< time in DRAM of the batch whose client is being notified
};

}  // namespace csdsim::csd_model
