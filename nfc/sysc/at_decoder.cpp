#include "nfc/sysc/at_decoder.h"

#include <string>
#include <utility>

#include "nfc/sysc/sim_time.h"

namespace csdsim::nfc {

AtDecoder::AtDecoder(const sc_core::sc_module_name& name, const FlashTiming& timing, SimTime& busy)
    : sc_module(name), timing_(timing), busy_(busy) {
  pages.bind(*this);
  SC_METHOD(on_served);
  sensitive << served_;
  dont_initialize();
  SC_METHOD(on_line_end);
  sensitive << line_end_;
  dont_initialize();
}

void AtDecoder::decode(std::uint32_t plane, const AtOp& op, DecodedIf& owner) {
  Page page{plane, op, &owner, {}};
  ++traced_pages_;
  if (!timing_.ecc_bandwidth) return enter_line(std::move(page));
  queue_.push_back(std::move(page));
  if (queue_.size() == 1) serve();
}

void AtDecoder::serve() {
  const SimTime time =
      transfer_time(Bytes{bus_bytes(timing_, queue_.front().op.op.channel_bytes)}, *timing_.ecc_bandwidth);
  busy_ += time;
  if (observer_ != nullptr)
    observer_->work(channel_, "decode", sim_time_now(), sim_time_now() + time, queue_.front().op.op.channel_bytes);
  served_.notify(to_sc_time(time));
}

void AtDecoder::on_served() {
  Page page = std::move(queue_.front());
  queue_.pop_front();
  if (!queue_.empty()) serve();
  enter_line(std::move(page));
}

void AtDecoder::enter_line(Page page) {
  if (timing_.ecc_latency == SimTime{}) return finish(page);
  page.leaves_at = sim_time_now() + timing_.ecc_latency;
  line_.push_back(std::move(page));
  if (line_.size() == 1) line_end_.notify(to_sc_time(timing_.ecc_latency));
}

void AtDecoder::on_line_end() {
  const SimTime now = sim_time_now();
  while (!line_.empty() && line_.front().leaves_at == now) {
    Page page = std::move(line_.front());
    line_.pop_front();
    finish(page);
  }
  if (!line_.empty()) line_end_.notify(to_sc_time(line_.front().leaves_at - now));
}

void AtDecoder::finish(Page& page) {
  page.op.account(FlashStage::ecc, sim_time_now());
  --traced_pages_;
  page.owner->decoded(page.plane, page.op);
}

void AtDecoder::trace(sc_core::sc_trace_file* file) const {
  sc_core::sc_trace(file, traced_pages_, std::string(name()) + ".pages");
}

}  // namespace csdsim::nfc
