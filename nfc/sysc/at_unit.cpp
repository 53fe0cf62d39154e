#include "nfc/sysc/at_unit.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"
#include "nfc/sysc/sim_time.h"

namespace csdsim::nfc {

AtUnit::AtUnit(const sc_core::sc_module_name& name, const FlashGeometry& geometry, const FlashTiming& timing,
               PlaneId first_plane, std::span<AtPlane> planes, Takes takes)
    : sc_module(name),
      geometry_(geometry),
      timing_(timing),
      first_plane_(first_plane),
      package_(geometry.die_of(first_plane).value % geometry.dies_per_channel / timing.dies_per_package),
      planes_(planes),
      takes_(takes) {
  SC_METHOD(on_bus_end);
  sensitive << bus_end_;
  dont_initialize();
  SC_METHOD(on_array_end);
  sensitive << array_end_;
  dont_initialize();
  SC_METHOD(on_arrival);
  sensitive << arrival_;
  dont_initialize();
}

void AtUnit::end_of_elaboration() { bus->attach(*this); }

void AtUnit::set_state(State state) {
  state_ = state;
  traced_state_ = static_cast<unsigned>(state);
  traced_busy_ =
      state == State::working || state == State::moving || state == State::stopping || state == State::resuming;
  changed();
}

void AtUnit::show_queue() {
  each_sharing([](AtUnit& unit) {
    unit.traced_queue_ = 0;
    for (const AtPlane& plane : unit.planes_) unit.traced_queue_ += static_cast<std::uint32_t>(plane.waiting.size());
  });
}

void AtUnit::write_for(AtUnit& reader) {
  readers_.push_back(&reader);
  reader.writer_ = this;
}

/// What one unit of a die does concerns the others that share planes with it.
void AtUnit::mark_changed() {
  each_sharing([](AtUnit& unit) { unit.changed_ = true; });
}

void AtUnit::changed() {
  mark_changed();
  bus->changed();
}

void AtUnit::submitted(const AtOp& op) {
  show_queue();
  const SimTime now = sim_time_now();
  if (op.not_before > now) {
    arrival_.notify(to_sc_time(op.not_before - now));  // of several pending, the earliest counts
  } else {
    changed();
  }
}

void AtUnit::on_arrival() {
  const SimTime now = sim_time_now();
  SimTime next = SimTime::max();
  for (const AtPlane& plane : planes_) {
    for (const AtOp& op : plane.waiting) {
      if (op.not_before > now) next = std::min(next, op.not_before);
    }
  }
  if (next != SimTime::max()) arrival_.notify(to_sc_time(next - now));
  changed();
}

void AtUnit::on_bus_end() {
  const BusUse use = std::exchange(bus_use_, BusUse::idle);
  switch (use) {
    case BusUse::command:
      if (state_ == State::command) {
        work();
      } else {
        cached_in_ = true;
        if (state_ == State::idle) start_cached();
      }
      break;
    case BusUse::data_out:
      page_out();
      break;
    case BusUse::status:
      leave_array();
      break;
    case BusUse::suspend:
      stop();
      break;
    case BusUse::resume:
      array_end_.notify(to_sc_time(timing_.resume_latency));
      break;
    case BusUse::idle:
      throw InternalError("a flash unit left a bus that it did not have");
  }
  changed();
}

void AtUnit::on_array_end() {
  switch (state_) {
    case State::working:
      work_end();
      return;
    case State::moving:
      if (array_.front().op.op.kind == PageOpKind::read) {
        enter_output();
      } else {
        work();
      }
      return;
    case State::stopping:
      held_ = std::exchange(array_, {});
      held_suspends_ = suspends_;
      suspend_sent_ = false;
      set_state(State::idle);
      return;
    case State::resuming:
      work_since_ = sim_time_now();
      work_end_ = work_since_ + remaining_;
      set_state(State::working);
      array_end_.notify(to_sc_time(remaining_));
      return;
    default:
      throw InternalError("a flash array ended a state that has no end of its own");
  }
}

void AtUnit::work() {
  SimTime time{};
  for (const Member& member : array_) time = std::max(time, array_time(timing_, geometry_, member.op));
  set_state(State::working);
  work_since_ = sim_time_now();
  work_end_ = work_since_ + time;
  array_end_.notify(to_sc_time(time));
}

void AtUnit::work_end() {
  tell_work();
  for (Member& member : array_) member.op.account(FlashStage::array, sim_time_now());
  if (array_.front().op.op.kind == PageOpKind::read) {
    set_state(State::sensed);
    if (output_.empty()) to_output();
  } else if (timing_.status_time > SimTime{}) {
    set_state(State::status);
  } else {
    leave_array();
  }
}

void AtUnit::to_output() {
  for (Member& member : array_) member.op.account(FlashStage::bus_wait, sim_time_now());
  if (!timing_.cache_read || timing_.cache_busy_time == SimTime{}) return enter_output();
  set_state(State::moving);
  array_end_.notify(to_sc_time(timing_.cache_busy_time));
}

void AtUnit::enter_output() {
  for (Member& member : std::exchange(array_, {})) {
    member.op.account(FlashStage::array, sim_time_now());
    output_.push_back({member.plane, member.op, OutputPage::At::register_});
  }
  set_state(State::idle);
}

void AtUnit::start_cached() {
  array_ = std::exchange(cached_, {});
  cached_in_ = false;
  suspends_ = 0;
  for (Member& member : array_) member.op.account(FlashStage::plane_wait, sim_time_now());
  if (timing_.cache_busy_time == SimTime{}) return work();
  set_state(State::moving);
  array_end_.notify(to_sc_time(timing_.cache_busy_time));
}

/// The suspend has been sent: it stops an array that still works.
void AtUnit::stop() {
  const SimTime now = sim_time_now();
  if (state_ != State::working || work_end_ <= now) return;
  array_end_.cancel();
  tell_work();
  remaining_ = work_end_ - now;
  ++suspends_;
  done->suspended();
  set_state(State::stopping);
  array_end_.notify(to_sc_time(timing_.suspend_latency));
}

void AtUnit::leave_array() {
  const SimTime now = sim_time_now();
  for (Member& member : std::exchange(array_, {})) {
    if (timing_.status_time > SimTime{}) member.op.account(FlashStage::command, now);
    done->op_done(member.op);
    vacate(member.plane);
  }
  suspend_sent_ = false;
  set_state(State::idle);
  if (cached_in_) start_cached();
}

void AtUnit::page_out() {
  const auto page =
      std::find_if(output_.begin(), output_.end(), [](const OutputPage& p) { return p.at == OutputPage::At::bus; });
  page->op.account(FlashStage::transfer, sim_time_now());
  const OutputPage sent = *page;
  if (sent.op.fails()) {
    page->at = OutputPage::At::decoder;
  } else {
    output_.erase(page);
    vacate(sent.plane);
    if (state_ == State::sensed && output_.empty()) to_output();
  }
  decoder->decode(sent.plane, sent.op, *this);
}

void AtUnit::decoded(std::uint32_t plane, const AtOp& op) {
  if (!op.fails()) return done->op_done(op);
  const auto page =
      std::find_if(output_.begin(), output_.end(), [plane](const OutputPage& p) { return p.plane == plane; });
  page->op = op;
  ++page->op.attempt;
  page->at = OutputPage::At::failed;
  done->retried(op);
  changed();
}

void AtUnit::vacate(std::uint32_t plane) {
  AtPlane& p = planes_[plane];
  if (--p.occupants == 0) done->plane_free(PlaneId{first_plane_.value + plane}, p.occupied_since);
}

void AtUnit::trace(sc_core::sc_trace_file* file) const {
  sc_core::sc_trace(file, traced_state_, std::string(name()) + ".stage", 4);
  sc_core::sc_trace(file, traced_busy_, std::string(name()) + ".busy");
  sc_core::sc_trace(file, traced_queue_, std::string(name()) + ".queue");
}

}  // namespace csdsim::nfc
