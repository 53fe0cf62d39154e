#include "nfc/sysc/at_channel.h"

#include <string>
#include <utility>

#include "nfc/sysc/sim_time.h"

namespace csdsim::nfc {

AtChannel::AtChannel(const sc_core::sc_module_name& name, const FlashTiming& timing, SettleIf& coordinator,
                     ChannelBusy& busy, std::uint64_t& overflows)
    : sc_module(name), timing_(timing), coordinator_(coordinator), busy_(busy), overflows_(overflows) {
  bus.bind(*this);
  SC_METHOD(on_bus_free);
  sensitive << bus_free_;
  dont_initialize();
  SC_METHOD(changed);
  sensitive << granted_;
  dont_initialize();
}

void AtChannel::changed() {
  changed_ = true;
  show_buffers();
  coordinator_.kick();
}

void AtChannel::show_buffers() {
  const std::uint32_t before = std::exchange(traced_buffers_, in_decoding_ + kept_);
  if (buffer_observer_ != nullptr && timing_.buffer_limit() > 0 && traced_buffers_ != before)
    buffer_observer_->level(channel_, traced_buffers_, sim_time_now());
}

void AtChannel::page_decoded(bool kept) {
  --in_decoding_;
  if (kept) ++kept_;
  changed();
}

void AtChannel::page_released() {
  --kept_;
  --kept_complete_;
  changed();
}

void AtChannel::set_state(BusUse state) {
  state_ = state;
  traced_state_ = static_cast<unsigned>(state);
}

void AtChannel::on_bus_free() {
  set_state(BusUse::idle);
  changed();
}

bool AtChannel::goes_before(const Wish& a, const Wish& b) const {
  const bool a_data = a.use == BusUse::data_out;
  const bool b_data = b.use == BusUse::data_out;
  if (a_data != b_data && timing_.arbitration != BusArbitration::fifo) {
    return a_data == (timing_.arbitration == BusArbitration::data_first);
  }
  if (a.rank != b.rank) return a.rank < b.rank;
  if (a.asked_at != b.asked_at) return a.asked_at < b.asked_at;
  return a.sequence < b.sequence;
}

SimTime AtChannel::select_time(const BusClientIf& client) {
  const bool turns = last_ != nullptr && last_->package() != client.package();
  last_ = &client;
  return turns ? timing_.package_select_time() : SimTime{};
}

void AtChannel::decide(SimTime now) {
  if (!changed_) return;
  changed_ = false;
  const bool no_buffer = timing_.buffer_limit() > 0 && in_decoding_ + kept_ >= timing_.buffer_limit();
  const bool stuck = in_decoding_ == 0 && kept_complete_ == 0;
  BusClientIf* best_client = nullptr;
  const Wish* best = nullptr;
  for (BusClientIf* client : clients_) {
    client->update(now);
    for (const Wish& wish : client->wishes()) {
      if (wish.use == BusUse::data_out && no_buffer && !stuck) continue;
      if (best != nullptr && !goes_before(wish, *best)) continue;
      best = &wish;
      best_client = client;
    }
  }
  if (state_ != BusUse::idle || best == nullptr) return;
  set_state(best->use);
  if (best->use == BusUse::data_out) {
    ++in_decoding_;
    show_buffers();
    if (no_buffer) ++overflows_;
  }
  const SimTime select = select_time(*best_client);
  const ChannelBusy use = best_client->granted(*best, now, select);
  busy_.command += use.command;
  busy_.data_in += use.data_in;
  busy_.data_out += use.data_out;
  busy_.status += use.status;
  busy_.select += select;
  bus_free_.notify(to_sc_time(select + use.total()));
  // The client that loses something by the grant also reconsiders at this time, after all actions that take no time.
  granted_.notify(sc_core::SC_ZERO_TIME);
}

void AtChannel::trace(sc_core::sc_trace_file* file) const {
  sc_core::sc_trace(file, traced_state_, std::string(name()) + ".bus_state", 3);
  sc_core::sc_trace(file, traced_buffers_, std::string(name()) + ".page_buffers");
}

}  // namespace csdsim::nfc
