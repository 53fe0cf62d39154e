#include "nfc/core/general_timeline.h"

#include <algorithm>
#include <utility>

namespace csdsim::nfc {
namespace {

SimTime shortest(const std::vector<SimTime>& by_type, SimTime otherwise) {
  return by_type.empty() ? otherwise : *std::min_element(by_type.begin(), by_type.end());
}

/// For programs and erases. The array's time is known when the operation starts; for a suspended operation, when it is
/// resumed.
SimTime lookahead_of(const FlashTiming& t) {
  if (t.status_time.ps > 0) return t.status_time;
  const SimTime array = std::min(shortest(t.page_program_latency, t.program_latency), t.erase_latency);
  if (t.suspend == Suspend::none) return array;
  return std::min(array, t.command_time + t.resume_latency + SimTime{1});
}

}  // namespace

GeneralTimeline::GeneralTimeline(const FlashGeometry& geometry, const FlashTiming& timing)
    : TimelineBase(geometry, timing),
      unit_planes_(timing.plane_mode == PlaneMode::independent ? 1 : geometry.planes_per_die),
      planes_read_(timing.plane_mode == PlaneMode::independent_reads),
      ranks_(queue_ranks(timing)),
      classes_(!timing.class_priority.empty()),
      rank_of_(class_ranks(timing)),
      queues_(geometry.planes() * ranks_),
      planes_(geometry.planes()),
      units_(geometry.planes() / unit_planes_ + (planes_read_ ? geometry.planes() : 0)),
      channels_(geometry.channels) {
  init_lookahead(lookahead_of(timing));
  const std::uint32_t writers = geometry.planes() / unit_planes_;
  for (std::uint32_t u = 0; u < units_.size(); ++u) {
    const bool writes = u < writers;
    const PlaneId first{writes ? u * unit_planes_ : u - writers};
    Unit& unit = units_[u];
    unit.first = first.value;
    unit.planes = writes ? unit_planes_ : 1;
    unit.writer = first.value / unit_planes_;
    unit.channel = geometry.channel_of(first).value;
    unit.package = geometry.die_of(first).value % geometry.dies_per_channel / timing.dies_per_package;
    // The units that read come last where they are not those that write.
    each_plane(unit, [&](std::uint32_t, Plane& plane) { plane.unit = u; });
  }
}

FlashTicket GeneralTimeline::submit(std::span<const PageOp> ops, SimTime at, bool hold, bool staged) {
  check_batch(ops);
  const FlashBatches::Opened batch = batches_.open(ops.size(), staged);
  at = std::max(at, front_);
  buffers_.open(hold, ops.size());
  for (const PageOp& op : ops) enqueue(op, at, batch.slot);
  return batch.ticket;
}

void GeneralTimeline::release(FlashTicket ticket, SimTime at) {
  if (!buffers_.limited()) return;
  at = std::max(at, front_);
  buffers_.release(ticket, at, [&](std::uint32_t c) { steps_.set(c, std::min(steps_.time(c), at)); });
}

SimTime GeneralTimeline::run(SimTime horizon) {
  return run_steps(horizon, [this](std::size_t channel, SimTime bound) {
    SimTime next = steps_.time(channel);
    do {
      front_ = std::max(front_, next);
      next = step(channel, next);
    } while (next < bound);
    return next;
  });
}

void GeneralTimeline::enqueue(const PageOp& page_op, SimTime at, std::uint32_t batch) {
  std::uint32_t index = free_op_;
  if (index == kNone) {
    index = static_cast<std::uint32_t>(ops_.size());
    ops_.emplace_back();
  } else {
    free_op_ = ops_[index].next;
  }
  Op& op = ops_[index];
  const std::uint8_t rank = rank_of_[static_cast<std::size_t>(page_op.op_class)];
  op = {.at = at,
        .since = at,
        .stages = {},
        .sequence = next_sequence_++,
        .batch = batch,
        .next = kNone,
        .next_erase = kNone,
        .bytes = page_op.kind == PageOpKind::erase ? 0 : page_op.channel_bytes,
        .page = geometry_.page_in_block(page_op.ppa),
        .ppa = page_op.ppa,
        .kind = page_op.kind,
        .op_class = page_op.op_class,
        .rank = rank,
        .queue = queue_rank(timing_, rank, page_op.kind),
        .retries = page_op.kind == PageOpKind::read ? page_op.retries : std::uint8_t{0},
        .attempt = 0,
        .in_register = false};

  const std::uint32_t p = plane_of(page_op.ppa);
  Plane& plane = planes_[p];
  Queue& queue = queues_[p * ranks_ + op.queue];
  (queue.head == kNone ? queue.head : ops_[queue.tail].next) = index;
  queue.tail = index;
  if (op.kind == PageOpKind::erase) {
    (queue.first_erase == kNone ? queue.first_erase : ops_[queue.last_erase].next_erase) = index;
    queue.last_erase = index;
  }
  if (plane.arrival == at) return;
  plane.arrival = at;
  const std::uint32_t c = units_[plane.unit].channel;
  schedule(channels_[c], at, Event::arrival, p);
  steps_.set(c, std::min(steps_.time(c), at));
}

void GeneralTimeline::unqueue(std::uint32_t p, std::uint32_t index) {
  Queue& queue = queues_[p * ranks_ + ops_[index].queue];
  queue.head = ops_[index].next;
  if (ops_[index].kind == PageOpKind::erase) queue.first_erase = ops_[index].next_erase;
}

void GeneralTimeline::free_op(std::uint32_t index) {
  ops_[index].next = free_op_;
  free_op_ = index;
}

/// Only the heads of the queues are candidates: operations of equal rank keep their order.
std::uint32_t GeneralTimeline::offer(std::uint32_t p, SimTime now) const {
  const Queue* queues = &queues_[p * ranks_];
  const auto before = [&](std::uint32_t y, const Op& x) { return y != kNone && ops_[y].sequence < x.sequence; };
  for (std::size_t r = 0; r < ranks_; ++r) {
    const std::uint32_t index = queues[r].head;
    if (index == kNone || ops_[index].at > now) continue;
    const Op& op = ops_[index];
    bool blocked = false;
    for (std::size_t other = 0; other < r; ++other) blocked |= before(queues[other].head, op);
    if (op.kind != PageOpKind::read) {
      for (std::size_t other = r + 1; other < ranks_; ++other) {
        blocked |= before(op.kind == PageOpKind::erase ? queues[other].head : queues[other].first_erase, op);
      }
    }
    if (!blocked) return index;
  }
  return kNone;
}

void GeneralTimeline::account(std::uint32_t index, FlashStage stage, SimTime now) {
  Op& op = ops_[index];
  op.stages[csdsim::nfc::at(stage)] += now - op.since;
  op.since = now;
}

void GeneralTimeline::schedule(Channel& channel, SimTime at, Event event, std::uint32_t index) {
  channel.agenda.insert({at, channel.entries++, index, event});
}

void GeneralTimeline::touch(std::uint32_t u) {
  u = units_[u].writer;
  Unit& unit = units_[u];
  if (unit.dirty) return;
  unit.dirty = true;
  channels_[unit.channel].dirty.push_back(u);
}

SimTime GeneralTimeline::step(std::size_t c, SimTime now) {
  Channel& channel = channels_[c];
  const auto wanted = [&] { return !channel.commands.empty() || (!channel.data_outs.empty() && has_buffer(c)); };
  for (;;) {
    if (buffers_.limited()) buffers_.pass(static_cast<std::uint32_t>(c), now);
    while (!channel.agenda.empty() && channel.agenda.front().at <= now) {
      const Entry entry = channel.agenda.front();
      channel.agenda.pop();
      happen(entry);
    }
    for (const std::uint32_t u : channel.dirty) refresh(u, now);
    channel.dirty.clear();
    if (channel.bus_free > now || !wanted()) break;
    decide(c, now);
  }
  SimTime next = channel.agenda.empty() ? SimTime::max() : channel.agenda.front().at;
  if (wanted()) next = std::min(next, channel.bus_free);
  if (buffers_.limited() && !channel.data_outs.empty())
    next = std::min(next, buffers_.next_change(static_cast<std::uint32_t>(c)));
  return next;
}

void GeneralTimeline::happen(const Entry& entry) {
  switch (entry.event) {
    case Event::arrival:
      return touch(planes_[entry.index].unit);
    case Event::commands_in:
      return commands_in(entry.index, entry.at);
    case Event::work_end:
      // A suspended group ends later.
      if (units_[entry.index].phase == Phase::working && units_[entry.index].work_end == entry.at) {
        work_end(entry.index, entry.at);
      }
      return;
    case Event::moved:
      return moved(entry.index, entry.at);
    case Event::stopped:
      return stopped(entry.index);
    case Event::resumed:
      units_[entry.index].phase = Phase::working;
      units_[entry.index].work_since = entry.at;
      return touch(entry.index);
    case Event::status_end:
      return leave_array(entry.index, entry.at);
    case Event::page_out:
      return page_out(entry.index, entry.at);
    case Event::decoded:
      return page_over(planes_[entry.index].unit, entry.at);
  }
}

void GeneralTimeline::commands_in(std::uint32_t u, SimTime now) {
  Unit& unit = units_[u];
  if (unit.phase == Phase::command) return start_work(u, now);
  unit.cached = Cached::ready;
  if (unit.phase == Phase::idle) start_cached(u, now);
}

SimTime GeneralTimeline::array_time(const Op& op) const {
  if (op.kind == PageOpKind::erase) return timing_.erase_latency;
  if (op.kind == PageOpKind::program) return program_time(timing_, op.page);
  return op.in_register ? SimTime{} : read_time(timing_, op.page, op.attempt, op.sequence);
}

void GeneralTimeline::start_work(std::uint32_t u, SimTime now) {
  Unit& unit = units_[u];
  SimTime longest{};
  each_plane(unit, [&](std::uint32_t, const Plane& plane) {
    if (plane.array == kNone) return;
    longest = std::max(longest, array_time(ops_[plane.array]));
  });
  unit.phase = Phase::working;
  unit.work_since = now;
  unit.work_end = now + longest;
  schedule(channels_[unit.channel], unit.work_end, Event::work_end, u);
  if (unit.array.kind != PageOpKind::read) publish(u, unit.work_end);
  touch(u);
}

/// Without a status poll the group is done when the array is, unless it is suspended before.
void GeneralTimeline::publish(std::uint32_t u, SimTime done) {
  if (timing_.status_time.ps > 0) return;
  each_plane(units_[u], [&](std::uint32_t, const Plane& plane) {
    if (plane.array == kNone) return;
    const Op& op = ops_[plane.array];
    batches_.finish(op.batch, done, op.sequence, [&] {
      FlashStages stages = op.stages;
      stages[at(FlashStage::array)] += done - op.since;
      return stages;
    });
  });
}

void GeneralTimeline::work_end(std::uint32_t u, SimTime now) {
  Unit& unit = units_[u];
  tell_work(unit, now);
  each_plane(unit, [&](std::uint32_t, const Plane& plane) {
    if (plane.array != kNone) account(plane.array, FlashStage::array, now);
  });
  if (unit.array.kind == PageOpKind::read) {
    unit.phase = Phase::sensed;
    if (unit.outputs == 0) to_output(u, now);
  } else if (timing_.status_time.ps > 0) {
    unit.phase = Phase::status;
  } else {
    leave_array(u, now);
  }
  touch(u);
}

void GeneralTimeline::to_output(std::uint32_t u, SimTime now) {
  Unit& unit = units_[u];
  each_plane(unit, [&](std::uint32_t, const Plane& plane) {
    if (plane.array != kNone) account(plane.array, FlashStage::bus_wait, now);
  });
  unit.phase = Phase::moving;
  if (timing_.cache_read && timing_.cache_busy_time.ps > 0) {
    schedule(channels_[unit.channel], now + timing_.cache_busy_time, Event::moved, u);
  } else {
    moved(u, now);
  }
}

void GeneralTimeline::moved(std::uint32_t u, SimTime now) {
  Unit& unit = units_[u];
  if (unit.array.kind != PageOpKind::read) return start_work(u, now);
  unit.output_fails = false;
  each_plane(unit, [&](std::uint32_t p, Plane& plane) {
    if (plane.array == kNone) return;
    account(plane.array, FlashStage::array, now);
    plane.output = plane.array;
    plane.array = kNone;
    const Op& op = ops_[plane.output];
    ++unit.outputs;
    unit.output_fails |= op.retries > 0;
    channels_[unit.channel].data_outs.insert({now, op.sequence, p, op.rank, Want::data_out});
  });
  unit.phase = Phase::idle;
  touch(u);
}

void GeneralTimeline::stopped(std::uint32_t u) {
  Unit& unit = units_[u];
  unit.held = unit.array;
  unit.suspended = true;
  unit.phase = Phase::idle;
  each_plane(unit, [](std::uint32_t, Plane& plane) { plane.held = std::exchange(plane.array, kNone); });
  touch(u);
}

void GeneralTimeline::leave_array(std::uint32_t u, SimTime now) {
  Unit& unit = units_[u];
  each_plane(unit, [&](std::uint32_t p, Plane& plane) {
    if (plane.array == kNone) return;
    free_op(std::exchange(plane.array, kNone));
    vacate(p, now);
  });
  unit.phase = Phase::idle;
  unit.suspend_sent = false;
  if (unit.cached == Cached::ready) start_cached(u, now);
  touch(u);
}

void GeneralTimeline::start_cached(std::uint32_t u, SimTime now) {
  Unit& unit = units_[u];
  each_plane(unit, [&](std::uint32_t, Plane& plane) {
    if (plane.cached == kNone) return;
    account(plane.cached, FlashStage::plane_wait, now);
    plane.array = std::exchange(plane.cached, kNone);
  });
  unit.array = unit.behind;
  unit.cached = Cached::none;
  if (timing_.cache_busy_time.ps == 0) return start_work(u, now);
  unit.phase = Phase::moving;
  schedule(channels_[unit.channel], now + timing_.cache_busy_time, Event::moved, u);
}

void GeneralTimeline::page_out(std::uint32_t p, SimTime now) {
  free_op(std::exchange(planes_[p].output, kNone));
  vacate(p, now);
  page_over(planes_[p].unit, now);
}

void GeneralTimeline::page_over(std::uint32_t u, SimTime now) {
  Unit& unit = units_[u];
  if (--unit.outputs > 0) return;
  if (unit.phase == Phase::sensed) to_output(u, now);
  touch(u);
}

void GeneralTimeline::occupy(Plane& plane, SimTime now) {
  if (plane.occupants++ == 0) plane.occupied_since = now;
}

void GeneralTimeline::vacate(std::uint32_t p, SimTime now) {
  if (--planes_[p].occupants == 0) statistics_.plane_busy[p] += now - planes_[p].occupied_since;
}

}  // namespace csdsim::nfc
