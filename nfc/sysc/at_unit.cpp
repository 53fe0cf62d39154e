#include "nfc/sysc/at_unit.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "base/error.h"
#include "nfc/core/flash_names.h"
#include "nfc/sysc/sim_time.h"

namespace csdsim::nfc {

AtUnit::AtUnit(const sc_core::sc_module_name& name, const FlashGeometry& geometry, const FlashTiming& timing,
               PlaneId first_plane, std::span<AtPlane> planes, Takes takes)
    : sc_module(name),
      geometry_(geometry),
      timing_(timing),
      first_plane_(first_plane),
      package_(geometry.die_of(first_plane).value % geometry.dies_per_channel / timing.dies_per_package()),
      planes_(planes),
      takes_(takes) {
  SC_METHOD(on_bus_end);
  sensitive << bus_end_;
  dont_initialize();
  SC_METHOD(on_array_end);
  sensitive << array_end_;
  dont_initialize();
  SC_METHOD(on_arrival);
  sensitive << arrival_;
  dont_initialize();
}

void AtUnit::end_of_elaboration() { bus->attach(*this); }

void AtUnit::set_state(State state) {
  state_ = state;
  traced_state_ = static_cast<unsigned>(state);
  traced_busy_ =
      state == State::working || state == State::moving || state == State::stopping || state == State::resuming;
  changed();
}

void AtUnit::show_queue() {
  each_sharing([](AtUnit& unit) {
    unit.traced_queue_ = 0;
    for (const AtPlane& plane : unit.planes_) unit.traced_queue_ += static_cast<std::uint32_t>(plane.waiting.size());
  });
}

void AtUnit::write_for(AtUnit& reader) {
  readers_.push_back(&reader);
  reader.writer_ = this;
}

/// What one unit of a die does concerns the others that share planes with it.
void AtUnit::mark_changed() {
  each_sharing([](AtUnit& unit) { unit.changed_ = true; });
}

void AtUnit::changed() {
  mark_changed();
  bus->changed();
}

void AtUnit::submitted(const AtOp& op) {
  show_queue();
  const SimTime now = sim_time_now();
  if (op.not_before > now) {
    arrival_.notify(to_sc_time(op.not_before - now));  // the earliest of several pending notifications counts
  } else {
    changed();
  }
}

void AtUnit::on_arrival() {
  const SimTime now = sim_time_now();
  SimTime next = SimTime::max();
  for (const AtPlane& plane : planes_) {
    for (const AtOp& op : plane.waiting) {
      if (op.not_before > now) next = std::min(next, op.not_before);
    }
  }
  if (next != SimTime::max()) arrival_.notify(to_sc_time(next - now));
  changed();
}

void AtUnit::on_bus_end() {
  const BusUse use = std::exchange(bus_use_, BusUse::idle);
  switch (use) {
    case BusUse::command:
      if (state_ == State::command) {
        work();
      } else {
        cached_in_ = true;
        if (state_ == State::idle) start_cached();
      }
      break;
    case BusUse::data_out:
      page_out();
      break;
    case BusUse::status:
      leave_array();
      break;
    case BusUse::suspend:
      stop();
      break;
    case BusUse::resume:
      array_end_.notify(to_sc_time(timing_.suspend->resume_latency));
      break;
    case BusUse::idle:
      throw InternalError("a flash unit left a bus that it did not have");
  }
  changed();
}

void AtUnit::on_array_end() {
  switch (state_) {
    case State::working:
      work_end();
      return;
    case State::moving:
      if (array_.front().op.op.kind == PageOpKind::read) {
        enter_output();
      } else {
        work();
      }
      return;
    case State::stopping:
      held_ = std::exchange(array_, {});
      held_suspends_ = suspends_;
      suspend_sent_ = false;
      set_state(State::idle);
      return;
    case State::resuming:
      work_since_ = sim_time_now();
      work_end_ = work_since_ + remaining_;
      set_state(State::working);
      array_end_.notify(to_sc_time(remaining_));
      return;
    default:
      throw InternalError("a flash array ended a state that has no end of its own");
  }
}

void AtUnit::work() {
  SimTime time{};
  for (const Member& member : array_) time = std::max(time, array_time(timing_, geometry_, member.op));
  set_state(State::working);
  work_since_ = sim_time_now();
  work_end_ = work_since_ + time;
  array_end_.notify(to_sc_time(time));
}

void AtUnit::work_end() {
  tell_work();
  for (Member& member : array_) member.op.account(FlashStage::array, sim_time_now());
  if (array_.front().op.op.kind == PageOpKind::read) {
    set_state(State::sensed);
    if (output_.empty()) to_output();
  } else if (timing_.status_time > SimTime{}) {
    set_state(State::status);
  } else {
    leave_array();
  }
}

void AtUnit::to_output() {
  for (Member& member : array_) member.op.account(FlashStage::bus_wait, sim_time_now());
  if (!timing_.cache_read() || timing_.cache_busy_time() == SimTime{}) return enter_output();
  set_state(State::moving);
  array_end_.notify(to_sc_time(timing_.cache_busy_time()));
}

void AtUnit::enter_output() {
  for (Member& member : std::exchange(array_, {})) {
    member.op.account(FlashStage::array, sim_time_now());
    output_.push_back({member.plane, member.op, OutputPage::At::register_});
  }
  set_state(State::idle);
}

void AtUnit::start_cached() {
  array_ = std::exchange(cached_, {});
  cached_in_ = false;
  suspends_ = 0;
  for (Member& member : array_) member.op.account(FlashStage::plane_wait, sim_time_now());
  if (timing_.cache_busy_time() == SimTime{}) return work();
  set_state(State::moving);
  array_end_.notify(to_sc_time(timing_.cache_busy_time()));
}

/// The suspend has been sent: it stops an array that still works.
void AtUnit::stop() {
  const SimTime now = sim_time_now();
  if (state_ != State::working || work_end_ <= now) return;
  array_end_.cancel();
  tell_work();
  remaining_ = work_end_ - now;
  ++suspends_;
  done->suspended();
  set_state(State::stopping);
  array_end_.notify(to_sc_time(timing_.suspend->latency));
}

void AtUnit::leave_array() {
  const SimTime now = sim_time_now();
  for (Member& member : std::exchange(array_, {})) {
    if (timing_.status_time > SimTime{}) member.op.account(FlashStage::command, now);
    done->op_done(member.op);
    vacate(member.plane);
  }
  suspend_sent_ = false;
  set_state(State::idle);
  if (cached_in_) start_cached();
}

void AtUnit::page_out() {
  const auto page =
      std::find_if(output_.begin(), output_.end(), [](const OutputPage& p) { return p.at == OutputPage::At::bus; });
  page->op.account(FlashStage::transfer, sim_time_now());
  const OutputPage sent = *page;
  if (sent.op.fails()) {
    page->at = OutputPage::At::decoder;
  } else {
    output_.erase(page);
    vacate(sent.plane);
    if (state_ == State::sensed && output_.empty()) to_output();
  }
  decoder->decode(sent.plane, sent.op, *this);
}

void AtUnit::decoded(std::uint32_t plane, const AtOp& op) {
  if (!op.fails()) return done->op_done(op);
  const auto page =
      std::find_if(output_.begin(), output_.end(), [plane](const OutputPage& p) { return p.plane == plane; });
  page->op = op;
  ++page->op.attempt;
  page->at = OutputPage::At::failed;
  done->retried(op);
  changed();
}

void AtUnit::vacate(std::uint32_t plane) {
  AtPlane& p = planes_[plane];
  if (--p.occupants == 0) done->plane_free(PlaneId{first_plane_.value + plane}, p.occupied_since);
}

void AtUnit::trace(sc_core::sc_trace_file* file) const {
  sc_core::sc_trace(file, traced_state_, std::string(name()) + ".stage", 4);
  sc_core::sc_trace(file, traced_busy_, std::string(name()) + ".busy");
  sc_core::sc_trace(file, traced_queue_, std::string(name()) + ".queue");
}

namespace {

/// The order of what the planes of a die offer.
std::pair<std::uint8_t, std::uint64_t> turn_of(const FlashTiming& timing, const AtOp& op) {
  return {queue_rank(timing, op.rank, op.op.kind), op.sequence};
}

}  // namespace

void AtUnit::tell_bus(std::string_view what, SimTime start, SimTime end, std::uint64_t bytes) const {
  if (WorkObserver* const channels = done->observers().channels; channels != nullptr)
    channels->work(geometry_.channel_of(first_plane_).value, what, start, end, bytes);
}

void AtUnit::tell_data(const AtOp& op, SimTime start, SimTime end) const {
  const std::uint32_t bytes = bus_bytes(timing_, op.op.channel_bytes);
  tell_bus(flash_names::name(flash_names::kData, op.op.op_class, op.op.kind), start, end, bytes);
  // A filter with a bandwidth has times of its own.
  WorkObserver* const filters = timing_.filter_bandwidth ? nullptr : done->observers().filters;
  if (filters != nullptr && op.op.op_class == OpClass::attend && op.op.kind == PageOpKind::read)
    filters->work(geometry_.channel_of(first_plane_).value, "filter", start, end, bytes);
}

/// The array has worked until now.
void AtUnit::tell_work() const {
  WorkObserver* const planes = done->observers().planes;
  if (planes == nullptr) return;
  for (const Member& member : array_)
    planes->work(first_plane_.value + member.plane,
                 flash_names::name(flash_names::kArrays, member.op.op.op_class, member.op.op.kind), work_since_,
                 sim_time_now(), 0);
}

/// The most urgent operation that has arrived and may overtake all that were submitted before it.
AtOp* AtUnit::offer(AtPlane& plane, SimTime now) {
  AtOp* best = nullptr;
  std::uint8_t best_rank = std::numeric_limits<std::uint8_t>::max();
  std::uint8_t first_before = std::numeric_limits<std::uint8_t>::max();
  bool erase_before = false;
  for (AtOp& op : plane.waiting) {
    if (first_before == 0) break;
    const std::uint8_t rank = queue_rank(timing_, op.rank, op.op.kind);
    const bool first = &op == &plane.waiting.front();
    const bool overtakes =
        rank < first_before && op.op.kind != PageOpKind::erase && !(op.op.kind == PageOpKind::program && erase_before);
    if (op.not_before <= now && (first || overtakes) && rank < best_rank) {
      best = &op;
      best_rank = rank;
    }
    first_before = std::min(first_before, rank);
    erase_before |= op.op.kind == PageOpKind::erase;
  }
  return best;
}

bool AtUnit::takes_kind(PageOpKind kind) const {
  return takes_ == Takes::all || (takes_ == Takes::reads) == (kind == PageOpKind::read);
}

/// The operation whose turn comes first, among the reads or among the programs and erases that the planes offer.
AtOp* AtUnit::first_offer(SimTime now, bool reads) {
  AtOp* first = nullptr;
  for (AtPlane& plane : planes_) {
    AtOp* const op = offer(plane, now);
    if (op == nullptr || (op->op.kind == PageOpKind::read) != reads) continue;
    if (first == nullptr || turn_of(timing_, *op) < turn_of(timing_, *first)) first = op;
  }
  return first;
}

/// Where planes read on their own: whether neither what the die does nor what its planes offer comes before `op`.
bool AtUnit::in_turn(const AtOp& op, SimTime now) {
  if (takes_ == Takes::all) return true;
  if (takes_ == Takes::writes) {
    const AtOp* const read = first_offer(now, true);
    if (read != nullptr && turn_of(timing_, *read) < turn_of(timing_, *first_offer(now, false))) return false;
    return state_ != State::idle ||
           std::all_of(readers_.begin(), readers_.end(), [](const AtUnit* reader) { return reader->empty(); });
  }
  if (!writer_->empty()) return false;
  if (!writer_->held_.empty()) return urgent_read(writer_->held_, op);
  const AtOp* const write = writer_->first_offer(now, false);
  return write == nullptr || turn_of(timing_, op) < turn_of(timing_, *write);
}

/// No plane of the die reads or is about to.
bool AtUnit::no_reader(SimTime now) {
  return std::all_of(readers_.begin(), readers_.end(), [now](AtUnit* reader) {
    const AtOp* const op = reader->first_offer(now, true);
    return reader->empty() && (op == nullptr || !reader->takes(*op) || !reader->in_turn(*op, now));
  });
}

bool AtUnit::empty() const { return state_ == State::idle && array_.empty() && cached_.empty() && output_.empty(); }

bool AtUnit::urgent_read(const Group& group, const AtOp& op) const {
  if (op.op.kind != PageOpKind::read) return false;
  return timing_.class_priority.empty() ||
         std::all_of(group.begin(), group.end(), [&](const Member& member) { return op.rank < member.op.rank; });
}

bool AtUnit::takes(const AtOp& op) const {
  if (!held_.empty() && !urgent_read(held_, op)) return false;
  if (empty()) return true;
  switch (op.op.kind) {
    case PageOpKind::read:
      return timing_.cache_read() && state_ == State::idle && array_.empty() && cached_.empty() &&
             std::none_of(output_.begin(), output_.end(),
                          [](const OutputPage& page) { return page.op.fails() || page.at == OutputPage::At::failed; });
    case PageOpKind::program:
      return timing_.cache_program() && cached_.empty() && !suspend_sent_ && !array_.empty() &&
             array_.front().op.op.kind == PageOpKind::program &&
             (state_ == State::working || state_ == State::status || state_ == State::polling);
    case PageOpKind::erase:
      return false;
  }
  throw InternalError("unknown kind of page operation");
}

bool AtUnit::suspendable() const {
  return timing_.suspend && state_ == State::working && cached_.empty() && !suspend_sent_ &&
         suspends_ < timing_.suspend->max && timing_.suspend->covers(array_.front().op.op.kind);
}

bool AtUnit::reads_again() const {
  return !output_.empty() && std::all_of(output_.begin(), output_.end(),
                                         [](const OutputPage& page) { return page.at == OutputPage::At::failed; });
}

std::vector<Wish> AtUnit::wanted(SimTime now) {
  std::vector<Wish> wishes;
  const auto wish = [&](BusUse use, std::uint32_t plane, const AtOp& op) {
    wishes.push_back({use, plane, op.sequence, op.rank, now});
  };
  std::vector<const AtOp*> readers;
  for (std::uint32_t p = 0; p < planes_.size() && !reads_again(); ++p) {
    const AtOp* op = offer(planes_[p], now);
    if (op == nullptr) continue;
    if (takes_kind(op->op.kind) && takes(*op) && in_turn(*op, now)) {
      wish(BusUse::command, p, *op);
    } else if (suspendable() && urgent_read(array_, *op)) {
      readers.push_back(op);
    }
  }
  if (reads_again()) {
    for (const OutputPage& page : output_) wish(BusUse::command, page.plane, page.op);
  }
  const bool no_command = wishes.empty();
  for (const OutputPage& page : output_) {
    if (page.at == OutputPage::At::register_) wish(BusUse::data_out, page.plane, page.op);
  }

  // A group has the urgency of its most urgent operation and the sequence of the one submitted first.
  const auto wish_of_group = [&](BusUse use, const Group& group) {
    AtOp representative = group.front().op;
    for (const Member& member : group) {
      representative.rank = std::min(representative.rank, member.op.rank);
      representative.sequence = std::min(representative.sequence, member.op.sequence);
    }
    wish(use, 0, representative);
  };
  if (!readers.empty()) {
    wish(BusUse::suspend, 0, **std::min_element(readers.begin(), readers.end(), [](const AtOp* a, const AtOp* b) {
           return a->rank != b->rank ? a->rank < b->rank : a->sequence < b->sequence;
         }));
  }
  if (state_ == State::status) wish_of_group(BusUse::status, array_);
  if (!held_.empty() && empty() && no_command && no_reader(now)) wish_of_group(BusUse::resume, held_);
  return wishes;
}

AtOp& AtUnit::offered(const Wish& wish) {
  for (AtOp& op : planes_[wish.plane].waiting) {
    if (op.sequence == wish.sequence) return op;
  }
  for (OutputPage& page : output_) {
    if (page.op.sequence == wish.sequence) return page.op;
  }
  throw InternalError("a flash plane asks for an operation that it does not have");
}

void AtUnit::update(SimTime now) {
  if (!changed_) return;
  changed_ = false;
  const std::vector<Wish> before = std::exchange(wishes_, wanted(now));
  const auto same = [](const Wish& a, const Wish& b) { return a.use == b.use && a.sequence == b.sequence; };
  const auto find = [&](const std::vector<Wish>& in, const Wish& wish) {
    return std::find_if(in.begin(), in.end(), [&](const Wish& other) { return same(wish, other); });
  };
  for (const Wish& old : before) {
    const bool gone = find(wishes_, old) == wishes_.end();
    if (gone && old.use == BusUse::command) offered(old).account(FlashStage::bus_wait, now);
  }
  for (Wish& wish : wishes_) {
    const auto old = find(before, wish);
    if (old != before.end()) {
      wish.asked_at = old->asked_at;
    } else if (wish.use == BusUse::command) {
      offered(wish).account(FlashStage::plane_wait, now);
    }
  }
}

ChannelBusy AtUnit::granted(Wish wish, SimTime now, SimTime select) {
  mark_changed();
  bus_use_ = wish.use;
  ChannelBusy use;
  if (wish.use == BusUse::command) {
    use = grant_command(wish, now, select);
  } else {
    std::erase_if(wishes_, [&](const Wish& w) { return w.use == wish.use && w.sequence == wish.sequence; });
  }
  switch (wish.use) {
    case BusUse::data_out:
      for (OutputPage& page : output_) {
        if (page.plane != wish.plane) continue;
        page.at = OutputPage::At::bus;
        page.op.account(FlashStage::bus_wait, now);
        done->last_granted(page.op);
        use.data_out = timing_.data_out_setup +
                       transfer_time(Bytes{bus_bytes(timing_, page.op.op.channel_bytes)}, timing_.channel_bandwidth);
        tell_data(page.op, now + select, now + select + use.data_out);
      }
      break;
    case BusUse::status:
      for (Member& member : array_) member.op.account(FlashStage::bus_wait, now);
      set_state(State::polling);
      use.status = timing_.status_time;
      tell_bus("status", now + select, now + select + use.status, 0);
      break;
    case BusUse::suspend:
      suspend_sent_ = true;
      use.command = timing_.command_time;
      tell_bus("suspend", now + select, now + select + use.command, 0);
      break;
    case BusUse::resume:
      array_ = std::exchange(held_, {});
      for (const Member& member : array_) planes_[member.plane].in_register = PhysicalPageAddress::invalid();
      suspends_ = held_suspends_;
      set_state(State::resuming);
      use.command = timing_.command_time;
      tell_bus("resume", now + select, now + select + use.command, 0);
      break;
    default:
      break;
  }
  bus_end_.notify(to_sc_time(select + use.total()));
  return use;
}

AtOp AtUnit::take_offered(const Wish& wish, SimTime now) {
  AtOp op = offered(wish);
  std::erase_if(wishes_, [&](const Wish& w) { return w.use == wish.use && w.sequence == wish.sequence; });
  if (std::erase_if(output_, [&](const OutputPage& page) { return page.op.sequence == op.sequence; }) > 0) return op;
  AtPlane& plane = planes_[wish.plane];
  std::erase_if(plane.waiting, [&](const AtOp& other) { return other.sequence == op.sequence; });
  show_queue();
  if (plane.occupants++ == 0) plane.occupied_since = now;
  return op;
}

ChannelBusy AtUnit::grant_command(const Wish& leader, SimTime now, SimTime select) {
  const PageOp first = offered(leader).op;
  const PageOpKind kind = first.kind;
  std::vector<Wish> taken{leader};
  for (const Wish& wish : wishes_) {
    if (wish.use != BusUse::command || wish.sequence == leader.sequence) continue;
    const PageOp& other = offered(wish).op;
    if (other.kind != kind) continue;
    if (kind != PageOpKind::erase && geometry_.page_in_block(other.ppa) != geometry_.page_in_block(first.ppa)) continue;
    taken.push_back(wish);
    done->joined();
  }
  std::sort(taken.begin() + 1, taken.end(), [](const Wish& a, const Wish& b) { return a.plane < b.plane; });

  ChannelBusy use;
  Group group;
  for (const Wish& wish : taken) {
    AtOp op = take_offered(wish, now);
    PhysicalPageAddress& in_register = planes_[wish.plane].in_register;
    op.in_register = timing_.reuse_register && kind == PageOpKind::read && op.attempt == 0 && in_register == op.op.ppa;
    in_register = kind == PageOpKind::read ? op.op.ppa : PhysicalPageAddress::invalid();
    if (kind != PageOpKind::read) done->last_granted(op);
    const SimTime turn = group.empty() ? select : SimTime{};
    const SimTime start = group.empty() ? now : now + select + use.total();
    op.account(FlashStage::bus_wait, start);
    op.account(FlashStage::command, start + turn + timing_.command_time);
    use.command += timing_.command_time;
    tell_bus(flash_names::name(flash_names::kCommands, op.op.op_class, kind), start + turn,
             start + turn + timing_.command_time, 0);
    if (kind == PageOpKind::program) {
      const SimTime data = transfer_time(Bytes{bus_bytes(timing_, op.op.channel_bytes)}, timing_.channel_bandwidth);
      use.data_in += data;
      const SimTime end = now + select + use.total();
      tell_data(op, end - data, end);
      op.account(FlashStage::transfer, end);
    }
    group.push_back({wish.plane, op});
  }
  for (Member& member : group) member.op.account(FlashStage::bus_wait, now + select + use.total());
  if (state_ == State::idle) {
    array_ = std::move(group);
    suspends_ = 0;
    set_state(State::command);
  } else {
    cached_ = std::move(group);
  }
  return use;
}

}  // namespace csdsim::nfc
