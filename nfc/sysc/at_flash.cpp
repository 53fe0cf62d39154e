#include "nfc/sysc/at_flash.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "nfc/core/flash_timeline.h"
#include "nfc/sysc/sim_time.h"

namespace csdsim::nfc {

AtFlash::AtFlash(const sc_core::sc_module_name& name, const FlashGeometry& geometry, const FlashTiming& timing)
    : FlashTarget(name, geometry), geometry_(geometry), timing_(timing), statistics_(geometry) {
  validate(timing);
  // Its stages are events of the kernel.
  hold_.engage();
  for (std::uint32_t c = 0; c < geometry.channels; ++c) {
    const std::string channel_name = "channel" + std::to_string(c);
    channels_.push_back(std::make_unique<AtChannel>(channel_name.c_str(), timing, *this, statistics_.channels[c]));
    for (std::uint32_t d = 0; d < geometry.dies_per_channel; ++d) {
      const std::string die_name = channel_name + "_die" + std::to_string(d);
      const PlaneId first = geometry.plane(ChannelId{c}, d, 0);
      dies_.push_back(std::make_unique<AtDie>(die_name.c_str(), first, geometry.planes_per_die, timing));
      dies_.back()->bus.bind(channels_.back()->bus);
      dies_.back()->done.bind(*this);
    }
  }
  SC_METHOD(on_decoded);
  sensitive << decoded_;
  dont_initialize();
}

FlashTicket AtFlash::submit(std::span<const PageOp> ops, SimTime at) {
  if (ops.empty()) throw InternalError("a flash batch needs at least one page operation");
  for (const PageOp& op : ops)
    if (!accepts(geometry_, op)) throw InternalError("a page operation outside the flash");
  const std::uint64_t ticket = next_ticket_++;
  open_ops_[ticket] = ops.size();
  for (const PageOp& op : ops) {
    const PlaneId plane = geometry_.plane_of(op.ppa);
    AtDie& die = *dies_[geometry_.die_of(plane).value];
    die.submit(plane.value % geometry_.planes_per_die, {op, next_sequence_++, ticket, at});
  }
  return FlashTicket{ticket};
}

void AtFlash::kick() { decide_at(sim_time_now()); }

SimTime AtFlash::decide(SimTime /*bound*/) {
  for (const auto& channel : channels_) channel->decide(sim_time_now());
  return SimTime::max();
}

void AtFlash::plane_free(PlaneId plane, const AtOp& op, SimTime granted_at) {
  const SimTime now = sim_time_now();
  PageOp counted = op.op;
  if (counted.kind == PageOpKind::erase) counted.channel_bytes = 0;
  statistics_.count(counted);
  statistics_.plane_busy[plane.value] += now - granted_at;
  if (op.op.kind != PageOpKind::read || timing_.ecc_latency == SimTime{}) {
    op_done(op.ticket);
    return;
  }
  decoding_.push_back({now + timing_.ecc_latency, op.ticket});
  if (decoding_.size() == 1) decoded_.notify(to_sc_time(timing_.ecc_latency));
}

void AtFlash::on_decoded() {
  const SimTime now = sim_time_now();
  while (!decoding_.empty() && decoding_.front().done_at == now) {
    op_done(decoding_.front().ticket);
    decoding_.pop_front();
  }
  if (!decoding_.empty()) decoded_.notify(to_sc_time(decoding_.front().done_at - now));
}

void AtFlash::op_done(std::uint64_t ticket) {
  const auto open = open_ops_.find(ticket);
  if (--open->second != 0) return;
  open_ops_.erase(open);
  complete_.push_back(ticket);
  respond_at(sim_time_now());
}

void AtFlash::take_completions(SimTime now, std::vector<FlashCompletion>& out) {
  std::sort(complete_.begin(), complete_.end());
  for (const std::uint64_t ticket : complete_) out.push_back({FlashTicket{ticket}, now});
  complete_.clear();
}

void AtFlash::trace(sc_core::sc_trace_file* file) const {
  for (const auto& channel : channels_) channel->trace(file);
  for (const auto& die : dies_) die->trace(file);
}

}  // namespace csdsim::nfc
