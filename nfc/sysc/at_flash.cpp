#include "nfc/sysc/at_flash.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "nfc/core/flash_timeline.h"
#include "nfc/sysc/sim_time.h"

namespace csdsim::nfc {

AtFlash::AtFlash(const sc_core::sc_module_name& name, const FlashGeometry& geometry, const FlashTiming& timing,
                 const UnitPool::Make& filter)
    : FlashTarget(name, geometry, timing.word_line_pages),
      geometry_(geometry),
      timing_(timing),
      statistics_(geometry),
      ranks_(class_ranks(timing)),
      limited_(timing.buffer_limit() > 0) {
  validate(timing);
  // Its stages are kernel events, so the event loop must not run ahead.
  hold_.engage();
  for (std::uint32_t c = 0; c < geometry.channels; ++c) {
    const std::string channel_name = "channel" + std::to_string(c);
    channels_.push_back(std::make_unique<AtChannel>(channel_name.c_str(), timing, *this, statistics_.channels[c],
                                                    statistics_.buffer_overflows));
    decoders_.push_back(
        std::make_unique<AtDecoder>((channel_name + "_decoder").c_str(), timing, statistics_.decoder_busy[c]));
    if (timing.filter_bandwidth)
      filters_.push_back(std::make_unique<AtFilter>((channel_name + "_filter").c_str(), timing, c, filter, statistics_,
                                                    [this](const AtOp& op) { passed(op); }));
    for (std::uint32_t d = 0; d < geometry.dies_per_channel; ++d) {
      const std::string die_name = channel_name + "_die" + std::to_string(d);
      const PlaneId first = geometry.plane(ChannelId{c}, d, 0);
      dies_.push_back(std::make_unique<AtDie>(die_name.c_str(), geometry, timing, first));
      dies_.back()->bus.bind(channels_.back()->bus);
      dies_.back()->decoder.bind(decoders_.back()->pages);
      dies_.back()->done.bind(*this);
    }
  }
}

bool AtFlash::observe(const FlashObservers& observers) {
  observers_ = observers;
  for (std::uint32_t c = 0; c < geometry_.channels; ++c) {
    channels_[c]->observe(observers.buffers, c);
    decoders_[c]->observe(observers.decoders, c);
    if (!filters_.empty()) filters_[c]->observe(observers.filters);
  }
  return true;
}

FlashTicket AtFlash::submit(std::span<const PageOp> ops, SimTime at, bool hold, bool /*staged*/) {
  if (ops.empty()) throw InternalError("a flash batch needs at least one page operation");
  for (const PageOp& op : ops)
    if (!accepts(geometry_, timing_.word_line_pages, op)) throw InternalError("a page operation outside the flash");
  const std::uint64_t ticket = next_ticket_++;
  hold &= limited_;
  batches_[ticket].open = ops.size();
  batches_[ticket].hold = hold;
  for (const PageOp& op : ops) {
    const PlaneId plane = geometry_.plane_of(op.ppa);
    AtOp at_op{op, next_sequence_++, ticket, at};
    at_op.rank = ranks_[static_cast<std::size_t>(op.op_class)];
    at_op.since = at;
    at_op.hold = hold;
    dies_[geometry_.die_of(plane).value]->submit(plane.value % geometry_.planes_per_die, at_op);
  }
  return FlashTicket{ticket};
}

void AtFlash::kick() { decide_by(sim_time_now()); }

SimTime AtFlash::decide(SimTime /*bound*/) {
  for (const auto& channel : channels_) channel->decide(sim_time_now());
  return SimTime::max();
}

void AtFlash::plane_free(PlaneId plane, SimTime occupied_since) {
  statistics_.plane_busy[plane.value] += sim_time_now() - occupied_since;
}

void AtFlash::last_granted(const AtOp& op) {
  const SimTime time = array_time(timing_, geometry_, op);
  const std::uint32_t bytes = op.op.kind == PageOpKind::erase ? 0 : bus_bytes(timing_, op.op.channel_bytes);
  if (op.op.kind == PageOpKind::read) {
    statistics_.work(op.op.kind, time);
    statistics_.register_reads += op.in_register ? 1 : 0;
  } else {
    const SimTime data_in = transfer_time(Bytes{bytes}, timing_.channel_bandwidth);
    statistics_.unfinished.pass(sim_time_now());
    const SimTime end = sim_time_now() + timing_.command_time + data_in + time;
    statistics_.work(op.op.kind, time, geometry_.plane_of(op.op.ppa), end);
  }
  if (op.fails()) {
    ++statistics_.retries;
    statistics_.retry_bytes += bytes;
    return;
  }
  statistics_.count(op.op.op_class, op.op.kind, bytes);
}

void AtFlash::op_done(const AtOp& op) {
  const bool filtered = !filters_.empty() && op.op.kind == PageOpKind::read && op.op.op_class == OpClass::attend;
  if (filtered) return filters_[channel_of(op)]->take(op);
  passed(op);
}

/// The operation is over: its page, if it has to, has passed the filter.
void AtFlash::passed(const AtOp& op) {
  Batch& batch = batches_.at(op.ticket);
  if (op.op.kind == PageOpKind::read) {
    channels_[channel_of(op)]->page_decoded(op.hold);
    if (op.hold) batch.kept.push_back(channel_of(op));
  }
  const SimTime now = sim_time_now();
  if (now > batch.done || op.sequence > batch.last) {
    batch.done = now;
    batch.last = op.sequence;
    batch.stages = op.stages;
  }
  if (--batch.open > 0) return;
  complete_.push_back(op.ticket);
  respond_at(sim_time_now());
}

void AtFlash::retried(const AtOp& op) { channels_[channel_of(op)]->page_decoded(false); }

void AtFlash::release(FlashTicket ticket) {
  if (!limited_) return;
  const auto pages = unreleased_.find(ticket.value);
  if (pages == unreleased_.end()) throw InternalError("a flash batch is released that holds nothing");
  for (const std::size_t c : pages->second) channels_[c]->page_released();
  unreleased_.erase(pages);
}

void AtFlash::respond() {
  std::sort(complete_.begin(), complete_.end());
  for (const std::uint64_t ticket : complete_) {
    completions().push_back({FlashTicket{ticket}, sim_time_now(), batches_.at(ticket).stages});
    if (batches_.at(ticket).hold) {
      for (const std::size_t c : batches_.at(ticket).kept) channels_[c]->batch_complete();
      unreleased_[ticket] = batches_.at(ticket).kept;
    }
    batches_.erase(ticket);
  }
  complete_.clear();
  notify_clients();
}

void AtFlash::trace(sc_core::sc_trace_file* file) const {
  for (const auto& channel : channels_) channel->trace(file);
  for (const auto& decoder : decoders_) decoder->trace(file);
  for (const auto& filter : filters_) filter->trace(file);
  for (const auto& die : dies_) die->trace(file);
}

}  // namespace csdsim::nfc
