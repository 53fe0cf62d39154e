// The attention engine as a SystemC module.
#pragma once

#include <tlm_utils/simple_initiator_socket.h>
#include <tlm_utils/simple_target_socket.h>

#include <deque>
#include <memory>
#include <systemc>
#include <vector>

#include "attention_engine/core/head_scheduler.h"
#include "attention_engine/sysc/attend_payload.h"
#include "attention_engine/sysc/engine_units.h"
#include "attention_engine/sysc/feed_forward_payload.h"
#include "attention_engine/sysc/page_port.h"
#include "nfc/sysc/flash_payload.h"
#include "simulation/event_loop.h"

namespace csdsim::engine {

/// InstInfer's engine (section IV-B) behind sockets: a HeadScheduler whose pages come from `flash_socket`. Protocol:
/// attend_payload.h, and feed_forward_payload.h for the neurons of feed-forward networks. Any module with these two
/// sockets can take its place.
///
/// Its units are servers of the scheduler, or modules behind signals (EngineUnits). Both need the same times.
class AttentionEngine : public sc_core::sc_module, private EnginePort, private PageReader {
 public:
  tlm_utils::simple_target_socket<AttentionEngine> attend_socket{"attend_socket"};
  tlm_utils::simple_initiator_socket<AttentionEngine> flash_socket{"flash_socket"};

  /// `source` and `work` must outlive the module. Throws UserError for an invalid config. With `units` each unit is a
  /// module that it makes.
  AttentionEngine(const sc_core::sc_module_name& name, const EngineConfig& config, KvSource& source, HeadWork& work,
                  const EngineUnitFactory& units = nullptr);

  const EngineStats& stats() const { return scheduler_.stats(); }
  const EngineConfig& config() const { return scheduler_.config(); }
  SimTime work_ahead(EngineUnit unit, SimTime now) const { return scheduler_.work_ahead(unit, now); }
  void set_observer(UnitObserver* observer) { scheduler_.set_observer(observer); }
  /// See HeadScheduler::set_sampler().
  void sample_heads(HeadSampler& sampler) { scheduler_.set_sampler(sampler); }
  void observe_work(WorkObserver* observer) { scheduler_.observe_work(observer); }

  /// From now on pages come from `port`, which must outlive the engine, in place of `flash_socket`.
  void go_directly_to(PagePort& port) { port_ = &port; }

  /// The power fails: nothing is under way, and nobody gets an answer any more. Only with a PagePort, which has
  /// forgotten what it was asked.
  void forget();

  /// Adds its buffer, its jobs and, where they are modules, its units to a waveform.
  void trace(sc_core::sc_trace_file* file) const override;

 private:
  tlm::tlm_sync_enum attend_fw(tlm::tlm_generic_payload& payload, tlm::tlm_phase& phase, sc_core::sc_time& delay);
  tlm::tlm_sync_enum begin_request(tlm::tlm_generic_payload& payload, tlm::tlm_phase& phase,
                                   const sc_core::sc_time& delay);
  tlm::tlm_sync_enum flash_bw(tlm::tlm_generic_payload& payload, tlm::tlm_phase& phase, sc_core::sc_time& delay);
  void pages_read(PageRead read, FlashTicket ticket) override;
  void on_wake();
  void unit_done(const UnitPool::End& end);

  void read_pages(PageRead read, std::span<const PageOp> ops, std::uint64_t lookups, SimTime at) override;
  void pages_consumed(PageRead read, SimTime at) override;
  void task_done(TaskId id, SimTime at) override;

  /// Sets the alarm to the scheduler's next event.
  [[gnu::always_inline]] void settle() {
    traced_buffer_ = scheduler_.buffer_in_use().value;
    traced_jobs_ = scheduler_.jobs_running();
    const SimTime next = scheduler_.next_event();
    if (next != SimTime::max()) wake_.set(next);
  }
  void respond();
  void end_response(tlm::tlm_generic_payload& payload);

  HeadScheduler scheduler_;
  std::unique_ptr<EngineUnits> units_;  ///< null: those of the scheduler
  std::uint64_t traced_buffer_ = 0;     ///< bytes in use
  std::uint32_t traced_jobs_ = 0;       ///< that have started and not ended
  std::uint32_t traced_reads_ = 0;      ///< batches of pages that are asked for and have not arrived
  Alarm wake_{AlarmRank::engine, [this] { on_wake(); }};
  PagePort* port_ = nullptr;  ///< null: flash_socket
  nfc::FlashPayloadPool flash_payloads_;
  std::vector<std::vector<FlashTicket>> held_;  ///< [JobId][piece]: batches that hold page buffers
  /// Payloads by TaskId, from first_task_ on; nullptr where the task is done.
  std::deque<tlm::tlm_generic_payload*> in_flight_;
  std::uint64_t first_task_ = 0;
  std::deque<tlm::tlm_generic_payload*> responses_;  ///< done, not yet sent
  tlm::tlm_generic_payload* responding_ = nullptr;   ///< BEGIN_RESP sent, END_RESP outstanding
};

}  // namespace csdsim::engine
