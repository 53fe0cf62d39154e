#include "nfc/core/general_timeline.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>
#include "base/error.h"
#include "base/prefetch.h"

namespace csdsim::nfc {
namespace {

SimTime shortest(const std::vector<SimTime>& by_type, SimTime otherwise) {
  return by_type.empty() ? otherwise : *std::min_element(by_type.begin(), by_type.end());
}

/// For programs and erases. The array's time is known when the operation starts; for a suspended operation, when it is
/// resumed.
SimTime lookahead_of(const FlashTiming& t) {
  if (t.status_time.ps > 0) return t.status_time;
  const SimTime program = t.page_types ? shortest(t.page_types->program_latency, t.program_latency) : t.program_latency;
  const SimTime array = std::min(program, t.erase_latency);
  return t.suspend ? std::min(array, t.command_time + t.suspend->resume_latency + SimTime{1}) : array;
}

}  // namespace

GeneralTimeline::GeneralTimeline(const FlashGeometry& geometry, const FlashTiming& timing)
    : TimelineBase(geometry, timing),
      by_block_(geometry.pages_per_block),
      unit_planes_(timing.plane_mode == PlaneMode::independent ? 1 : geometry.planes_per_die),
      planes_read_(timing.plane_mode == PlaneMode::independent_reads),
      ranks_(queue_ranks(timing)),
      classes_(!timing.class_priority.empty()),
      rank_of_(class_ranks(timing)),
      queues_(geometry.planes() * ranks_),
      planes_(geometry.planes()),
      units_(geometry.planes() / unit_planes_ + (planes_read_ ? geometry.planes() : 0)),
      channels_(geometry.channels),
      may_read_ahead_((planes_read_ || unit_planes_ == 1) && !classes_ && !timing.cache_read() && !buffers_.limited()),
      dies_in_steps_(may_read_ahead_ ? 0 : geometry.planes() / unit_planes_) {
  init_lookahead(lookahead_of(timing));
  for (Plane& plane : planes_) plane.ahead = may_read_ahead_;
  for (Channel& channel : channels_) channel.dies_in_steps = dies_in_steps_ / geometry.channels;
  const std::uint32_t writers = geometry.planes() / unit_planes_;
  for (std::uint32_t u = 0; u < units_.size(); ++u) {
    const bool writes = u < writers;
    const PlaneId first{writes ? u * unit_planes_ : u - writers};
    Unit& unit = units_[u];
    unit.first = first.value;
    unit.planes = writes ? unit_planes_ : 1;
    unit.writer = first.value / unit_planes_;
    unit.channel = geometry.channel_of(first).value;
    unit.package = geometry.die_of(first).value % geometry.dies_per_channel / timing.dies_per_package();
    // The units that read come last where they are not those that write.
    each_plane(unit, [&](std::uint32_t, Plane& plane) {
      plane.unit = u;
      plane.die = unit.writer;
      plane.channel = unit.channel;
      plane.package = unit.package;
    });
  }
}

FlashTicket GeneralTimeline::submit(std::span<const PageOp> ops, SimTime at, bool hold, bool staged, bool each) {
  check_batch(ops);
  const FlashBatches::Opened batch = batches_.open(ops.size(), staged, each);
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
    if (channels_[channel].dies_in_steps == 0 && channels_[channel].agenda.empty()) return run_ahead(channel, bound);
    SimTime next = steps_.time(channel);
    do {
      front_ = std::max(front_, next);
      next = step(channel, next);
    } while (next < bound);
    return next;
  });
}

inline void GeneralTimeline::enqueue(const PageOp& page_op, SimTime at, std::uint32_t batch) {
  std::uint32_t index = free_op_;
  if (index == kNone) {
    index = static_cast<std::uint32_t>(ops_.size());
    ops_.emplace_back();
  } else {
    free_op_ = ops_[index].next;
  }
  // In place: a copy would wait for the narrow stores of its parts.
  Op& op = ops_[index];
  const bool read = page_op.kind == PageOpKind::read;
  op.at = at;
  op.since = at;
  op.sequence = next_sequence_++;
  op.batch = batch;
  op.next = kNone;
  op.next_erase = kNone;
  op.bytes = page_op.kind == PageOpKind::erase ? 0 : page_op.channel_bytes;
  op.page =
      static_cast<std::uint32_t>(page_op.ppa.value - by_block_.quotient(page_op.ppa.value) * geometry_.pages_per_block);
  op.ppa = page_op.ppa;
  op.kind = page_op.kind;
  op.op_class = page_op.op_class;
  op.rank = rank_of_[static_cast<std::size_t>(page_op.op_class)];
  op.queue = queue_rank(timing_, op.rank, page_op.kind);
  op.retries = read ? page_op.retries : std::uint8_t{0};
  op.attempt = 0;
  op.in_register = false;
  op.stages = batches_.staged(batch) ? Kept::none_yet : Kept::no;

  const std::uint32_t p = plane_of(page_op.ppa);
  Plane& plane = planes_[p];
  if (plane.ahead && (!read || observed_)) leave_ahead(plane.die);
  if (!read) ++units_[plane.die].queued_writes;
  plane.latest = std::max(plane.latest, at);
  Queue& queue = queues_[p * ranks_ + op.queue];
  (queue.head == kNone ? queue.head : ops_[queue.tail].next) = index;
  queue.tail = index;
  if (page_op.kind == PageOpKind::erase) {
    (queue.first_erase == kNone ? queue.first_erase : ops_[queue.last_erase].next_erase) = index;
    queue.last_erase = index;
  }
  const std::uint32_t c = plane.channel;
  if (plane.ahead) {
    if (plane.offered != kNone || plane.array != kNone) return;
    ask_ahead(channels_[c], plane, p);
    const SimTime next = std::max(channels_[c].bus_free, plane.command.at);
    if (next < steps_.time(c)) steps_.set(c, next);
    return;
  }
  plane.stale = true;
  if (plane.arrival == at) return;
  plane.arrival = at;
  schedule(channels_[c], at, Event::arrival, p);
  steps_.set(c, std::min(steps_.time(c), at));
}

void GeneralTimeline::unqueue(std::uint32_t p, std::uint32_t index) {
  Queue& queue = queues_[p * ranks_ + ops_[index].queue];
  queue.head = ops_[index].next;
  if (ops_[index].kind == PageOpKind::erase) queue.first_erase = ops_[index].next_erase;
  if (ops_[index].kind != PageOpKind::read) --units_[units_[planes_[p].unit].writer].queued_writes;
  planes_[p].stale = true;
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

std::uint32_t GeneralTimeline::find_first(std::uint32_t p, SimTime now) {
  Plane& plane = planes_[p];
  plane.stale = false;
  plane.first = offer(p, now);
  const bool writes = plane.first != kNone && ops_[plane.first].kind != PageOpKind::read;
  if (writes != plane.first_writes) {
    std::uint32_t& planes = units_[units_[plane.unit].writer].writes;
    writes ? ++planes : --planes;
    plane.first_writes = writes;
  }
  return plane.first;
}

void GeneralTimeline::add_stage(std::uint32_t index, FlashStage stage, SimTime now) {
  Op& op = ops_[index];
  if (op.stages == Kept::none_yet) {
    if (stages_.size() < ops_.size()) stages_.resize(ops_.size());
    stages_[index] = {};
    op.stages = Kept::some;
  }
  stages_[index][csdsim::nfc::at(stage)] += now - op.since;
  op.since = now;
}

void GeneralTimeline::schedule(Channel& channel, SimTime at, Event event, std::uint32_t index) {
  channel.agenda.insert({at, channel.entries++, index, event});
}

void GeneralTimeline::touch(std::uint32_t touched) {
  const std::uint32_t u = units_[touched].writer;
  Unit& unit = units_[u];
  unit.dirty_planes |= touched == u ? ~std::uint64_t{0} : plane_bit(units_[touched].first - unit.first);
  if (unit.dirty) return;
  unit.dirty = true;
  channels_[unit.channel].dirty.push_back(u);
}

SimTime GeneralTimeline::step(std::size_t c, SimTime now) {
  Channel& channel = channels_[c];
  for (;;) {
    if (buffers_.limited()) buffers_.pass(static_cast<std::uint32_t>(c), now);
    while (!channel.agenda.empty() && channel.agenda.front().at <= now) {
      const Entry entry = channel.agenda.front();
      channel.agenda.pop();
      happen(entry);
    }
    for (const std::uint32_t u : channel.dirty) refresh(u, now);
    channel.dirty.clear();
    if (channel.bus_free > now || next_ask(c) > now) break;
    decide(c, now);
  }
  return next_step(c);
}

SimTime GeneralTimeline::next_step(std::size_t c) const {
  const Channel& channel = channels_[c];
  SimTime next = std::min(channel.agenda.front_time(), std::max(channel.bus_free, next_ask(c)));
  if (buffers_.limited() && !channel.data_outs.empty())
    next = std::min(next, buffers_.next_change(static_cast<std::uint32_t>(c)));
  return next;
}

void GeneralTimeline::happen(const Entry& entry) {
  switch (entry.event) {
    case Event::arrival:
      planes_[entry.index].stale = true;
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
    case Event::left:
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
  return sensing_time(op);
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
  if (unit.array.kind != PageOpKind::read) {
    tell_change(unit, &ChangeObserver::begins, now);
    publish(u, unit.work_end);
  }
  touch(u);
}

/// Without a status poll the group is done when the array is, unless it is suspended before.
void GeneralTimeline::publish(std::uint32_t u, SimTime done) {
  if (timing_.status_time.ps > 0) return;
  each_plane(units_[u], [&](std::uint32_t, const Plane& plane) {
    if (plane.array == kNone) return;
    const Op& op = ops_[plane.array];
    batches_.finish(op.batch, done, op.sequence, [&] {
      FlashStages stages = stages_[plane.array];
      stages[at(FlashStage::array)] += done - op.since;
      return stages;
    });
  });
}

void GeneralTimeline::work_end(std::uint32_t u, SimTime now) {
  Unit& unit = units_[u];
  tell_work(unit, now);
  if (unit.array.kind != PageOpKind::read) tell_change(unit, &ChangeObserver::ends, now);
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
  if (timing_.cache_read() && timing_.cache_busy_time().ps > 0) {
    schedule(channels_[unit.channel], now + timing_.cache_busy_time(), Event::moved, u);
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
  if (unit.queued_writes == 0) try_ahead(u, now);
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
  if (timing_.cache_busy_time().ps == 0) return start_work(u, now);
  unit.phase = Phase::moving;
  schedule(channels_[unit.channel], now + timing_.cache_busy_time(), Event::moved, u);
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

bool GeneralTimeline::urgent_read(const Group& group, const Op& op) const {
  return op.kind == PageOpKind::read && (!classes_ || op.rank < group.rank);
}

bool GeneralTimeline::suspendable(const Unit& unit) const {
  return timing_.suspend && timing_.suspend->covers(unit.array.kind) && unit.phase == Phase::working &&
         unit.cached == Cached::none && !unit.suspend_sent && unit.array.suspends < timing_.suspend->max;
}

bool GeneralTimeline::takes(const Unit& unit, const Op& op) const {
  if (unit.suspended && !urgent_read(unit.held, op)) return false;
  const bool idle = unit.phase == Phase::idle && unit.cached == Cached::none;
  const bool empty = idle && unit.outputs == 0;
  switch (op.kind) {
    case PageOpKind::read:
      return empty || (idle && timing_.cache_read() && !unit.output_fails);
    case PageOpKind::program:
      return empty || (timing_.cache_program() && unit.array.kind == PageOpKind::program &&
                       unit.cached == Cached::none && !unit.suspend_sent &&
                       (unit.phase == Phase::working || unit.phase == Phase::status || unit.phase == Phase::polling));
    case PageOpKind::erase:
      return empty;
  }
  throw InternalError("unknown kind of page operation");
}

bool GeneralTimeline::goes_before(const Op& a, const Op& b) const {
  return a.queue != b.queue ? a.queue < b.queue : a.sequence < b.sequence;
}

GeneralTimeline::DieOffers GeneralTimeline::die_offers(const Unit& die, SimTime now) {
  DieOffers offers;
  each_plane(die, [&](std::uint32_t p, const Plane& plane) {
    const Unit& reader = units_[plane.unit];
    offers.reading |= reader.phase != Phase::idle || reader.outputs > 0 || reader.failures > 0;
    const std::uint32_t index = first(p, now);
    if (index == kNone) return;
    const Op*& earliest = ops_[index].kind == PageOpKind::read ? offers.read : offers.write;
    if (earliest == nullptr || goes_before(ops_[index], *earliest)) earliest = &ops_[index];
  });
  return offers;
}

bool GeneralTimeline::may_start(const Unit& die, const DieOffers& offers, const Unit& reader, const Op& op) const {
  if (!planes_read_) return takes(die, op);
  if (op.kind != PageOpKind::read) {
    const bool first = offers.read == nullptr || goes_before(*offers.write, *offers.read);
    return first && takes(die, op) && (die.phase != Phase::idle || !offers.reading);
  }
  if (die.phase != Phase::idle || die.cached != Cached::none || !takes(reader, op)) return false;
  if (die.suspended) return urgent_read(die.held, op);
  return offers.write == nullptr || goes_before(op, *offers.write);
}

void GeneralTimeline::withdraw(Ask& ask, Channel& channel) {
  if (ask.want != Want::nothing) channel.commands.erase(ask);
  ask.want = Want::nothing;
}

void GeneralTimeline::set_ask(Ask& ask, const Ask& wanted, Channel& channel, SimTime now) {
  if (ask.want == wanted.want && (ask.want == Want::nothing || ask.sequence == wanted.sequence)) return;
  withdraw(ask, channel);
  ask = wanted;
  ask.at = now;
  if (ask.want != Want::nothing) channel.commands.insert(ask);
}

void GeneralTimeline::ask_for_command(std::uint32_t p, std::uint32_t op, SimTime now) {
  Plane& plane = planes_[p];
  if (plane.offered == op) return;
  if (plane.offered != kNone) account(plane.offered, FlashStage::bus_wait, now);
  if (op != kNone) account(op, FlashStage::plane_wait, now);
  plane.offered = op;
  const Ask ask = op == kNone ? Ask{} : Ask{now, ops_[op].sequence, p, ops_[op].rank, Want::command};
  set_ask(plane.command, ask, channels_[units_[plane.unit].channel], now);
}

void GeneralTimeline::refresh(std::uint32_t u, SimTime now) {
  Unit& unit = units_[u];
  unit.dirty = false;
  const std::uint64_t planes = std::exchange(unit.dirty_planes, 0);
  if (planes_[unit.first].ahead) return;
  // A change of the die concerns all of its planes.
  if (planes != ~std::uint64_t{0} && only_reads(unit) && refresh_reads(unit, planes, now)) return;
  refresh_all(u, now);
}

/// Asks for the commands of these planes; the others of the die neither change nor hold them back. False if a program
/// or an erase is among what has arrived.
bool GeneralTimeline::refresh_reads(Unit& die, std::uint64_t planes, SimTime now) {
  for (; planes != 0; planes &= planes - 1) {
    for (auto in_die = static_cast<std::uint32_t>(std::countr_zero(planes)); in_die < die.planes; in_die += 64) {
      const std::uint32_t p = die.first + in_die;
      const Unit& reader = units_[planes_[p].unit];
      const bool again = reader.outputs == 0 && reader.failures > 0;
      std::uint32_t op = first(p, now);
      if (die.writes > 0) return false;
      if (again) op = planes_[p].output;
      if (!again && op != kNone && !takes(reader, ops_[op])) op = kNone;
      ask_for_command(p, op, now);
    }
  }
  return true;
}

void GeneralTimeline::refresh_all(std::uint32_t u, SimTime now) {
  Unit& unit = units_[u];
  const DieOffers offers = planes_read_ ? die_offers(unit, now) : DieOffers{};
  const bool may_suspend = suspendable(unit);
  bool offered = false;
  const Op* reader = nullptr;
  each_plane(unit, [&](std::uint32_t p, const Plane& plane) {
    const Unit& output = units_[plane.unit];
    const bool again = output.outputs == 0 && output.failures > 0;
    std::uint32_t op = again ? plane.output : first(p, now);
    if (!again && op != kNone && !may_start(unit, offers, output, ops_[op])) {
      const Op& other = ops_[op];
      if (may_suspend && urgent_read(unit.array, other) &&
          (reader == nullptr || other.rank < reader->rank ||
           (other.rank == reader->rank && other.sequence < reader->sequence))) {
        reader = &other;
      }
      op = kNone;
    }
    offered |= op != kNone;
    ask_for_command(p, op, now);
  });

  Ask wanted;
  if (unit.phase == Phase::status) {
    wanted = {now, unit.array.sequence, u, unit.array.rank, Want::status};
  } else if (reader != nullptr) {
    wanted = {now, reader->sequence, u, reader->rank, Want::suspend};
  } else if (unit.suspended && unit.phase == Phase::idle && unit.outputs == 0 && !offers.reading && !offered) {
    wanted = {now, unit.held.sequence, u, unit.held.rank, Want::resume};
  }
  set_ask(unit.ask, wanted, channels_[unit.channel], now);
}

/// The observer is told of work when it ends or is suspended.
void GeneralTimeline::tell_work(const Unit& unit, SimTime end) {
  if (observers_.planes == nullptr) return;
  each_plane(unit, [&](std::uint32_t p, const Plane& plane) {
    if (plane.array != kNone) tell_array(p, ops_[plane.array].op_class, unit.array.kind, unit.work_since, end);
  });
}

void GeneralTimeline::tell_change(const Unit& unit, Change change, SimTime at) {
  if (changes_ == nullptr) return;
  each_plane(unit, [&](std::uint32_t p, const Plane& plane) {
    if (plane.array != kNone) (changes_->*change)(p, ops_[plane.array].op_class, unit.array.kind, at);
  });
}

bool GeneralTimeline::has_buffer(std::size_t c) const {
  return !buffers_.limited() || buffers_.available(static_cast<std::uint32_t>(c));
}

/// At least one of the two has asked by now, or the front of one is never due.
inline bool GeneralTimeline::serves_command(const Channel& channel, SimTime now) const {
  if (channel.data_outs.front_time() > now) return true;
  return channel.commands.front_time() <= now &&
         (timing_.arbitration == BusArbitration::command_first ||
          (timing_.arbitration == BusArbitration::fifo && channel.commands.front().before(channel.data_outs.front())));
}

void GeneralTimeline::decide(std::size_t c, SimTime now) {
  Channel& channel = channels_[c];
  const bool command = !has_buffer(c) || serves_command(channel, now);
  auto& queue = command ? channel.commands : channel.data_outs;
  const Ask ask = queue.front();
  queue.pop();
  if (ask.want == Want::command)
    return planes_[ask.index].ahead ? grant_read_ahead(c, ask.index, now) : grant_command(c, ask.index, now);
  if (ask.want == Want::data_out)
    return planes_[ask.index].ahead ? grant_data_out_ahead(c, ask.index, now) : grant_data_out(c, ask, now);
  units_[ask.index].ask.want = Want::nothing;
  touch(ask.index);
  switch (ask.want) {
    case Want::status:
      return grant_status(c, ask.index, now);
    case Want::suspend:
      return grant_suspend(c, ask.index, now);
    case Want::resume:
      return grant_resume(c, ask.index, now);
    default:
      throw InternalError("a flash bus was granted to nobody");
  }
}

inline SimTime GeneralTimeline::select(std::size_t c, std::uint32_t package) {
  const std::uint32_t last = std::exchange(channels_[c].package, package);
  if (last == kNone || last == package) return {};
  statistics_.channels[c].select += timing_.package_select_time();
  return timing_.package_select_time();
}

void GeneralTimeline::grant_command(std::size_t c, std::uint32_t leader, SimTime now) {
  Channel& channel = channels_[c];
  ChannelBusy& busy = statistics_.channels[c];
  const PageOpKind kind = ops_[planes_[leader].offered].kind;
  const std::uint32_t reader = planes_[leader].unit;
  const std::uint32_t u = kind == PageOpKind::read ? reader : units_[reader].writer;
  Unit& unit = units_[u];
  const std::uint32_t page = ops_[planes_[leader].offered].page;
  const bool cached = unit.phase != Phase::idle;
  Group group{kind, std::numeric_limits<std::uint8_t>::max(), std::numeric_limits<std::uint64_t>::max(), 0};
  SimTime cursor = now;
  SimTime command = select(c, unit.package) + timing_.command_time;
  planes_[leader].command.want = Want::nothing;  // its request is out of the queue already

  const auto take = [&](Plane& plane, std::uint32_t p) {
    const std::uint32_t index = std::exchange(plane.offered, kNone);
    Op& op = ops_[index];
    withdraw(plane.command, channel);
    if (plane.output == index) {
      plane.output = kNone;
    } else {
      unqueue(p, index);
      occupy(plane, now);
    }
    (cached ? plane.cached : plane.array) = index;
    account(index, FlashStage::bus_wait, cursor);
    cursor += command;
    command = timing_.command_time;
    busy.command += command;
    account(index, FlashStage::command, cursor);
    tell_command(static_cast<std::uint32_t>(c), op.op_class, kind, cursor - timing_.command_time);
    if (kind == PageOpKind::program) {
      const SimTime data_in = bus_time(op.bytes);
      busy.data_in += data_in;
      cursor += data_in;
      tell_data(static_cast<std::uint32_t>(c), op.op_class, kind, op.bytes, cursor - data_in, cursor);
      account(index, FlashStage::transfer, cursor);
    }
    if (kind == PageOpKind::read) {
      op.in_register = timing_.reuse_register && op.attempt == 0 && plane.sensed == op.ppa;
      plane.sensed = op.ppa;
    } else {
      plane.sensed = PhysicalPageAddress::invalid();
      statistics_.count(op.op_class, kind, bus_bytes(timing_, op.bytes));
      const SimTime time = array_time(op);
      statistics_.work(kind, time, PlaneId{p}, cursor + time);
    }
    group.rank = std::min(group.rank, op.rank);
    group.sequence = std::min(group.sequence, op.sequence);
  };
  take(planes_[leader], leader);
  each_plane(unit, [&](std::uint32_t p, Plane& plane) {
    if (plane.offered == kNone || ops_[plane.offered].kind != kind) return;
    if (kind != PageOpKind::erase && ops_[plane.offered].page != page) return;
    take(plane, p);
    ++statistics_.joined_ops;
  });
  each_plane(unit, [&](std::uint32_t, const Plane& plane) {
    const std::uint32_t index = cached ? plane.cached : plane.array;
    if (index != kNone) account(index, FlashStage::bus_wait, cursor);
  });
  if (cached) {
    unit.behind = group;
    unit.cached = Cached::on_bus;
  } else {
    unit.array = group;
    unit.phase = Phase::command;
    unit.failures = 0;
  }
  channel.bus_free = cursor;
  // Nothing that comes meanwhile changes what a read does next.
  if (kind == PageOpKind::read) return start_work(u, cursor);
  schedule(channel, cursor, Event::commands_in, u);
  touch(u);
}

/// The page of a read, which took the array `sensing`, goes over the bus. Returns when it is decoded.
inline SimTime GeneralTimeline::move_out(std::size_t c, std::uint32_t package, const Op& op, SimTime sensing,
                                         SimTime now) {
  Channel& channel = channels_[c];
  const SimTime occupied = timing_.data_out_setup + bus_time(op.bytes);
  statistics_.channels[c].data_out += occupied;
  statistics_.work(PageOpKind::read, sensing);
  statistics_.register_reads += op.in_register ? 1 : 0;
  channel.bus_free = now + select(c, package) + occupied;
  tell_data(static_cast<std::uint32_t>(c), op.op_class, op.kind, op.bytes, channel.bus_free - occupied,
            channel.bus_free);

  channel.decoder_free = std::max(channel.decoder_free, channel.bus_free);
  if (timing_.ecc_bandwidth) {
    const SimTime decoding = decoding_time(op.bytes);
    statistics_.decoder_busy[c] += decoding;
    channel.decoder_free += decoding;
    if (observers_.decoders != nullptr)
      observers_.decoders->work(static_cast<std::uint32_t>(c), "decode", channel.decoder_free - decoding,
                                channel.decoder_free, op.bytes);
  }
  SimTime decoded = channel.decoder_free + timing_.ecc_latency;
  if (timing_.filter_bandwidth) decoded = pass_filter(c, op, decoded);
  return decoded;
}

/// The attempt whose page has just been moved fails, and another one follows.
inline bool GeneralTimeline::fails_again(Op& op) {
  if (op.retries == 0) [[likely]]
    return false;
  --op.retries;
  ++op.attempt;
  ++statistics_.retries;
  statistics_.retry_bytes += bus_bytes(timing_, op.bytes);
  return true;
}

void GeneralTimeline::grant_data_out(std::size_t c, const Ask& ask, SimTime now) {
  Channel& channel = channels_[c];
  const std::uint32_t index = planes_[ask.index].output;
  Op& op = ops_[index];
  account(index, FlashStage::bus_wait, now);
  const SimTime decoded = move_out(c, planes_[ask.index].package, op, sensing_time(op), now);
  account(index, FlashStage::transfer, channel.bus_free);
  account(index, FlashStage::ecc, decoded);
  if (buffers_.limited() &&
      buffers_.take(static_cast<std::uint32_t>(c), batches_.ticket(op.batch), op.retries == 0, now, decoded))
    ++statistics_.buffer_overflows;
  if (fails_again(op)) {
    ++units_[planes_[ask.index].unit].failures;
    return schedule(channel, decoded, Event::decoded, ask.index);
  }
  statistics_.count(op.op_class, op.kind, bus_bytes(timing_, op.bytes));
  batches_.finish(op.batch, decoded, op.sequence, [&] { return stages_[index]; });
  schedule(channel, channel.bus_free, Event::page_out, ask.index);
}

/// step() where bus decisions are the only steps: makes them before `bound`, and returns the time of the next one.
[[gnu::always_inline]] inline SimTime GeneralTimeline::run_ahead(std::size_t c, SimTime bound) {
  Channel& channel = channels_[c];
  const auto next = [&] {
    return std::max(channel.bus_free, std::min(channel.commands.front_time(), channel.data_outs.front_time()));
  };
  SimTime now = next();
  for (; now < bound; now = next()) {
    front_ = std::max(front_, now);
    auto& queue = serves_command(channel, now) ? channel.commands : channel.data_outs;
    const std::uint32_t plane = queue.front().index;
    queue.pop();
    if (&queue == &channel.commands)
      grant_read_ahead(c, plane, now);
    else
      grant_data_out_ahead(c, plane, now);
  }
  return now;
}

/// The plane, which asks for nothing else, asks for the command of the first read that waits at it.
inline void GeneralTimeline::ask_ahead(Channel& channel, Plane& plane, std::uint32_t p) {
  const std::uint32_t index = queues_[p * ranks_].head;
  const Op& op = ops_[index];
  const SimTime at = std::max(plane.until, op.at);
  plane.offered = index;
  plane.command = {at, op.sequence, p, op.rank, Want::command};
  channel.commands.insert(plane.command);
}

inline void GeneralTimeline::grant_read_ahead(std::size_t c, std::uint32_t p, SimTime now) {
  Channel& channel = channels_[c];
  Plane& plane = planes_[p];
  const std::uint32_t index = std::exchange(plane.offered, kNone);
  Op& op = ops_[index];
  plane.command.want = Want::nothing;
  if (plane.output == index) [[unlikely]] {
    plane.output = kNone;  // it is read again
  } else {
    queues_[p * ranks_].head = op.next;
    if (op.next != kNone) prefetch_line(&ops_[op.next]);
    occupy(plane, now);
  }
  channel.bus_free = now + select(c, plane.package) + timing_.command_time;
  statistics_.channels[c].command += timing_.command_time;
  op.in_register = timing_.reuse_register && op.attempt == 0 && plane.sensed == op.ppa;
  plane.sensed = op.ppa;
  plane.granted = now;
  plane.sensing = sensing_time(op);
  plane.until = channel.bus_free + plane.sensing;
  plane.array = index;
  channel.data_outs.insert({plane.until, op.sequence, p, op.rank, Want::data_out});
}

/// Accounts for the read in the array of a plane that reads ahead, until its page is sensed.
void GeneralTimeline::account_ahead(const Plane& plane) {
  const std::uint32_t index = plane.array;
  account(index, FlashStage::plane_wait, plane.command.at);
  account(index, FlashStage::bus_wait, plane.granted);
  account(index, FlashStage::command, plane.until - plane.sensing);
  account(index, FlashStage::array, plane.until);
}

inline void GeneralTimeline::grant_data_out_ahead(std::size_t c, std::uint32_t p, SimTime now) {
  Channel& channel = channels_[c];
  Plane& plane = planes_[p];
  const std::uint32_t index = plane.array;
  Op& op = ops_[index];
  const SimTime decoded = move_out(c, plane.package, op, plane.sensing, now);
  const SimTime out = channel.bus_free;
  const auto account_all = [&] {
    account_ahead(plane);
    account(index, FlashStage::bus_wait, now);
    account(index, FlashStage::transfer, out);
    account(index, FlashStage::ecc, decoded);
  };
  if (fails_again(op)) [[unlikely]] {
    account_all();
    plane.array = kNone;
    plane.output = plane.offered = index;
    plane.command = {decoded, op.sequence, p, op.rank, Want::command};
    return channel.commands.insert(plane.command);
  }
  statistics_.count(op.op_class, PageOpKind::read, bus_bytes(timing_, op.bytes));
  batches_.finish(op.batch, decoded, op.sequence, [&] {
    const SimTime asked = plane.command.at, started = plane.until - plane.sensing;
    if (op.stages == Kept::none_yet)
      return FlashStages{asked - op.at,
                         (plane.granted - asked) + (now - plane.until),
                         started - plane.granted,
                         plane.sensing,
                         out - now,
                         decoded - out};
    account_all();
    return stages_[index];
  });
  plane.array = kNone;
  free_op(index);
  vacate(p, out);
  plane.until = out;
  if (queues_[p * ranks_].head != kNone) ask_ahead(channel, plane, p);
}

/// A program or an erase comes to the die, or somebody observes it: from now on it goes step by step.
void GeneralTimeline::leave_ahead(std::uint32_t u) {
  const Unit& die = units_[u];
  Channel& channel = channels_[die.channel];
  ++dies_in_steps_;
  ++channel.dies_in_steps;
  each_plane(die, [&](std::uint32_t p, const Plane& plane) { leave_ahead(p, units_[plane.unit], channel); });
  steps_.set(die.channel, next_step(die.channel));
}

/// What the plane has asked for the future becomes an event.
void GeneralTimeline::leave_ahead(std::uint32_t p, Unit& reader, Channel& channel) {
  Plane& plane = planes_[p];
  plane.ahead = false;
  plane.stale = true;
  if (plane.latest >= passed_)
    for (std::size_t rank = 0; rank < ranks_; ++rank)
      for (std::uint32_t i = queues_[p * ranks_ + rank].head; i != kNone; i = ops_[i].next) {
        const SimTime at = ops_[i].at;
        if (at >= passed_ && at != std::exchange(plane.arrival, at)) schedule(channel, at, Event::arrival, p);
      }
  if (plane.array != kNone) {
    const Op& op = ops_[plane.array];
    account_ahead(plane);
    reader.array = {PageOpKind::read, op.rank, op.sequence, 0};
    reader.failures = 0;
    if (plane.until >= passed_) {
      channel.data_outs.erase({plane.until, op.sequence, p, op.rank, Want::data_out});
      reader.phase = Phase::working;
      reader.work_since = plane.until - array_time(op);
      reader.work_end = plane.until;
      return schedule(channel, plane.until, Event::work_end, plane.unit);
    }
    reader.output_fails = op.retries > 0;
    reader.outputs = 1;
    plane.output = std::exchange(plane.array, kNone);
    return;
  }
  const bool waits = plane.offered != kNone && plane.command.at >= passed_;
  if (plane.output != kNone) {  // it is read again
    reader.array = {PageOpKind::read, ops_[plane.output].rank, ops_[plane.output].sequence, 0};
    reader.output_fails = ops_[plane.output].retries > 0;
    reader.failures = 1;
    reader.outputs = waits ? 1 : 0;
    if (waits) schedule(channel, plane.command.at, Event::decoded, p);
  } else if (plane.until >= passed_) {
    reader.output_fails = false;
    reader.failures = 0;
    reader.outputs = 1;
    schedule(channel, plane.until, Event::left, p);
  }
  if (plane.offered == kNone) return;
  if (!waits) return account(plane.offered, FlashStage::plane_wait, plane.command.at);
  withdraw(plane.command, channel);
  plane.offered = kNone;
}

/// The die has done its last program or erase: its planes are empty.
void GeneralTimeline::try_ahead(std::uint32_t u, SimTime now) {
  Unit& die = units_[u];
  if (!may_read_ahead_ || observed_ || die.phase != Phase::idle || die.cached != Cached::none || die.suspended) return;
  Channel& channel = channels_[die.channel];
  --dies_in_steps_;
  --channel.dies_in_steps;
  withdraw(die.ask, channel);  // a suspend that comes too late
  each_plane(die, [&](std::uint32_t p, Plane& plane) {
    plane.ahead = true;
    plane.until = now;
    if (queues_[p * ranks_].head != kNone) ask_ahead(channel, plane, p);
  });
}

/// When a page that is decoded at `decoded` has passed the filter, if it has to.
SimTime GeneralTimeline::pass_filter(std::size_t c, const Op& op, SimTime decoded) {
  if (op.op_class != OpClass::attend || op.retries > 0) return decoded;
  SimTime& free = statistics_.filter_free[c];
  const SimTime start = std::max(free, decoded);
  const SimTime time = transfer_time(Bytes{op.bytes}, *timing_.filter_bandwidth);
  free = start + time;
  statistics_.filter_busy[c] += time;
  statistics_.filter_waited += start - decoded;
  if (observers_.filters != nullptr)
    observers_.filters->work(static_cast<std::uint32_t>(c), "filter", start, free, op.bytes);
  return free;
}

void GeneralTimeline::grant_status(std::size_t c, std::uint32_t u, SimTime now) {
  Channel& channel = channels_[c];
  Unit& unit = units_[u];
  unit.phase = Phase::polling;
  statistics_.channels[c].status += timing_.status_time;
  channel.bus_free = now + select(c, unit.package) + timing_.status_time;
  if (observers_.channels != nullptr)
    observers_.channels->work(static_cast<std::uint32_t>(c), "status", channel.bus_free - timing_.status_time,
                              channel.bus_free, 0);
  each_plane(unit, [&](std::uint32_t, const Plane& plane) {
    if (plane.array == kNone) return;
    account(plane.array, FlashStage::bus_wait, now);
    account(plane.array, FlashStage::command, channel.bus_free);
    const Op& op = ops_[plane.array];
    batches_.finish(op.batch, channel.bus_free, op.sequence, [&] { return stages_[plane.array]; });
  });
  schedule(channel, channel.bus_free, Event::status_end, u);
}

void GeneralTimeline::send_command(std::size_t c, const Unit& unit, SimTime now, const char* what) {
  Channel& channel = channels_[c];
  statistics_.channels[c].command += timing_.command_time;
  channel.bus_free = now + select(c, unit.package) + timing_.command_time;
  if (observers_.channels != nullptr)
    observers_.channels->work(static_cast<std::uint32_t>(c), what, channel.bus_free - timing_.command_time,
                              channel.bus_free, 0);
}

void GeneralTimeline::grant_suspend(std::size_t c, std::uint32_t u, SimTime now) {
  Channel& channel = channels_[c];
  Unit& unit = units_[u];
  send_command(c, unit, now, "suspend");
  if (unit.work_end <= channel.bus_free) {
    unit.suspend_sent = true;
    return;
  }
  tell_work(unit, channel.bus_free);
  ++statistics_.suspends;
  ++unit.array.suspends;
  unit.phase = Phase::stopping;
  unit.remaining = unit.work_end - channel.bus_free;
  if (timing_.status_time.ps == 0) {
    each_plane(unit, [&](std::uint32_t, const Plane& plane) {
      if (plane.array != kNone) batches_.reopen(ops_[plane.array].batch);
    });
  }
  schedule(channel, channel.bus_free + timing_.suspend->latency, Event::stopped, u);
}

void GeneralTimeline::grant_resume(std::size_t c, std::uint32_t u, SimTime now) {
  Channel& channel = channels_[c];
  Unit& unit = units_[u];
  send_command(c, unit, now, "resume");
  unit.array = unit.held;
  unit.suspended = false;
  unit.phase = Phase::resuming;
  each_plane(unit, [](std::uint32_t, Plane& plane) {
    if (plane.held != kNone) plane.sensed = PhysicalPageAddress::invalid();
    plane.array = std::exchange(plane.held, kNone);
  });
  const SimTime resumed = channel.bus_free + timing_.suspend->resume_latency;
  unit.work_end = resumed + unit.remaining;
  schedule(channel, resumed, Event::resumed, u);
  schedule(channel, unit.work_end, Event::work_end, u);
  publish(u, unit.work_end);
}

}  // namespace csdsim::nfc
