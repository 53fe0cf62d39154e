#include "nvme_if/sysc/nvme_controller.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "nvme_if/sysc/sc_sim_time.h"

namespace csdsim::nvme {
namespace {

void require(bool condition, std::string_view what, std::uint64_t found, std::string_view right) {
  if (!condition) throw UserError(fmt::format("NVMe controller: {} is {}, must be {}", what, found, right));
}

}  // namespace

NvmeController::NvmeController(const sc_core::sc_module_name& name, const NvmeControllerParams& params, PcieDma& dma,
                               CommandHandler& handler, const UnitPool::Make& cores)
    : sc_module(name),
      bar("bar"),
      interrupt("interrupt"),
      params_(params),
      disappears_(params.disappears_at != SimTime::max()),
      core_(params.controller),
      dma_(dma),
      handler_(handler) {
  require(params.fetch_burst >= 1 && params.fetch_burst <= 1024, "fetch_burst", params.fetch_burst, "1 to 1024");
  require(params.outstanding_fetches >= 1, "outstanding_fetches", params.outstanding_fetches, "at least 1");
  require(params.command_slots >= 1, "command_slots", params.command_slots, "at least 1");
  require(params.firmware_time.ps >= 0, "firmware_time", 0, "not negative");
  require(params.firmware_cores >= 1, "firmware_cores", params.firmware_cores, "at least 1");
  bar.register_b_transport(this, &NvmeController::b_transport);
  bar.register_transport_dbg(this, &NvmeController::transport_dbg);
  fetches_.resize(params.outstanding_fetches);
  for (Fetch& f : fetches_) f.entries.resize(params.fetch_burst);
  waiting_.resize(core_.queue_limit());
  last_served_ = QueueId{params.controller.io_queues};
  unsignalled_.resize(core_.queue_limit());
  if (EnduranceGroup* const group = core_.endurance_group())
    group->connect({.now = [] { return sim_now(); }, .counts = [this] { return handler_.placement_counts(); }});
  if (cores && params.firmware_time.ps > 0)
    pool_ = std::make_unique<UnitPool>("cores", params.firmware_cores, cores,
                                       [this](const UnitPool::End& end) { core_done(end); });
}

void NvmeController::end_of_elaboration() { hold_.loop().declare(*bar.get_interface(), *this); }

void NvmeController::start_of_simulation() {
  for (int i = 0; i < interrupt.size(); ++i) {
    receivers_.push_back(interrupt[i]);
    if (!interrupt[i]->runs_ahead()) hold_.engage();
  }
  if (receivers_.size() == 1) only_receiver_ = receivers_[0];
}

NvmeController::~NvmeController() = default;

void NvmeController::b_transport(tlm::tlm_generic_payload& trans, sc_core::sc_time& /*delay*/) {
  trans.set_response_status(access_registers(trans));
}

unsigned NvmeController::transport_dbg(tlm::tlm_generic_payload& trans) {
  // A debug access has no side effects: it can read registers but not write them.
  if (!trans.is_read()) return 0;
  return access_registers(trans) == tlm::TLM_OK_RESPONSE ? trans.get_data_length() : 0;
}

tlm::tlm_response_status NvmeController::access_registers(tlm::tlm_generic_payload& trans) {
  const std::uint32_t size = trans.get_data_length();
  if (trans.get_address() >= core_.bar_size().value) return tlm::TLM_ADDRESS_ERROR_RESPONSE;
  if (trans.get_byte_enable_ptr() != nullptr) return tlm::TLM_BYTE_ENABLE_ERROR_RESPONSE;
  if ((size != 4 && size != 8) || trans.get_streaming_width() < size) return tlm::TLM_BURST_ERROR_RESPONSE;
  if (!powered_) {  // nobody answers: what is read is all ones, what is written is lost
    if (trans.is_read()) std::memset(trans.get_data_ptr(), 0xFF, size);
    return tlm::TLM_OK_RESPONSE;
  }
  if (trans.is_read()) {
    const std::optional<std::uint64_t> value = core_.read(trans.get_address(), size);
    if (!value) return tlm::TLM_BURST_ERROR_RESPONSE;
    std::memcpy(trans.get_data_ptr(), &*value, size);
  } else if (trans.is_write()) {
    std::uint64_t value = 0;
    std::memcpy(&value, trans.get_data_ptr(), size);
    const RegisterEffect effect = core_.write(trans.get_address(), size, value);
    if (effect.kind == RegisterEffect::Kind::refused) return tlm::TLM_BURST_ERROR_RESPONSE;
    apply(effect);
    deliver_events();
  }
  return tlm::TLM_OK_RESPONSE;
}

void NvmeController::apply(const RegisterEffect& effect) {
  using Kind = RegisterEffect::Kind;
  switch (effect.kind) {
    case Kind::sq_tail:
      return submitted(effect.queue, effect.entries);
    case Kind::cq_head:
      return drain_waiting(effect.queue);
    case Kind::reset:
      return begin_reset();
    case Kind::shutdown:
      if (live_commands_ == 0) end_shutdown();
      return;
    case Kind::none:
    case Kind::refused:
    case Kind::enabled:
      return;
  }
}

// Fetching.

void NvmeController::submitted(QueueId queue, std::uint32_t entries) {
  const bool only = unfetched_ == 0;
  unfetched_ += entries;
  start_fetches(only ? &core_.existing_sq(queue) : nullptr);
}

void NvmeController::dma_done(std::uint64_t fetch, Status status) { fetched(fetches_[fetch], status); }

/// The fetched command, for the firmware; null if decoding has ended it with an error.
[[gnu::always_inline]] inline Command* NvmeController::accept(SubmissionQueue& queue, const SubmissionEntry& entry) {
  queue.consume();
  if (free_.empty()) {
    slots_.push_back(std::unique_ptr<Command>(new Command(*this)));
    free_.push_back(slots_.back().get());
  }
  Command& c = *free_.back();
  free_.pop_back();
  c.state_ = Command::State::queued;
  c.status_ = status::success;
  c.queue_ = queue.id();
  c.epoch_ = epoch_;
  c.sqe_ = entry;
  c.cid_ = CommandId{entry.cid};
  c.observed_ = (observer_ != nullptr || queue_work_ != nullptr) && queue.id().value != 0;
  if (c.observed_) c.stages_.begin(sim_now());
  ++live_commands_;
  queue.begin_work();
  c.tracked_ = queue.begin(CommandId{entry.cid});
  if (queue_work_ != nullptr && c.observed_) queue_work_->level(queue.id().value, queue.outstanding(), sim_now());
  if (c.tracked_ && !queue.deleting()) return &c;
  finish(c, c.tracked_ ? status::abort_sq_deletion : status::command_id_conflict);
  return nullptr;
}

void NvmeController::fetched(Fetch& fetch, Status status) {
  fetch.busy = false;
  reserved_slots_ -= fetch.count;
  Command* alone = nullptr;  ///< the command, for a fetch of one entry
  if (fetch.epoch == epoch_) {
    SubmissionQueue& queue = core_.existing_sq(fetch.queue);
    queue.end_work();
    const bool ok = status.ok();
    if (!ok) core_.set_fatal();
    for (std::uint32_t i = 0; i < fetch.count && ok; ++i) {
      if (alone != nullptr) push_firmware(*alone);
      alone = accept(queue, fetch.entries[i]);
    }
    finish_deletions();
  }
  dma_finished();
  // Without firmware_time, commands are in the firmware only while they wait for the kernel.
  if (alone != nullptr && params_.firmware_time.ps == 0 && firmware_.empty() && out_of_step_.empty()) {
    execute_inline(*alone);
  } else {
    if (alone != nullptr) push_firmware(*alone);
    start_firmware();
  }
  pump_fetches();
}

// Executing.

void NvmeController::execute(Command& c) { execute_inline(c); }

[[gnu::always_inline]] inline void NvmeController::execute_inline(Command& c) {
  c.state_ = Command::State::executing;
  if (c.queue_.value == 0) return execute_admin(c);
  const Status decoded = core_.decode(c.sqe_, c.io_);
  if (!decoded.ok()) return c.complete(decoded);
  if (!handler_.runs_ahead(c.io_)) {
    hold_.engage();
    if (!firmware_due_.loop().in_step()) {
      out_of_step_.push_back(&c);
      return firmware_due_.set(sim_now());
    }
  }
  c.walk_data_pointer(core_.memory_page());
  if (c.walk_.state() == WalkState::failed) return c.complete(c.walk_.error());
  if (c.observed_) c.stages_.mark(RequestStage::firmware, sim_now());
  const bool write = c.sqe_.opcode == nvm_opcode::write;
  if (write || c.sqe_.opcode == nvm_opcode::read) core_.events().note_blocks(write, c.io_.data);
  handler_.execute(&c);
}

// Completing.

void NvmeController::finish(Command& c, Status status, std::uint32_t dw0) {
  c.state_ = Command::State::executing;
  c.complete(status, dw0);
}

void NvmeController::retire(Command& c) {
  if (c.epoch_ != epoch_) return recycle(c);
  const Queues queues = queues_of(c);
  if (queues.may_post()) return post(c, queues);
  queues.waiting.push_back(&c);
}

void NvmeController::refuse_completion() {
  throw InternalError("a command is completed twice, or before it is executed");
}

void NvmeController::observe_posted(Command& c, const SubmissionQueue& queue) {
  c.stages_.mark(RequestStage::link, sim_now());
  if (observer_ != nullptr) observer_->completed(c.queue_, c.cid(), c.stages_);
  if (queue_work_ != nullptr) tell_posted(c, queue);
}

void NvmeController::tell_posted(const Command& c, const SubmissionQueue& queue) {
  constexpr std::array<std::string_view, std::variant_size_v<IoOperation>> kNames{
      "flush", "read",    "write",   "dataset management", "create KV",    "free KV",  "append", "attend", "score",
      "fetch", "fork KV", "rewrite", "feed-forward",       "unit handles", "new units"};
  const bool decoded = c.status_ != status::command_id_conflict && c.status_ != status::invalid_opcode;
  queue_work_->work(c.queue_.value, decoded ? kNames[c.io_.operation.index()] : "refused command", c.stages_.begun(),
                    sim_now(), c.cid_.value);
  queue_work_->level(c.queue_.value, queue.outstanding(), sim_now());
}

/// Called when the data in front of a completion has arrived in memory; the completion itself has not yet.
void NvmeController::data_sent(Command& c, Status status) {
  if (status.ok()) return;
  core_.turn_to_error(c.cqe_, status);
  note_error(c, status);
}

void NvmeController::note_error(const Command& c, Status status) {
  core_.events().note_error(c.sqe_, c.queue_.value, status);
  core_.note_health(handler_.health());
  // The completion that is being posted goes first.
  if (!event_requests_.empty()) defer([this] { deliver_events(); });
}

/// Whether a completion signals its vector at once; one of the admin queue always does.
inline bool NvmeController::signals_now(InterruptVector vector) {
  const InterruptCoalescing coalescing = core_.interrupt_coalescing();
  if (coalescing.at_once() || vector.value == 0) return true;
  Unsignalled& u = unsignalled_[vector.value];
  if (++u.completions >= coalescing.completions) {
    u.completions = 0;
    return true;
  }
  if (u.completions == 1) {
    u.due = sim_now() + coalescing.time;
    signals_due_.set(u.due);
  }
  return false;
}

void NvmeController::posted(Command& c, Status status) {
  std::optional<InterruptVector> raised;
  if (c.epoch_ == epoch_) {
    const CompletionQueue& cq = core_.existing_cq(core_.existing_sq(c.queue_).completion_queue());
    if (!status.ok())
      core_.set_fatal();
    else if (cq.interrupts() && signals_now(cq.vector()))
      raised = cq.vector();
  }
  recycle(c);
  dma_finished();
  pump_fetches();
  if (!raised || gone()) return;
  if (only_receiver_ != nullptr) return only_receiver_->raise_last(*raised);
  for (InterruptIf* receiver : receivers_) receiver->raise(*raised);
}

/// Signals the vectors whose coalescing time is over.
void NvmeController::signal_late() {
  if (gone()) return;
  const SimTime now = sim_now();
  SimTime next = SimTime::max();
  for (std::size_t vector = 0; vector < unsignalled_.size(); ++vector) {
    Unsignalled& u = unsignalled_[vector];
    if (u.completions == 0) continue;
    if (u.due > now) {
      next = std::min(next, u.due);
      continue;
    }
    u.completions = 0;
    for (InterruptIf* receiver : receivers_) receiver->raise(InterruptVector{static_cast<std::uint16_t>(vector)});
  }
  if (next != SimTime::max()) signals_due_.set(next);
}

void NvmeController::drain_waiting(QueueId cq) {
  RingQueue<Command*>& waiting = waiting_[cq.value];
  while (!waiting.empty()) {
    Command& c = *waiting.front();
    const Queues queues = queues_of(c);
    if (queues.completion.full()) return;
    post(c, queues);
    waiting.pop_front();
  }
}

void NvmeController::defer(Callback<void()> work) {
  deferred_.push_back(std::move(work));
  deferred_due_.set(sim_now());
}

void NvmeController::run_deferred() {
  const std::vector<Callback<void()>> work = std::exchange(deferred_, {});
  for (const auto& w : work) w();
}

}  // namespace csdsim::nvme
