#include "nfc/core/flash_timeline.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace csdsim::nfc {
namespace {

const FlashGeometry& checked(const FlashGeometry& geometry) {
  validate(geometry);
  return geometry;
}

const FlashTiming& checked(const FlashTiming& timing) {
  validate(timing);
  return timing;
}

}  // namespace

FlashTimeline::FlashTimeline(const FlashGeometry& geometry, const FlashTiming& timing)
    : geometry_(checked(geometry)),
      timing_(checked(timing)),
      pages_per_plane_(geometry.pages_per_plane()),
      page_bus_time_(transfer_time(geometry.page_size, timing.channel_bandwidth)),
      lookahead_(
          std::min({timing.data_out_setup + transfer_time(Bytes{1}, timing.channel_bandwidth) + timing.ecc_latency,
                    timing.command_time + timing.program_latency, timing.command_time + timing.erase_latency})),
      planes_(geometry.planes()),
      channels_(geometry.channels),
      decisions_(geometry.channels),
      statistics_(geometry) {
  for (std::uint32_t p = 0; p < geometry.planes(); ++p) planes_[p].channel = geometry.channel_of(PlaneId{p}).value;
}

// The steps of a decision, inline in the two functions that make them.

inline SimTime FlashTimeline::bus_time(std::uint32_t bytes) const {
  return bytes == geometry_.page_size.value ? page_bus_time_ : transfer_time(Bytes{bytes}, timing_.channel_bandwidth);
}

inline void FlashTimeline::ask_for_command(const Plane& plane, std::uint32_t plane_index) {
  const Op& op = ops_[plane.head];
  channels_[plane.channel].commands.insert({std::max(plane.free_at, op.at), op.sequence, plane_index});
}

inline void FlashTimeline::finish_op(std::uint32_t batch_index, SimTime done) {
  Batch& batch = batches_[batch_index];
  batch.done = std::max(batch.done, done);
  if (--batch.remaining != 0) return;
  completions_.insert({batch.done, batch.ticket});
  free_batches_.push_back(batch_index);
}

inline void FlashTimeline::finish_head(std::uint32_t plane_index, SimTime free_at, SimTime done) {
  Plane& plane = planes_[plane_index];
  const std::uint32_t index = plane.head;
  Op& op = ops_[index];
  statistics_.count(op.op_class, op.kind, op.kind == PageOpKind::erase ? 0 : op.bytes);
  statistics_.plane_busy[plane_index] += free_at - plane.granted;
  plane.free_at = free_at;
  plane.head = op.next;
  finish_op(op.batch, done);
  op.next = free_op_;
  free_op_ = index;
  if (plane.head != kNone) ask_for_command(plane, plane_index);
}

inline bool FlashTimeline::serves_command(const Channel& channel, SimTime now) const {
  if (channel.data_outs.empty()) return true;
  if (channel.commands.empty()) return false;
  switch (timing_.arbitration) {
    case BusArbitration::fifo:
      return channel.commands.front().before(channel.data_outs.front());
    case BusArbitration::command_first:
      return channel.commands.front().at <= now;
    case BusArbitration::data_first:
      return channel.data_outs.front().at > now;
  }
  throw InternalError("unknown bus arbitration");
}

inline void FlashTimeline::grant_command(Channel& channel, ChannelBusy& busy, SimTime now) {
  const Ask ask = channel.commands.front();
  channel.commands.pop();
  Plane& plane = planes_[ask.plane];
  plane.granted = now;
  const Op& op = ops_[plane.head];
  busy.command += timing_.command_time;
  channel.bus_free = now + timing_.command_time;
  if (op.kind == PageOpKind::read) {
    channel.data_outs.insert({channel.bus_free + read_time(timing_, ask.sequence), ask.sequence, ask.plane});
    return;
  }
  SimTime array_time = timing_.erase_latency;
  if (op.kind == PageOpKind::program) {
    const SimTime data_in = bus_time(op.bytes);
    busy.data_in += data_in;
    channel.bus_free += data_in;
    array_time = timing_.program_latency;
  }
  const SimTime done = channel.bus_free + array_time;
  finish_head(ask.plane, done, done);
}

inline void FlashTimeline::grant_data_out(Channel& channel, ChannelBusy& busy, SimTime now) {
  const std::uint32_t plane = channel.data_outs.front().plane;
  channel.data_outs.pop();
  const SimTime occupied = timing_.data_out_setup + bus_time(ops_[planes_[plane].head].bytes);
  busy.data_out += occupied;
  channel.bus_free = now + occupied;
  finish_head(plane, channel.bus_free, channel.bus_free + timing_.ecc_latency);
}

inline SimTime FlashTimeline::next_decision(const Channel& channel) const {
  return std::max(channel.bus_free, std::min(front_time(channel.commands), front_time(channel.data_outs)));
}

inline void FlashTimeline::decide(std::size_t channel_index, SimTime now) {
  front_ = now;
  Channel& channel = channels_[channel_index];
  ChannelBusy& busy = statistics_.channels[channel_index];
  if (serves_command(channel, now)) {
    grant_command(channel, busy, now);
  } else {
    grant_data_out(channel, busy, now);
  }
  decisions_.set(channel_index, next_decision(channel));
}

inline void FlashTimeline::enqueue(const PageOp& op, SimTime at, std::uint32_t batch) {
  std::uint32_t index = free_op_;
  if (index == kNone) {
    index = static_cast<std::uint32_t>(ops_.size());
    ops_.emplace_back();
  } else {
    free_op_ = ops_[index].next;
  }
  ops_[index] = {at, next_sequence_++, batch, kNone, op.channel_bytes, op.kind, op.op_class};

  const auto plane_index = static_cast<std::uint32_t>(pages_per_plane_.quotient(op.ppa.value));
  Plane& plane = planes_[plane_index];
  if (plane.head != kNone) {
    ops_[plane.tail].next = index;
    plane.tail = index;
    return;
  }
  plane.head = plane.tail = index;
  ask_for_command(plane, plane_index);
  decisions_.set(plane.channel, next_decision(channels_[plane.channel]));
}

FlashTicket FlashTimeline::submit(std::span<const PageOp> ops, SimTime at) {
  if (ops.empty()) throw InternalError("a flash batch needs at least one page operation");
  for (const PageOp& op : ops) {
    if (!accepts(geometry_, op)) {
      throw InternalError(fmt::format("page {} with {} B on the channel is outside a flash of {} pages of {} B",
                                      op.ppa.value, op.channel_bytes, geometry_.pages(), geometry_.page_size.value));
    }
  }
  std::uint32_t batch;
  if (free_batches_.empty()) {
    batch = static_cast<std::uint32_t>(batches_.size());
    batches_.emplace_back();
  } else {
    batch = free_batches_.back();
    free_batches_.pop_back();
  }
  const FlashTicket ticket{next_ticket_++};
  batches_[batch] = {SimTime{}, ticket, static_cast<std::uint32_t>(ops.size())};
  at = std::max(at, front_);
  for (const PageOp& op : ops) enqueue(op, at, batch);
  return ticket;
}

SimTime FlashTimeline::run(SimTime horizon) {
  SimTime bound = std::min(horizon, next_completion());
  while (decisions_.min() < bound) {
    decide(decisions_.arg_min(), decisions_.min());
    bound = std::min(bound, next_completion());
  }
  return next_completion();
}

void FlashTimeline::take_completions(SimTime now, std::vector<FlashCompletion>& out) {
  while (next_completion() <= now && !completions_.empty()) {
    out.push_back({completions_.front().ticket, completions_.front().at});
    completions_.pop();
  }
}

}  // namespace csdsim::nfc
