#include "nfc/sysc/at_channel.h"

#include <algorithm>
#include <string>

#include "nfc/sysc/sim_time.h"

namespace csdsim::nfc {

AtChannel::AtChannel(const sc_core::sc_module_name& name, const FlashTiming& timing, SettleIf& coordinator,
                     ChannelBusy& busy)
    : sc_module(name), timing_(timing), coordinator_(coordinator), busy_(busy) {
  bus.bind(*this);
  SC_METHOD(on_bus_free);
  sensitive << bus_free_;
  dont_initialize();
}

void AtChannel::request(BusUse use, const AtOp& op, BusGrantIf& requester) {
  waiting_.push_back({use, sim_time_now(), op.sequence, op.op.channel_bytes, &requester});
  coordinator_.kick();
}

void AtChannel::set_state(BusUse state) {
  state_ = state;
  traced_state_ = static_cast<unsigned>(state);
}

void AtChannel::on_bus_free() {
  set_state(BusUse::idle);
  coordinator_.kick();
}

bool AtChannel::goes_before(const Request& a, const Request& b) const {
  const bool a_data = a.use == BusUse::data_out;
  const bool b_data = b.use == BusUse::data_out;
  if (a_data != b_data && timing_.arbitration != BusArbitration::fifo) {
    return a_data == (timing_.arbitration == BusArbitration::data_first);
  }
  if (a.asked_at != b.asked_at) return a.asked_at < b.asked_at;
  return a.sequence < b.sequence;
}

SimTime AtChannel::occupy(const Request& request) {
  const SimTime transfer = transfer_time(Bytes{request.bytes}, timing_.channel_bandwidth);
  if (request.use == BusUse::data_out) {
    busy_.data_out += timing_.data_out_setup + transfer;
    return timing_.data_out_setup + transfer;
  }
  busy_.command += timing_.command_time;
  if (request.use == BusUse::command) return timing_.command_time;
  busy_.data_in += transfer;
  return timing_.command_time + transfer;
}

void AtChannel::decide(SimTime /*now*/) {
  if (state_ != BusUse::idle || waiting_.empty()) return;
  const auto next = std::min_element(waiting_.begin(), waiting_.end(),
                                     [this](const Request& a, const Request& b) { return goes_before(a, b); });
  const Request request = *next;
  waiting_.erase(next);
  set_state(request.use);
  const SimTime duration = occupy(request);
  bus_free_.notify(to_sc_time(duration));
  request.requester->granted(duration);
}

void AtChannel::trace(sc_core::sc_trace_file* file) const {
  sc_core::sc_trace(file, traced_state_, std::string(name()) + ".bus_state", 2);
}

}  // namespace csdsim::nfc
