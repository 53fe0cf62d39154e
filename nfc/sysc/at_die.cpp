#include "nfc/sysc/at_die.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "nfc/sysc/sim_time.h"

namespace csdsim::nfc {

AtPlane::AtPlane(const sc_core::sc_module_name& name, PlaneId id, const FlashTiming& timing)
    : sc_module(name), id_(id), timing_(timing) {
  SC_METHOD(on_stage_end);
  sensitive << stage_end_;
  dont_initialize();
}

void AtPlane::submit(const AtOp& op) {
  queue_.push_back(op);
  if (stage_ == Stage::idle) start_head();
}

void AtPlane::start_head() {
  const AtOp& op = queue_.front();
  const SimTime now = sim_time_now();
  if (op.not_before > now) {
    stay(Stage::later, op.not_before - now);
  } else {
    ask(Stage::asking, op.op.kind == PageOpKind::program ? BusUse::program : BusUse::command);
  }
}

void AtPlane::set_stage(Stage stage) {
  stage_ = stage;
  traced_stage_ = static_cast<unsigned>(stage);
}

void AtPlane::stay(Stage stage, SimTime duration) {
  set_stage(stage);
  stage_end_.notify(to_sc_time(duration));
}

void AtPlane::ask(Stage stage, BusUse use) {
  set_stage(stage);
  bus->request(use, queue_.front(), *this);
}

void AtPlane::granted(SimTime duration) {
  if (stage_ == Stage::asking) granted_at_ = sim_time_now();
  stay(stage_ == Stage::asking ? Stage::command : Stage::data_out, duration);
}

void AtPlane::on_stage_end() {
  const AtOp& op = queue_.front();
  switch (stage_) {
    case Stage::later:
      start_head();
      return;
    case Stage::command:
      switch (op.op.kind) {
        case PageOpKind::read:
          stay(Stage::array, read_time(timing_, op.sequence));
          return;
        case PageOpKind::program:
          stay(Stage::array, timing_.program_latency);
          return;
        case PageOpKind::erase:
          stay(Stage::array, timing_.erase_latency);
          return;
      }
      return;
    case Stage::array:
      if (op.op.kind == PageOpKind::read) {
        ask(Stage::buffered, BusUse::data_out);
      } else {
        finish_head();
      }
      return;
    case Stage::data_out:
      finish_head();
      return;
    case Stage::idle:
    case Stage::asking:
    case Stage::buffered:
      throw InternalError("a flash plane ended a stage that has no end of its own");
  }
}

void AtPlane::finish_head() {
  const AtOp op = queue_.front();
  queue_.pop_front();
  set_stage(Stage::idle);
  done->plane_free(id_, op, granted_at_);
  if (!queue_.empty()) start_head();
}

void AtPlane::trace(sc_core::sc_trace_file* file) const {
  sc_core::sc_trace(file, traced_stage_, std::string(name()) + ".stage", 3);
}

AtDie::AtDie(const sc_core::sc_module_name& name, PlaneId first_plane, std::uint32_t planes, const FlashTiming& timing)
    : sc_module(name) {
  for (std::uint32_t p = 0; p < planes; ++p) {
    const std::string plane_name = "plane" + std::to_string(p);
    planes_.push_back(std::make_unique<AtPlane>(plane_name.c_str(), PlaneId{first_plane.value + p}, timing));
    planes_.back()->bus.bind(bus);
    planes_.back()->done.bind(done);
  }
}

void AtDie::trace(sc_core::sc_trace_file* file) const {
  for (const auto& plane : planes_) plane->trace(file);
}

}  // namespace csdsim::nfc
