#include "host_runtime/core/serving/kv_block_manager.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/lru_list.h"

namespace csdsim::host {

namespace {

/// In place of the slot of an absent block: whether it shall be stored.
constexpr KvBlockSlot kAbsent = kNoSlot, kToStore = kNoSlot - 1;

}  // namespace

KvBlockManager::KvBlockManager(const Config& config, std::unique_ptr<EvictionPolicy> eviction,
                               std::unique_ptr<AdmissionPolicy> admission)
    : deadline_(config.deadline), slots_(config.capacity, std::move(eviction)), admission_(std::move(admission)) {}

void KvBlockManager::sight(std::span<const KvBlockId> ids) {
  for (const KvBlockId id : ids) admission_->seen(id);
}

KvBlockManager::Lookup KvBlockManager::lookup(std::span<const KvBlockId> ids) const {
  for (std::uint64_t i = 0; i < ids.size(); ++i) {
    const auto slot = slots_.find(ids, i);
    if (!slot) return {i, Lookup::End::miss};
    if (writing_[*slot] != 0) return {i, Lookup::End::pending};
  }
  return {ids.size(), Lookup::End::all};
}

KvBlockState KvBlockManager::state(KvBlockId id) const {
  const auto slot = slots_.find(id);
  if (!slot) return KvBlockState::absent;
  if (writing_[*slot] != 0) return KvBlockState::writing;
  return slots_.holds(*slot) > 0 ? KvBlockState::loading : KvBlockState::ready;
}

/// Fills known_ with the slots of the request's blocks and holds these slots. An id that stands in the request twice is
/// stored once. False if the rest does not fit; then nothing is held.
bool KvBlockManager::find_known(std::span<const KvBlockId> ids, std::uint64_t& missing) {
  known_.resize(ids.size());
  missing = 0;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto slot = slots_.find(ids, i);
    if (slot) {
      known_[i] = *slot;
      slots_.hold(*slot);
    } else {
      known_[i] = admission_->admits(ids[i]) ? kToStore : kAbsent;
      missing += known_[i] == kToStore ? 1 : 0;
    }
  }
  if (slots_.has_room(missing)) return true;
  for (const KvBlockSlot slot : known_)
    if (slot < kToStore) slots_.release(slot);
  return false;
}

std::optional<KvBlockManager::Store> KvBlockManager::prepare_store(std::span<const KvBlockId> ids, SimTime now) {
  std::uint64_t missing = 0;
  if (!find_known(ids, missing)) return std::nullopt;
  Store store;
  store.stored.reserve(missing);
  store.slots.reserve(missing);
  store.evicted.reserve(slots_.evictions_for(missing));
  for (std::size_t i = ids.size(); i-- > 0;) {
    if (known_[i] < kToStore) {
      slots_.used(known_[i]);
    } else if (known_[i] == kToStore && !slots_.find(ids[i])) {
      const auto [slot, evicted] = slots_.take(ids[i]);
      if (slot >= writing_.size()) writing_.resize(slot + std::size_t{1});
      writing_[slot] = 1;
      if (evicted) {
        store.evicted.push_back(*evicted);
        store.evicted_slots.push_back(slot);
        tell(KvBlockEvent::Kind::evicted, *evicted);
      }
      store.stored.push_back(ids[i]);
      store.slots.push_back(slot);
    }
  }
  for (const KvBlockSlot slot : known_)
    if (slot < kToStore) slots_.release(slot);
  writing_blocks_ += store.slots.size();
  if (!store.slots.empty()) store.job = begin_job(true, store.slots, now);
  return store;
}

KvJobId KvBlockManager::begin_job(bool store, std::span<const KvBlockSlot> slots, SimTime now) {
  ++last_job_.value;
  const SimTime deadline = deadline_.ps > SimTime::max().ps - now.ps ? SimTime::max() : SimTime{now.ps + deadline_.ps};
  jobs_.emplace_hint(jobs_.end(), last_job_, Job{store, deadline, {slots.begin(), slots.end()}});
  if (deadline != SimTime::max()) deadlines_.emplace(deadline, last_job_);
  return last_job_;
}

std::vector<KvBlockSlot> KvBlockManager::end_job(std::map<KvJobId, Job>::iterator job) {
  const auto [first, last] = deadlines_.equal_range(job->second.deadline);
  for (auto at = first; at != last; ++at) {
    if (at->second != job->first) continue;
    deadlines_.erase(at);
    break;
  }
  std::vector<KvBlockSlot> slots = std::move(job->second.slots);
  jobs_.erase(job);
  return slots;
}

bool KvBlockManager::complete_store(KvJobId job, bool succeeded) {
  const auto found = jobs_.find(job);
  if (found == jobs_.end()) return false;
  if (!found->second.store) throw InternalError(fmt::format("job {} is a load, not a store", job.value));
  end_store(end_job(found), succeeded);
  return true;
}

void KvBlockManager::end_store(std::span<const KvBlockSlot> slots, bool succeeded) {
  writing_blocks_ -= slots.size();
  if (succeeded) stored_blocks_ += slots.size();
  for (const KvBlockSlot slot : slots) {
    writing_[slot] = 0;
    const KvBlockId id = slots_.id(slot);
    if (!succeeded) slots_.forget(slot);
    slots_.release(slot);
    tell(succeeded ? KvBlockEvent::Kind::stored : KvBlockEvent::Kind::store_failed, id);
  }
}

KvBlockManager::Load KvBlockManager::prepare_load(std::span<const KvBlockId> ids, SimTime now) {
  if (lookup(ids).blocks < ids.size()) throw InternalError("a load of KV blocks that cannot be read");
  Load load;
  for (const KvBlockId id : ids) {
    load.slots.push_back(*slots_.find(id));
    slots_.hold(load.slots.back());
  }
  load.job = begin_job(false, load.slots, now);
  return load;
}

bool KvBlockManager::complete_load(KvJobId job, bool succeeded) {
  const auto found = jobs_.find(job);
  if (found == jobs_.end()) return false;
  if (found->second.store) throw InternalError(fmt::format("job {} is a store, not a load", job.value));
  end_load(end_job(found), succeeded);
  return true;
}

void KvBlockManager::end_load(std::span<const KvBlockSlot> slots, bool succeeded) {
  for (const KvBlockSlot slot : slots) {
    if (!succeeded && slots_.named(slot)) {
      tell(KvBlockEvent::Kind::load_failed, slots_.id(slot));
      slots_.forget(slot);
    }
    slots_.release(slot);
  }
}

void KvBlockManager::touch(std::span<const KvBlockId> ids) {
  for (std::size_t i = ids.size(); i-- > 0;)
    if (const auto slot = slots_.find(ids[i])) slots_.used(*slot);
}

void KvBlockManager::drop(KvBlockId id) {
  const auto slot = slots_.find(id);
  if (!slot || writing_[*slot] != 0) return;
  slots_.forget(*slot);
  tell(KvBlockEvent::Kind::dropped, id);
}

std::size_t KvBlockManager::expire(SimTime now) {
  std::size_t ended = 0;
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    const auto job = jobs_.find(deadlines_.begin()->second);
    const bool store = job->second.store;
    const std::vector<KvBlockSlot> slots = end_job(job);
    store ? end_store(slots, false) : end_load(slots, false);
    ++ended;
  }
  return ended;
}

SimTime KvBlockManager::next_deadline() const {
  return deadlines_.empty() ? SimTime::max() : deadlines_.begin()->first;
}

KvBlockManager::Usage KvBlockManager::usage() const {
  const std::uint64_t held = slots_.taken() - slots_.evictable();
  return {slots_.taken(), writing_blocks_, held - writing_blocks_, slots_.evictable()};
}

}  // namespace csdsim::host
