// The TLM-2.0 part that all flash models share: protocol, tickets, responses.
#pragma once

#include <tlm_utils/simple_target_socket.h>

#include <span>
#include <systemc>
#include <vector>

#include "base/address.h"
#include "base/ring_queue.h"
#include "base/slot_pool.h"
#include "contracts/page_op.h"
#include "nfc/core/flash_observers.h"
#include "nfc/core/flash_statistics.h"
#include "nfc/sysc/flash_payload.h"
#include "simulation/event_loop.h"

namespace csdsim::nfc {

/// A client that submits batches without TLM.
class FlashClient {
 public:
  /// Called when the batch submitted with `tag` completes. `stages` belong to the operation that finished last.
  virtual void flash_done(std::uint64_t tag, const FlashStages& stages) = 0;
  /// flash_done() is likely to be called for `tag` next: prefetch what it needs.
  virtual void flash_soon(std::uint64_t /*tag*/) {}
  /// One of several operations that were submitted one by one with `tag` ends at `at`, and others follow. `at` may be
  /// ahead of the current time, but nothing else happens before. False: the client wants flash_done() instead, when it
  /// is `at`.
  virtual bool flash_part(std::uint64_t /*tag*/, SimTime /*at*/) { return false; }

 protected:
  ~FlashClient() = default;
};

/// Flash of one drive behind a socket that takes FlashBatch payloads. A payload without a batch, or with an empty one,
/// is answered at once with TLM_COMPLETED and TLM_GENERIC_ERROR_RESPONSE; one with an operation outside the geometry
/// (see `accepts`) with TLM_ADDRESS_ERROR_RESPONSE; neither is submitted. Batches that complete at the same time are
/// answered in the order of submission. An initiator that accepts BEGIN_RESP without ending it holds back the following
/// responses, not the flash, until its END_RESP, whose annotated delay is ignored.
///
/// Our firmware may bypass the socket with submit_directly(), as processors bypass it with DMI.
class FlashTarget : public sc_core::sc_module, protected Decider, private FlashClient {
 public:
  tlm_utils::simple_target_socket<FlashTarget> socket{"socket"};

  FlashTarget(const sc_core::sc_module_name& name, const FlashGeometry& geometry, std::uint32_t word_line_pages);
  ~FlashTarget() override;

  /// Submits a batch, now; `client` outlives it. InternalError for an empty batch or an operation outside the geometry.
  /// With `hold`, the pages read keep their buffers until release_directly(). Without `staged`, `client` does not look
  /// at the stages, which may be 0.
  FlashTicket submit_directly(std::span<const PageOp> ops, FlashClient& client, std::uint64_t tag, bool hold = false,
                              bool staged = true) {
    note_in_flight(client, tag);
    return submit(ops, sim_time_now(), hold, staged);
  }
  /// Submits operations one by one with the same tag: the end of each is reported to the client. Only the stages of the
  /// last one that ends are known.
  void submit_each_directly(std::span<const PageOp> ops, FlashClient& client, std::uint64_t tag, bool staged) {
    if (reports_parts())
      note_in_flight(client, tag, static_cast<std::uint32_t>(ops.size()));
    else
      for (std::size_t i = 0; i < ops.size(); ++i) note_in_flight(client, tag);
    submit_each(ops, sim_time_now(), staged);
  }
  void release_directly(FlashTicket ticket) { release(ticket); }

  /// Totals so far. A timeline also counts grants that it has already given for the future.
  virtual const FlashStatistics& statistics() = 0;
  /// Stops all queued and running operations from now until `end`; then they continue. Operations submitted meanwhile
  /// wait until `end`. Precondition: the last standstill has ended. InternalError for models that cannot stop.
  virtual void stand_still_until(SimTime end);
  /// The flash's own time, which stands still with it; `statistics()` are in this time.
  virtual SimTime own_time(SimTime now) const { return now; }
  /// The power fails now: no operation goes on, and no client is told of one any more. Statistics and observers have
  /// what happens before now only if statistics() was called now. InternalError for models that cannot do so.
  virtual void forget();
  /// The observer must outlive the simulation. False if this model tells nobody of its programs and erases.
  virtual bool observe_changes(ChangeObserver& /*observer*/) { return false; }
  /// The observers must outlive the simulation. False if this model has no observers.
  virtual bool observe(const FlashObservers& /*observers*/) { return false; }

 protected:
  /// Submits a batch to the model, for `at`, which is not before the current time. Tickets count from 0 without gaps.
  /// Without `staged`, the stages of its completion may be 0.
  virtual FlashTicket submit(std::span<const PageOp> ops, SimTime at, bool hold, bool staged) = 0;
  /// Whether the operations of submit_each() are one batch whose parts are reported.
  virtual bool reports_parts() const { return false; }
  /// Submits operations whose ends are reported to the client one by one, in this order.
  virtual void submit_each(std::span<const PageOp> ops, SimTime at, bool staged) {
    for (const PageOp& op : ops) submit({&op, 1}, at, false, staged);
  }
  /// Frees, now, the page buffers of a batch that was submitted with `hold` and has been responded to.
  virtual void release(FlashTicket ticket) = 0;
  /// Called at the time of respond_at(): appends the batches complete now to completions(), ordered by time, then
  /// ticket, and calls notify_clients().
  virtual void respond() = 0;
  std::vector<FlashCompletion>& completions() { return completions_; }
  /// No batch is in flight any more, and tickets count from 0 again.
  void forget_batches();
  void notify_clients();
  /// Reports to the client the end of an operation at `at`. False: the client wants it at that time.
  bool report_part(FlashTicket ticket, SimTime at) {
    Batch& batch = in_flight_[ticket.value - first_ticket_];
    if (!batch.client->flash_part(batch.tag, at)) return false;
    --batch.to_report;
    return true;
  }

  /// The batch of `ticket` is likely to complete next.
  void expect(FlashTicket ticket) {
    const Batch& batch = in_flight_[ticket.value - first_ticket_];
    batch.client->flash_soon(batch.tag);
  }
  /// A batch is complete at `at`.
  void respond_at(SimTime at) { responses_due_.set(at); }
  /// No batch is known to be complete at any time.
  void withdraw_response() { responses_due_.cancel(); }

 private:
  tlm::tlm_sync_enum nb_transport_fw(tlm::tlm_generic_payload& payload, tlm::tlm_phase& phase, sc_core::sc_time& delay);
  tlm::tlm_sync_enum begin_request(tlm::tlm_generic_payload& payload, tlm::tlm_phase& phase, SimTime at);
  void end_response(tlm::tlm_generic_payload& payload);
  void flash_done(std::uint64_t tag, const FlashStages& stages) override;
  void send_responses();
  void send(tlm::tlm_generic_payload& payload);
  struct Batch {
    FlashClient* client = nullptr;  ///< null where it is complete
    std::uint64_t tag = 0;
    std::uint32_t to_report = 1;  ///< ends that are still to be reported to the client
  };
  void note_in_flight(FlashClient& client, std::uint64_t tag, std::uint32_t to_report = 1) {
    Batch& batch = in_flight_.extend();
    batch.client = &client;
    batch.tag = tag;
    batch.to_report = to_report;
  }
  Batch take_in_flight(FlashTicket ticket) {
    Batch& done = in_flight_[ticket.value - first_ticket_];
    const Batch batch = done;
    if (--done.to_report > 0) return batch;
    done.client = nullptr;
    for (; !in_flight_.empty() && in_flight_.front().client == nullptr; in_flight_.pop_front()) ++first_ticket_;
    return batch;
  }

  FlashGeometry geometry_;
  std::uint32_t word_line_pages_;
  Alarm responses_due_;
  RingQueue<Batch> in_flight_;  ///< by ticket, from first_ticket_ on
  std::uint64_t first_ticket_ = 0;
  std::vector<FlashCompletion> completions_;
  SlotPool<tlm::tlm_generic_payload*> payloads_;    ///< batches whose client is this module; slots are tags
  RingQueue<tlm::tlm_generic_payload*> responses_;  ///< responses of complete batches, not sent yet
  tlm::tlm_generic_payload* responding_ = nullptr;  ///< BEGIN_RESP sent, END_RESP outstanding
};

inline void FlashTarget::notify_clients() {
  // Callbacks may submit, which leaves completions_ alone.
  for (const FlashCompletion& completion : completions_) {
    const Batch batch = take_in_flight(completion.ticket);
    batch.client->flash_done(batch.tag, completion.stages);
  }
  completions_.clear();
  if (!responses_.empty()) send_responses();
}

}  // namespace csdsim::nfc
