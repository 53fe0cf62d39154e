#include "host_runtime/core/serving/engine/serving_instance.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "base/error.h"
#include "host_runtime/core/serving/eviction/pool_lru.h"

namespace csdsim::host {

namespace {

/// A step in which nothing is computed, when a request asks the tiers again. Assumed: a millisecond of the engine's
/// loop.
constexpr SimTime kIdleStep = SimTime::milliseconds(1);

}  // namespace

ServingInstance::ServingInstance(std::uint32_t index, const EngineConfig& config, const StepCost& cost, KvTiers& tiers,
                                 KvTransport& transport, KvContents* contents, ServingMeter& meter, Hooks hooks)
    : index_(index),
      config_(config),
      cost_(cost),
      tiers_(tiers),
      transport_(transport),
      contents_(contents),
      meter_(meter),
      hooks_(std::move(hooks)),
      pool_(config.gpu_blocks, std::make_unique<PoolLru>()) {}

void ServingInstance::add(ServedSequence& sequence) {
  sequence.instance = index_;
  sequence.lookups_left = config_.lookup_steps;
  sequence.enter(RequestPhase::queued, transport_.now());
  const auto at = std::ranges::find_if(waiting_, [&](const ServedSequence* other) {
    return other->phase == ServedSequence::Phase::waiting && precedes(sequence, *other);
  });
  waiting_.insert(at, &sequence);
  wake();
}

bool ServingInstance::precedes(const ServedSequence& a, const ServedSequence& b) const {
  switch (config_.order) {
    case AdmissionOrder::arrival:
      return false;
    case AdmissionOrder::shortest_prompt:
      return a.request.prompt < b.request.prompt;
    case AdmissionOrder::priority:
      return a.priority < b.priority;
  }
  return false;
}

void ServingInstance::wake() {
  if (!step_) begin_step();
}

std::size_t ServingInstance::match(std::span<const KvBlockId> ids) const {
  std::size_t blocks = 0;
  if (config_.prefix_caching)
    while (blocks < ids.size() && pool_.find(ids, blocks)) ++blocks;
  return blocks;
}

void ServingInstance::begin_step() {
  step_.emplace(Step{});  // clang 16 finds no default constructor of a nested class with initializers
  step_->arrived.assign(tiers_.parts(), 0);
  preempted_ = asks_again_ = false;
  budget_ = config_.step_tokens;
  ++steps_;
  schedule_running();
  if (!preempted_ || step_->parts.empty()) schedule_waiting();
  if (!step_->parts.empty()) {
    when_clear([this] {
      step_->began = transport_.now();
      advance_step();
    });
    return;
  }
  step_.reset();
  if (asks_again_)
    transport_.at(transport_.now() + std::max(config_.step_overhead, kIdleStep), [this, made = steps_] {
      if (!step_ && made == steps_) begin_step();
    });
}

/// Sequences that run go first. Where one finds no room, the last of them makes some: the last that joined, or the one
/// with the highest priority value.
void ServingInstance::schedule_running() {
  for (std::size_t i = 0; i < running_.size() && budget_ > 0; ++i) {
    ServedSequence& sequence = *running_[i];
    const std::uint64_t tokens = std::min(sequence.left(), budget_);
    bool itself = false;
    while (!itself && !pool_.has_room(missing_blocks(sequence, tokens))) {
      ServedSequence& victim = *running_.back();
      itself = &victim == &sequence;
      preempt(victim);
    }
    if (itself) return;
    take_blocks(sequence, missing_blocks(sequence, tokens));
    add_part(sequence, tokens);
  }
}

/// First those whose K and V have been loaded: they hold their blocks. Then the others in their order; the first that
/// finds no room ends it.
void ServingInstance::schedule_waiting() {
  const auto full = [this] { return running_.size() >= config_.most_running || budget_ == 0; };
  for (std::size_t i = 0; i < waiting_.size() && !full();) {
    ServedSequence& sequence = *waiting_[i];
    if (sequence.phase != ServedSequence::Phase::loaded || !fits(sequence)) {
      ++i;
      continue;
    }
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
    join(sequence);
  }
  for (std::size_t i = 0; i < waiting_.size() && !full();) {
    ServedSequence& sequence = *waiting_[i];
    Admission admission = Admission::stays;
    if (sequence.phase == ServedSequence::Phase::swapped)
      admission = resume(sequence) ? Admission::joined : Admission::no_room;
    else if (sequence.phase == ServedSequence::Phase::waiting && running_.size() + loading_ < config_.most_running)
      admission = admit(sequence);
    if (admission == Admission::no_room) return;
    if (admission == Admission::stays) {
      ++i;
      continue;
    }
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
    join(sequence);
  }
}

void ServingInstance::join(ServedSequence& sequence) {
  sequence.phase = ServedSequence::Phase::running;
  sequence.enter(RequestPhase::prefill, transport_.now());
  const bool ordered = config_.order == AdmissionOrder::priority;
  running_.insert(
      ordered ? std::ranges::upper_bound(running_, sequence.priority, {}, &ServedSequence::priority) : running_.end(),
      &sequence);
  const std::uint64_t tokens = std::min(sequence.left(), budget_);
  take_blocks(sequence, missing_blocks(sequence, tokens));
  add_part(sequence, tokens);
}

/// Without chunked prefill a step computes all that is left of a prompt.
bool ServingInstance::fits(const ServedSequence& sequence) const {
  return config_.chunked_prefill || sequence.left() <= budget_;
}

ServingInstance::Admission ServingInstance::admit(ServedSequence& sequence) {
  const std::size_t in_gpu = std::min<std::size_t>(match(sequence.ids), (sequence.tokens() - 1) / config_.block_tokens);
  const auto found = ask_tiers(sequence, in_gpu);
  if (!found) return Admission::stays;
  // Blocks that are used cannot leave for those that are taken.
  for (std::size_t i = 0; i < in_gpu; ++i) {
    const KvBlockSlot slot = *pool_.find(sequence.ids[i]);
    pool_.hold(slot);
    sequence.slots.push_back(slot);
  }
  sequence.named = in_gpu;
  sequence.computed = in_gpu * config_.block_tokens;
  const Admission admission = admit_with(sequence, in_gpu, *found);
  if (admission == Admission::no_room) {
    for (const KvBlockSlot slot : sequence.slots) pool_.release(slot);
    sequence.slots.clear();
    sequence.named = sequence.computed = 0;
  } else if (!sequence.counted) {
    count_hits(sequence, in_gpu, *found);
  }
  return admission;
}

/// A request that loads while it waits takes the blocks of its whole prompt, so that it needs no room later; others
/// take those of their first step.
ServingInstance::Admission ServingInstance::admit_with(ServedSequence& sequence, std::size_t in_gpu,
                                                       const KvTiers::Found& found) {
  const std::size_t first = in_gpu / config_.factor;
  const std::uint64_t computed = sequence.computed;
  const bool prefetches = found.blocks() > 0 && config_.load == LoadPolicy::prefetch_waiting;
  if (found.blocks() > 0) sequence.computed = (first + found.blocks()) * config_.factor * config_.block_tokens;
  if (!prefetches && !fits(sequence)) {
    sequence.computed = computed;
    return Admission::no_room;
  }
  const std::uint64_t tokens = prefetches ? sequence.left() : std::min(sequence.left(), budget_);
  const std::uint64_t missing = missing_blocks(sequence, tokens);
  if (!pool_.has_room(missing)) {
    sequence.computed = computed;
    return Admission::no_room;
  }
  if (sequence.preemptions == 0) sequence.request.admitted = transport_.now();
  if (found.blocks() == 0) return Admission::joined;
  // Blocks that leave the GPU may push others out of the tiers: those that are loaded are held before.
  const auto load = prepare_load(sequence, first, found.blocks(), !prefetches);
  take_blocks(sequence, missing);
  when_clear(load);
  return prefetches ? Admission::stays : Admission::joined;
}

std::optional<KvTiers::Found> ServingInstance::ask_tiers(ServedSequence& sequence, std::size_t in_gpu) {
  if (!tiers_.any()) return KvTiers::Found{};
  if (sequence.lookups_left > 0) {
    --sequence.lookups_left;
    asks_again_ = true;
    return std::nullopt;
  }
  const std::size_t usable =
      std::min<std::size_t>(sequence.tier_ids.size(), (sequence.tokens() - 1) / config_.block_tokens / config_.factor);
  const std::size_t first = in_gpu / config_.factor;
  if (first >= usable) return KvTiers::Found{};
  const std::span<const KvBlockId> ids = std::span(sequence.tier_ids).subspan(first, usable - first);
  if (!sequence.sighted) tiers_.sight(std::span(sequence.tier_ids).first(sequence.prompt_blocks));
  sequence.sighted = true;
  KvTiers::Found found = tiers_.lookup(ids);
  if (found.pending && config_.wait_for_pending) return std::nullopt;
  if (!sequence.asked) {
    tiers_.count(ids.size(), found);
    sequence.found_in_host = found.host;
  }
  sequence.asked = true;
  found = tiers_.loadable(ids, found);
  const std::uint64_t before = in_gpu * config_.block_tokens;
  if (config_.retrieval == RetrievalPolicy::recompute ||
      (config_.retrieval == RetrievalPolicy::cheaper_of_both && !loading_pays(before, found.blocks()))) {
    meter_.counts.passed_over += found.blocks();
    return KvTiers::Found{};
  }
  if (config_.promotion == PromotionPolicy::at_lookup && found.drives > 0) {
    if (tiers_.promote(ids.first(found.blocks()))) return std::nullopt;
    return tiers_.lookup(ids, 0);
  }
  return found;
}

/// Loading, at the rate of the last loads, against computing the same tokens alone.
bool ServingInstance::loading_pays(std::uint64_t before, std::uint32_t blocks) const {
  if (blocks == 0 || load_bytes_ == 0) return true;
  const std::uint64_t tokens = std::uint64_t{blocks} * config_.factor * config_.block_tokens;
  const SimTime computing = cost_.step({.chunks = {{before, tokens}}});
  const double loading = static_cast<double>(tiers_.whole_block().value) * blocks * load_seconds_ / load_bytes_;
  return loading < computing.seconds();
}

void ServingInstance::count_hits(ServedSequence& sequence, std::size_t in_gpu, const KvTiers::Found& found) {
  const std::uint64_t tier_tokens = std::uint64_t{config_.factor} * config_.block_tokens;
  sequence.counted = true;
  sequence.hit_gpu = in_gpu * config_.block_tokens;
  const std::uint64_t loaded = sequence.computed - sequence.hit_gpu;
  // What is in host memory by a promotion came from drives.
  const std::uint32_t in_host =
      config_.promotion == PromotionPolicy::at_lookup ? std::min(found.host, sequence.found_in_host) : found.host;
  sequence.hit_drives = std::min(loaded, (found.blocks() - in_host) * tier_tokens);
  sequence.hit_host = loaded - sequence.hit_drives;
  meter_.counts.prompt_tokens += sequence.request.prompt;
}

std::function<void()> ServingInstance::prepare_load(ServedSequence& sequence, std::size_t first, std::uint32_t blocks,
                                                    bool in_step) {
  sequence.load_began = transport_.now();
  if (in_step) {
    ++step_->loads;
  } else {
    sequence.phase = ServedSequence::Phase::loading;
    sequence.enter(RequestPhase::load, transport_.now());
    ++loading_;
  }
  const auto left = std::make_shared<std::uint32_t>(tiers_.parts());
  const std::uint64_t factor = config_.factor, tier_tokens = factor * config_.block_tokens;
  return tiers_.load(
      std::span(sequence.tier_ids).subspan(first, blocks), index_,
      [&sequence, first, factor](std::size_t i) {
        return std::span<const KvBlockSlot>(sequence.slots).subspan((first + i) * factor, factor);
      },
      [=, this, &sequence](std::uint32_t part, std::size_t arrived) {
        const bool whole = --*left == 0;
        if (whole) load_ended(sequence, blocks);
        if (whole && arrived < blocks) lose(sequence, (first + arrived) * tier_tokens);
        if (in_step) {
          ++step_->arrived[part];
          if (whole) step_->loaded_at = transport_.now();
          advance_step();
        } else if (whole) {
          sequence.phase = ServedSequence::Phase::loaded;
          sequence.enter(RequestPhase::queued, transport_.now());
          --loading_;
          name_blocks(sequence);
          wake();
        }
      });
}

/// Older loads count less, so that the rate follows the load of the drives.
void ServingInstance::load_ended(ServedSequence& sequence, std::uint32_t blocks) {
  constexpr double kKeeps = 15.0 / 16;
  sequence.has_loaded = true;
  sequence.loaded_at = transport_.now();
  load_bytes_ = load_bytes_ * kKeeps + static_cast<double>(tiers_.whole_block().value) * blocks;
  load_seconds_ = load_seconds_ * kKeeps + (sequence.loaded_at - sequence.load_began).seconds();
}

/// Blocks that the GPU had before are there still. A step that is under way has computed with what did not come: its
/// end sets the sequence back.
void ServingInstance::lose(ServedSequence& sequence, std::uint64_t from) {
  from = std::max<std::uint64_t>(from, sequence.named * config_.block_tokens);
  const std::uint64_t lost = sequence.computed - from;
  const std::uint64_t of_drives = std::min(lost, sequence.hit_drives);
  sequence.hit_drives -= of_drives;
  sequence.hit_host -= std::min(lost - of_drives, sequence.hit_host);
  meter_.counts.lost_tokens += lost;
  if (sequence.phase == ServedSequence::Phase::loading)
    sequence.computed = from;
  else
    sequence.set_back = from;
}

void ServingInstance::add_part(ServedSequence& sequence, std::uint64_t tokens) {
  step_->parts.push_back({&sequence, tokens});
  budget_ -= tokens;
  StepWork& work = step_->work;
  if (tokens == sequence.left()) ++work.samples;
  if (sequence.request.generated > 0 && sequence.left() == 1) {
    ++work.decodes;
    work.decode_contexts += sequence.tokens();
  } else {
    work.chunks.push_back({sequence.computed, tokens});
  }
}

std::uint64_t ServingInstance::missing_blocks(const ServedSequence& sequence, std::uint64_t tokens) const {
  const std::uint64_t needed = (sequence.computed + tokens + config_.block_tokens - 1) / config_.block_tokens;
  return needed > sequence.slots.size() ? needed - sequence.slots.size() : 0;
}

void ServingInstance::take_blocks(ServedSequence& sequence, std::uint64_t count) {
  for (; count > 0; --count) {
    const KvBlockSlots::Taken taken = pool_.take_unnamed();
    sequence.slots.push_back(taken.slot);
    if (taken.evicted && config_.evicts_to_tiers) leave_gpu(*taken.evicted, taken.slot);
  }
}

/// The last block of a block of the tiers leaves: the tier gets all of it, if the others are still there. Blocks leave
/// from the last to the first.
void ServingInstance::leave_gpu(KvBlockId id, KvBlockSlot slot) {
  const auto group = groups_.find(id.value);
  if (group == groups_.end()) return;
  std::vector<KvBlockSlot> slots;
  for (const KvBlockId other : group->second)
    if (const auto found = other == id ? slot : pool_.find(other)) slots.push_back(*found);
  const bool whole = slots.size() == group->second.size();
  groups_.erase(group);
  if (!whole) return;
  ++copies_;
  const auto slots_of = [slots](std::size_t) { return std::span<const KvBlockSlot>(slots); };
  if (!tiers_.store(std::array{id}, index_, slots_of, [this] { copied(); })) --copies_;
}

void ServingInstance::release(ServedSequence& sequence) {
  for (std::size_t i = sequence.slots.size(); i-- > 0;) {
    if (pool_.named(sequence.slots[i])) pool_.used(sequence.slots[i]);
    pool_.release(sequence.slots[i]);
  }
  sequence.slots.clear();
  sequence.named = 0;
}

/// Takes the last sequence out of the batch.
void ServingInstance::preempt(ServedSequence& victim) {
  running_.pop_back();
  victim.enter(RequestPhase::preempted, transport_.now());
  preempted_ = true;
  ++victim.preemptions;
  ++meter_.counts.preemptions;
  // Blocks that it took ahead hold nothing yet.
  const std::uint64_t filled = (victim.computed + config_.block_tokens - 1) / config_.block_tokens;
  const Bytes bytes = config_.block_bytes * filled;
  if (config_.preemption == Preemption::swap && swapped_ + bytes <= config_.swap_space) {
    swapped_ += bytes;
    ++meter_.counts.swaps;
    victim.phase = ServedSequence::Phase::swapped;
    victim.swapped = bytes;
    ++copies_;
    swapped_bytes_ += bytes;
    transport_.copy(index_, CopyDirection::from_gpu, bytes, [this, &victim, filled, slots = victim.slots] {
      if (contents_ != nullptr) contents_->swap_out(victim, std::span(slots).first(filled));
      copied();
    });
  } else {
    victim.phase = ServedSequence::Phase::waiting;
    victim.computed = 0;
  }
  release(victim);
  const auto at = config_.order == AdmissionOrder::priority
                      ? std::ranges::find_if(waiting_, [&](const auto* other) { return !precedes(*other, victim); })
                      : waiting_.begin();
  waiting_.insert(at, &victim);
}

/// Copies a sequence back, once the blocks that leave for it have been copied. Its step begins when that has ended.
bool ServingInstance::resume(ServedSequence& sequence) {
  const std::uint64_t tokens = std::min(sequence.left(), budget_);
  if (!pool_.has_room(missing_blocks(sequence, tokens))) return false;
  take_blocks(sequence, missing_blocks(sequence, tokens));
  swapped_ = swapped_ - sequence.swapped;
  swapped_bytes_ += sequence.swapped;
  when_clear([this, &sequence] {
    ++copies_;
    transport_.copy(index_, CopyDirection::to_gpu, sequence.swapped, [this, &sequence] {
      if (contents_ != nullptr) contents_->swap_in(sequence);
      copied();
    });
  });
  return true;
}

/// Gives names to the blocks that are full. Of two sequences that compute the same block at a time, one has it.
void ServingInstance::name_blocks(ServedSequence& sequence) {
  if (!config_.prefix_caching) return;
  const std::size_t full = std::min<std::size_t>(sequence.computed / config_.block_tokens, sequence.ids.size());
  for (; sequence.named < full; ++sequence.named) {
    const KvBlockId id = sequence.ids[sequence.named];
    if (pool_.named(sequence.slots[sequence.named]) || pool_.find(id)) continue;
    pool_.name(sequence.slots[sequence.named], id);
    if (!config_.evicts_to_tiers || (sequence.named + 1) % config_.factor != 0) continue;
    if (sequence.named / config_.factor >= (config_.stores_answers ? sequence.tier_ids.size() : sequence.prompt_blocks))
      continue;
    const auto last = sequence.ids.begin() + static_cast<std::ptrdiff_t>(sequence.named) + 1;
    groups_[id.value].assign(last - static_cast<std::ptrdiff_t>(config_.factor), last);
  }
}

std::uint32_t ServingInstance::pieces() const {
  return config_.granularity == StepGranularity::step ? 1 : cost_.model().layers + 1;
}

SimTime ServingInstance::piece_time() {
  const SimTime taken = memory_taken();
  if (config_.granularity == StepGranularity::step) return taken + config_.step_overhead + cost_.step(step_->work);
  if (step_->piece < cost_.model().layers) return taken + cost_.layer(step_->work);
  return taken + config_.step_overhead + cost_.ends(step_->work);
}

/// K and V that have entered or left the memory since the last piece have taken its bandwidth from the kernels: it is
/// given back in the next piece. An upper bound, because kernels that compute do not wait for memory.
SimTime ServingInstance::memory_taken() {
  if (config_.gpu_memory.bytes_per_second == 0) return {};
  const KvTiers::GpuTraffic traffic = tiers_.gpu_traffic(index_);
  const Bytes copied = traffic.copied + swapped_bytes_;
  const Bytes passed = traffic.direct + copied * (config_.unified_memory ? 2U : 1U);
  const SimTime taken = transfer_time(passed - passed_, config_.gpu_memory);
  passed_ = passed;
  return taken;
}

/// Whether K and V of the next piece are there. A step in one piece begins with its first layers, whatever policy: with
/// by_layer it waits at its end.
bool ServingInstance::may_compute() const {
  const Step& step = *step_;
  if (step.loads == 0) return true;
  if (config_.load == LoadPolicy::before_step) return step.arrived.back() == step.loads;
  if (config_.granularity == StepGranularity::step) return true;
  return step.arrived[std::min<std::size_t>(step.piece, step.arrived.size() - 1)] == step.loads;
}

/// Computes the next piece as soon as its K and V are there. Called when a piece has ended, and when a load has.
void ServingInstance::advance_step() {
  Step& step = *step_;
  if (step.computing || copies_ > 0) return;
  if (step.piece < pieces()) {
    if (!may_compute()) return;
    step.computing = true;
    const SimTime time = piece_time();
    meter_.counts.gpu_busy += time;
    return transport_.at(transport_.now() + time, [this] {
      step_->computing = false;
      ++step_->piece;
      advance_step();
    });
  }
  if (step.loads > 0 && step.arrived.back() < step.loads) return;
  // A step in one piece: after the last load the GPU still computes the last layer and chooses the tokens.
  if (step.loads > 0 && config_.load == LoadPolicy::by_layer && config_.granularity == StepGranularity::step) {
    const SimTime last = step.loaded_at + cost_.layer(step.work) + cost_.ends(step.work);
    if (last > transport_.now()) {
      step.computing = true;
      return transport_.at(last, [this] {
        step_->computing = false;
        end_step();
      });
    }
  }
  end_step();
}

void ServingInstance::end_step() {
  const Step step = std::move(*step_);
  const SimTime now = transport_.now();
  ++meter_.counts.steps;
  meter_.counts.computed_tokens += step.work.tokens();
  meter_.counts.gpu_steps += now - step.began;
  for (const Part& part : step.parts) {
    ServedSequence& sequence = *part.sequence;
    if (sequence.set_back) {
      sequence.computed = *std::exchange(sequence.set_back, std::nullopt);
      name_blocks(sequence);
      continue;
    }
    if (contents_ != nullptr) contents_->compute(sequence, part.tokens);
    sequence.computed += part.tokens;
    name_blocks(sequence);
    store_blocks(sequence);
    if (sequence.left() > 0) continue;
    ++sequence.request.generated;
    if (sequence.request.generated == 1) sequence.request.first_token = now;
    meter_.token(sequence, now);
    if (sequence.spans.back().phase == RequestPhase::prefill) sequence.enter(RequestPhase::decode, now);
    if (sequence.request.generated == sequence.request.output) end_sequence(sequence);
  }
  std::erase_if(running_, [](const ServedSequence* s) { return s->phase == ServedSequence::Phase::ended; });
  step_.reset();
  for (const Part& part : step.parts)
    if (part.sequence->phase == ServedSequence::Phase::ended) hooks_.ended(*part.sequence);
  wake();
  hooks_.stepped();
}

/// Offers the tiers what is complete. All blocks from the first on are used by that, so that a prefix outlives its
/// tail.
void ServingInstance::store_blocks(ServedSequence& sequence) {
  if (config_.evicts_to_tiers || !tiers_.any()) return;
  const std::size_t most = config_.stores_answers ? sequence.tier_ids.size() : sequence.prompt_blocks;
  const std::size_t complete = std::min<std::size_t>(sequence.computed / config_.block_tokens / config_.factor, most);
  if (complete <= sequence.stored) return;
  const auto slots_of = [&](std::size_t block) {
    return sequence.slots.begin() + static_cast<std::ptrdiff_t>(block * config_.factor);
  };
  // A block that has left the tiers since it was offered is stored again.
  const auto held = std::make_shared<const std::vector<KvBlockSlot>>(slots_of(0), slots_of(complete));
  for (const KvBlockSlot slot : *held) pool_.hold(slot);
  const auto release = [this, held] {
    for (const KvBlockSlot slot : *held) pool_.release(slot);
  };
  sequence.stored = complete;
  sequence.stores = true;
  const auto slots = [held, factor = std::size_t{config_.factor}](std::size_t i) {
    return std::span(*held).subspan(i * factor, factor);
  };
  copies_ += config_.waits_for_stores ? 1 : 0;
  const bool copies = tiers_.store(std::span(sequence.tier_ids).first(complete), index_, slots, [this, release] {
    release();
    if (config_.waits_for_stores) copied();
    wake();
  });
  if (copies) return;
  release();
  copies_ -= config_.waits_for_stores ? 1 : 0;
}

void ServingInstance::end_sequence(ServedSequence& sequence) {
  sequence.phase = ServedSequence::Phase::ended;
  sequence.request.state = Request::State::ended;
  sequence.request.end = transport_.now();
  sequence.close(sequence.request.end);
  if (!sequence.stores && sequence.prompt_blocks > 0)
    tiers_.touch(std::span(sequence.tier_ids).first(sequence.prompt_blocks));
  release(sequence);
  meter_.ended(sequence);
}

void ServingInstance::when_clear(std::function<void()> then) {
  if (copies_ == 0) return then();
  gated_.push_back(std::move(then));
}

void ServingInstance::copied() {
  if (--copies_ > 0) return;
  for (auto& then : std::exchange(gated_, {})) when_clear(std::move(then));
}

}  // namespace csdsim::host
