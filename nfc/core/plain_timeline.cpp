#include "nfc/core/plain_timeline.h"

#include <algorithm>

#include "base/error.h"
#include "base/prefetch.h"

namespace csdsim::nfc {

bool PlainTimeline::covers(const FlashTiming& timing) {
  return !timing.page_types && timing.plane_mode == PlaneMode::independent && !timing.cache_read() &&
         !timing.cache_program() && !timing.suspend && timing.class_priority.empty() &&
         timing.plane_order == PlaneOrder::arrival && timing.status_time.ps == 0 &&
         timing.package_select_time().ps == 0 && !timing.ecc_bandwidth && !timing.filter_bandwidth &&
         !timing.reuse_register;
}

PlainTimeline::PlainTimeline(const FlashGeometry& geometry, const FlashTiming& timing)
    : TimelineBase(geometry, timing), planes_(geometry.planes()), channels_(geometry.channels) {
  init_lookahead(timing.command_time + std::min(timing.program_latency, timing.erase_latency));
  for (std::uint32_t p = 0; p < geometry.planes(); ++p) planes_[p].channel = geometry.channel_of(PlaneId{p}).value;
}

// The steps of a decision, inline in the two functions that make them.

inline void PlainTimeline::ask_for_command(const Plane& plane, std::uint32_t plane_index) {
  const Op& op = ops_[plane.head];
  channels_[plane.channel].commands.insert({std::max(plane.free_at, op.at), op.sequence, plane_index, op.batch});
}

template <class Stages>
inline void PlainTimeline::finish_head(std::uint32_t plane_index, SimTime free_at, SimTime done, Stages&& stages) {
  Plane& plane = planes_[plane_index];
  const std::uint32_t index = plane.head;
  Op& op = ops_[index];
  statistics_.count(op.op_class, op.kind, op.kind == PageOpKind::erase ? 0 : bus_bytes(timing_, op.bytes));
  statistics_.plane_busy[plane_index] += free_at - plane.granted;
  batches_.finish(op.batch, done, op.sequence, stages);
  plane.free_at = free_at;
  plane.head = op.next;
  op.next = free_op_;
  free_op_ = index;
  if (plane.head != kNone) ask_for_command(plane, plane_index);
}

inline bool PlainTimeline::serves_command(const Channel& channel, SimTime now) const {
  // At least one of the two has asked by now; the front of an empty queue never does.
  switch (timing_.arbitration) {
    case BusArbitration::fifo:
      return channel.commands.front().before(channel.data_outs.front());
    case BusArbitration::command_first:
      return channel.commands.front_time() <= now;
    case BusArbitration::data_first:
      return channel.data_outs.front_time() > now;
  }
  throw InternalError("unknown bus arbitration");
}

template <bool kWatched>
inline void PlainTimeline::grant_command(Channel& channel, ChannelBusy& busy, SimTime now) {
  const Ask& ask = channel.commands.front();
  channel.commands.pop();
  Plane& plane = planes_[ask.plane];
  const Op& op = ops_[plane.head];
  if (op.next != kNone) prefetch_line(&ops_[op.next]);
  plane.granted = now;
  busy.command += timing_.command_time;
  channel.bus_free = now + timing_.command_time;
  if (op.kind != PageOpKind::read) return grant_change(Ask{ask}, channel, busy, now);
  SimTime latency = timing_.read_latency;
  if (op.attempt > 0) [[unlikely]] {
    statistics_.plane_busy[ask.plane] += now - plane.free_at;
    latency = timing_.retry_latency.value_or(latency);
  }
  const SimTime sensed = channel.bus_free + latency + read_jitter(timing_, ask.sequence);
  if constexpr (kWatched) {
    tell_command(plane.channel, op.op_class, op.kind, now);
    tell_array(ask.plane, op.op_class, op.kind, channel.bus_free, sensed);
  }
  channel.data_outs.insert({sensed, ask.sequence, ask.plane, ask.batch});
}

/// The command of a program or an erase is granted at `now`.
[[gnu::noinline]] void PlainTimeline::grant_change(const Ask& ask, Channel& channel, ChannelBusy& busy, SimTime now) {
  const Plane& plane = planes_[ask.plane];
  const Op& op = ops_[plane.head];
  SimTime array_time = timing_.erase_latency;
  SimTime data_in{};
  if (op.kind == PageOpKind::program) {
    data_in = bus_time(op.bytes);
    busy.data_in += data_in;
    channel.bus_free += data_in;
    array_time = timing_.program_latency;
  }
  const SimTime done = channel.bus_free + array_time;
  tell_command(plane.channel, op.op_class, op.kind, now);
  if (data_in.ps > 0)
    tell_data(plane.channel, op.op_class, op.kind, op.bytes, channel.bus_free - data_in, channel.bus_free);
  tell_array(ask.plane, op.op_class, op.kind, channel.bus_free, done);
  if (changes_ != nullptr) [[unlikely]] {
    changes_->begins(ask.plane, op.op_class, op.kind, channel.bus_free);
    changes_->ends(ask.plane, op.op_class, op.kind, done);
  }
  statistics_.work(op.kind, array_time, PlaneId{ask.plane}, done);
  finish_head(ask.plane, done, done, [&] {
    return FlashStages{ask.at - op.at, now - ask.at, timing_.command_time, array_time, data_in, SimTime{}};
  });
}

[[gnu::noinline]] void PlainTimeline::retry(std::uint32_t plane_index, const Ask& ask, SimTime now, SimTime transferred,
                                            SimTime decoded) {
  Plane& plane = planes_[plane_index];
  Op& op = ops_[plane.head];
  if (failed_.empty()) failed_.resize(planes_.size());
  const SimTime asked = std::max(plane.free_at, op.at);
  FlashStages& stages = failed_[plane_index];
  if (op.attempt == 0) stages = {asked - op.at};
  stages[at(FlashStage::bus_wait)] += (plane.granted - asked) + (now - ask.at);
  stages[at(FlashStage::command)] += timing_.command_time;
  stages[at(FlashStage::array)] += ask.at - plane.granted - timing_.command_time;
  stages[at(FlashStage::transfer)] += transferred - now;
  stages[at(FlashStage::ecc)] += decoded - transferred;
  ++statistics_.retries;
  statistics_.retry_bytes += bus_bytes(timing_, op.bytes);
  statistics_.plane_busy[plane_index] += decoded - plane.granted;
  --op.retries;
  ++op.attempt;
  plane.free_at = decoded;
  ask_for_command(plane, plane_index);
}

template <bool kWatched>
inline void PlainTimeline::grant_data_out(Channel& channel, ChannelBusy& busy, SimTime now) {
  const Ask& ask = channel.data_outs.front();
  channel.data_outs.pop();
  if (!channel.data_outs.empty()) {
    const Ask& next = channel.data_outs.front();
    prefetch_line(&ops_[planes_[next.plane].head]);
    batches_.prefetch(next.batch);
  }
  const Plane& plane = planes_[ask.plane];
  const Op& op = ops_[plane.head];
  const SimTime occupied = timing_.data_out_setup + bus_time(op.bytes);
  busy.data_out += occupied;
  channel.bus_free = now + occupied;
  if constexpr (kWatched) tell_data(plane.channel, op.op_class, op.kind, op.bytes, now, channel.bus_free);
  statistics_.work(PageOpKind::read, ask.at - plane.granted - timing_.command_time);
  const SimTime decoded = channel.bus_free + timing_.ecc_latency;
  if (kWatched && buffers_.limited() &&
      buffers_.take(plane.channel, batches_.ticket(op.batch), op.retries == 0, now, decoded))
    ++statistics_.buffer_overflows;
  if (op.retries > 0) {
    retry(ask.plane, ask, now, channel.bus_free, decoded);
    return;
  }
  finish_head(ask.plane, channel.bus_free, decoded, [&] {
    const SimTime asked = std::max(plane.free_at, op.at);
    FlashStages stages{asked - op.at,
                       (plane.granted - asked) + (now - ask.at),
                       timing_.command_time,
                       ask.at - plane.granted - timing_.command_time,
                       occupied,
                       timing_.ecc_latency};
    if (op.attempt > 0) {
      stages[at(FlashStage::plane_wait)] = {};
      for (std::size_t s = 0; s < kFlashStages; ++s) stages[s] += failed_[ask.plane][s];
    }
    return stages;
  });
}

template <bool kWatched>
inline SimTime PlainTimeline::next_decision(std::uint32_t index, const Channel& channel) const {
  SimTime data_out = channel.data_outs.front_time();
  if (kWatched && buffers_.limited() && !buffers_.available(index))
    data_out = std::max(data_out, buffers_.next_change(index));
  return std::max(channel.bus_free, std::min(channel.commands.front_time(), data_out));
}

inline SimTime PlainTimeline::next_decision(std::uint32_t index) const {
  return next_decision<true>(index, channels_[index]);
}

/// Makes the decisions of a channel before `bound`; the time of the next one.
template <bool kWatched>
inline SimTime PlainTimeline::advance(std::size_t index, SimTime bound) {
  const auto channel_index = static_cast<std::uint32_t>(index);
  Channel& channel = channels_[channel_index];
  ChannelBusy& busy = statistics_.channels[channel_index];
  SimTime now = next_decision<kWatched>(channel_index, channel);
  SimTime last = front_;
  while (now < bound) {
    last = now;
    const bool limited = kWatched && buffers_.limited();
    if (limited) buffers_.pass(channel_index, now);
    if (!limited || buffers_.available(channel_index)) {
      if (serves_command(channel, now)) {
        grant_command<kWatched>(channel, busy, now);
      } else {
        grant_data_out<kWatched>(channel, busy, now);
      }
    } else if (channel.commands.front_time() <= now) {
      grant_command<kWatched>(channel, busy, now);
    }
    now = next_decision<kWatched>(channel_index, channel);
  }
  front_ = std::max(front_, last);
  return now;
}

inline void PlainTimeline::enqueue(const PageOp& op, SimTime at, std::uint32_t batch) {
  std::uint32_t index = free_op_;
  if (index == kNone) {
    index = static_cast<std::uint32_t>(ops_.size());
    ops_.emplace_back();
  } else {
    free_op_ = ops_[index].next;
  }
  // In place: a copy would wait for the narrow stores of its parts.
  Op& queued = ops_[index];
  queued.at = at;
  queued.sequence = next_sequence_++;
  queued.batch = batch;
  queued.next = kNone;
  queued.bytes = op.channel_bytes;
  queued.kind = op.kind;
  queued.op_class = op.op_class;
  queued.retries = op.retries;
  queued.attempt = 0;

  const std::uint32_t plane_index = plane_of(op.ppa);
  Plane& plane = planes_[plane_index];
  if (plane.head != kNone) {
    ops_[plane.tail].next = index;
    plane.tail = index;
    return;
  }
  plane.head = plane.tail = index;
  start(plane_index);
}

/// A plane that was idle has got an operation: it asks its channel for the command.
[[gnu::noinline]] void PlainTimeline::start(std::uint32_t plane_index) {
  const Plane& plane = planes_[plane_index];
  ask_for_command(plane, plane_index);
  const SimTime next = next_decision(plane.channel);
  if (next != steps_.time(plane.channel)) steps_.set(plane.channel, next);
}

FlashTicket PlainTimeline::submit(std::span<const PageOp> ops, SimTime at, bool hold, bool staged, bool each) {
  check_batch(ops);
  const FlashBatches::Opened batch = batches_.open(ops.size(), staged, each);
  buffers_.open(hold, ops.size());
  at = std::max(at, front_);
  for (const PageOp& op : ops) enqueue(op, at, batch.slot);
  return batch.ticket;
}

void PlainTimeline::release(FlashTicket ticket, SimTime at) {
  if (!buffers_.limited()) return;
  buffers_.release(ticket, std::max(at, front_), [&](std::uint32_t c) {
    const SimTime next = next_decision(c);
    if (next != steps_.time(c)) steps_.set(c, next);
  });
}

template <bool kWatched>
SimTime PlainTimeline::run_channels(SimTime horizon) {
  return run_steps(horizon, [this](std::size_t channel, SimTime bound) { return advance<kWatched>(channel, bound); });
}

SimTime PlainTimeline::run(SimTime horizon) {
  return buffers_.limited() || observed_ ? run_channels<true>(horizon) : run_channels<false>(horizon);
}

}  // namespace csdsim::nfc
