#include "csd_model/firmware/flash_ledger.h"

#include <iterator>
#include <set>

#include "base/error.h"

namespace csdsim::csd_model {

void FlashLedger::planned(PageOpKind kind, std::uint64_t place, std::uint32_t pieces, ftl::Namespace ns) {
  pending_.push_back({.kind = kind, .place = place, .ns = ns, .to_give = pieces, .to_end = pieces, .parts = {}});
  at_place_[{kind, place}].push_back(std::prev(pending_.end()));
}

/// The first operation at the place that has pieces `left`.
std::list<FlashLedger::Entry>::iterator FlashLedger::find(PageOpKind kind, std::uint64_t place,
                                                          std::uint32_t Entry::*left) {
  const auto at = at_place_.find({kind, place});
  if (at != at_place_.end())
    for (const auto entry : at->second)
      if ((*entry).*left > 0) return entry;
  throw InternalError("the flash is given, or ends, an operation that no plan has");
}

void FlashLedger::given(PageOpKind kind, std::uint64_t place,
                        std::span<const std::pair<std::uint32_t, OpClass>> parts) {
  Entry& entry = *find(kind, place, &Entry::to_give);
  --entry.to_give;
  for (const auto& [plane, op_class] : parts) {
    const Key of = key(plane, op_class, kind);
    InFlash& queue = in_flash_[of];
    entry.parts.emplace_back(of, queue.first + queue.times.size());
    queue.times.emplace_back();
  }
}

void FlashLedger::done(PageOpKind kind, std::uint64_t place) {
  const auto entry = find(kind, place, &Entry::to_end);
  if (entry->parts.empty()) throw InternalError("the flash ends an operation that it was not given");
  if (--entry->to_end > 0) return;
  for (const auto& [of, number] : entry->parts) {
    InFlash& queue = in_flash_.at(of);
    queue.times[number - queue.first].known = true;
    for (; !queue.times.empty() && queue.times.front().known; queue.times.pop_front()) ++queue.first;
  }
  const auto at = at_place_.find({kind, place});
  at->second.pop_front();
  if (at->second.empty()) at_place_.erase(at);
  const bool is_kv = entry->ns == ftl::Namespace::kv;
  pending_.erase(entry);
  if (kind == PageOpKind::erase && !is_kv && store_.carried())
    store_.finish_erase(BlockId{static_cast<std::uint32_t>(place)});
}

/// The next operation, by `counter`, is at `moment` now.
void FlashLedger::note(std::uint32_t plane, OpClass op_class, PageOpKind kind, std::uint64_t InFlash::*counter,
                       SimTime Times::*moment, SimTime at) {
  InFlash& queue = in_flash_[key(plane, op_class, kind)];
  const std::uint64_t number = (queue.*counter)++;
  if (number < queue.first) return;  // the firmware knew first that it is done: nothing can interrupt it
  if (number - queue.first >= queue.times.size())
    throw InternalError("the flash works on what the ledger has not been told of");
  queue.times[number - queue.first].*moment = at;
}

void FlashLedger::begins(std::uint32_t plane, OpClass op_class, PageOpKind kind, SimTime at) {
  note(plane, op_class, kind, &InFlash::begun, &Times::begun, at);
}

void FlashLedger::ends(std::uint32_t plane, OpClass op_class, PageOpKind kind, SimTime at) {
  note(plane, op_class, kind, &InFlash::ended, &Times::ended, at);
}

/// An operation over several planes is under way as soon as one of them works on it, until all have ended.
FlashLedger::State FlashLedger::state_of(const Entry& entry, SimTime now) const {
  bool begun = false, ended = entry.to_give == 0;
  for (const auto& [of, number] : entry.parts) {
    const InFlash& queue = in_flash_.at(of);
    const Times& times = queue.times[number - queue.first];
    begun = begun || times.begun <= now;
    ended = ended && times.ended <= now;
  }
  return ended ? State::ended : begun ? State::under_way : State::waiting;
}

void FlashLedger::add_units(std::uint64_t line, std::vector<PhysicalPageAddress>& units) const {
  for (std::uint64_t unit = line * line_; unit < (line + 1) * line_; ++unit) units.push_back({unit});
}

/// In the KV namespace the firmware erases a block again whose erase it does not know to be done, and programs nothing
/// there before.
void FlashLedger::lose_kv(const Entry& entry, State state, ftl::PowerLoss& loss) {
  if (entry.kind == PageOpKind::erase) {
    if (state == State::under_way) loss.half_erased.push_back(BlockId{static_cast<std::uint32_t>(entry.place)});
  } else if (state != State::ended) {
    (state == State::under_way ? loss.torn : loss.unprogrammed).push_back({entry.place});
  }
}

FlashLedger::Found FlashLedger::lose_power(SimTime now, std::span<const std::uint64_t> open) {
  Found found;
  std::set<BlockId> erased_later;  // what counts is what these blocks held before
  const auto lose = [&](std::uint64_t line, std::vector<PhysicalPageAddress>& to) {
    add_units(line, found.cut.in_dram);
    if (!erased_later.contains(geometry_.block_of({line * line_}))) add_units(line, to);
  };
  for (const Entry& entry : pending_) {
    if (entry.place == kReserved) continue;
    const State state = state_of(entry, now);
    if (entry.ns == ftl::Namespace::kv) {
      lose_kv(entry, state, found.kv_loss);
      if (state == State::under_way) ++(entry.kind == PageOpKind::program ? found.torn : found.half_erased);
      continue;
    }
    if (entry.kind == PageOpKind::program) {
      if (state == State::ended) continue;
      found.torn += state == State::under_way ? 1 : 0;
      lose(entry.place, state == State::under_way ? found.loss.torn : found.loss.unprogrammed);
      continue;
    }
    const BlockId block{static_cast<std::uint32_t>(entry.place)};
    if (state == State::ended && !erased_later.contains(block)) {
      store_.finish_erase(block);
      continue;
    }
    erased_later.insert(block);
    found.cut.unerased.push_back(block);
    if (state != State::under_way) continue;
    ++found.half_erased;
    found.loss.half_erased.push_back(block);
  }
  for (const std::uint64_t line : open) lose(line, found.loss.unprogrammed);
  pending_.clear();
  at_place_.clear();
  in_flash_.clear();
  return found;
}

}  // namespace csdsim::csd_model
