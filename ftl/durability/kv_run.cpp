#include "ftl/durability/kv_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "ftl/durability/run_steps.h"
#include "ftl/kv/kv_components.h"
#include "ftl/kv/policy_decorator.h"

namespace csdsim::ftl::durability {
namespace {

/// Keeps what the recovery tells its policy.
class HearingPolicy final : public PolicyDecorator {
 public:
  using Told = std::map<PhysicalPageAddress, KvPageId>;
  /// `told` must outlive the policy.
  HearingPolicy(std::unique_ptr<KvMappingPolicy> inner, Told& told) : PolicyDecorator(std::move(inner)), told_(told) {}

  void page_restored(const KvPageId& page, const KvSequenceInfo& sequence, PhysicalPageAddress ppa) override {
    if (!told_.emplace(ppa, page).second) throw Broken{"the policy hears twice of a page"};
    inner_->page_restored(page, sequence, ppa);
  }

 private:
  Told& told_;
};

}  // namespace

std::uint32_t KvRun::Sequence::tokens(const Where& where) const {
  const auto at = heads.find(where);
  return at == heads.end() ? 0 : static_cast<std::uint32_t>(at->second.keys.size() / words);
}

KvRun::KvRun(const KvCase& c, bool with_history)
    : setup_(c.setup),
      tells_(with_history),
      store_(setup_.geometry, DataMode::carried),
      faults_(setup_.seed, setup_.failures_per_mille),
      programmed_(setup_.geometry.pages()) {
  switch_on();
}

void KvRun::switch_on() {
  ftl_.reset();
  closing_.clear();
  blocks_.emplace(setup_.geometry, BlockQuota{0, setup_.geometry.blocks_per_plane - setup_.spare_blocks},
                  BlockManagerConfig{.spare_blocks = setup_.spare_blocks});
  dram_.emplace(Bytes::gib(1));
  told_.clear();
  ftl_ = std::make_unique<KvFtl>(setup_.config, *blocks_, store_, *dram_,
                                 std::make_unique<HearingPolicy>(setup_.make_policy(setup_.geometry), told_),
                                 setup_.failures_per_mille > 0 ? &faults_ : nullptr);
}

void KvRun::require(bool holds, const char* what) const {
  if (!holds) throw Broken{what};
}

void KvRun::tell(const KvStep& step, const std::string& what) {
  if (tells_) history_.push_back(fmt::format("{}{}", kKvStepNames[static_cast<std::size_t>(step.kind)], what));
}

std::uint64_t KvRun::state() const {
  std::set<std::uint64_t> under_way;
  for (const Flight& flight : flights_) {
    for (const PageOp& op : flight.changes) under_way.insert(op.ppa.value * 4 + static_cast<std::uint64_t>(op.kind));
    if (flight.submitted == 0) under_way.insert(~flight.changes.front().ppa.value);
  }
  std::uint64_t state = past_;
  for (const std::uint64_t op : under_way) state = counter_random(state, op);
  return state;
}

void KvRun::step(const KvStep& step) {
  if (step.kind != KvStep::Kind::complete) {
    past_ = counter_random(state(), static_cast<std::uint64_t>(step.kind));
    for (const std::uint32_t n : step.n) past_ = counter_random(past_, n);
  }
  switch (step.kind) {
    case KvStep::Kind::create:
      return create(step);
    case KvStep::Kind::append:
      return append(step);
    case KvStep::Kind::free:
      return release(step);
    case KvStep::Kind::fork:
      return fork(step);
    case KvStep::Kind::pin:
      return pin(step);
    case KvStep::Kind::unpin:
      return unpin(step);
    case KvStep::Kind::complete:
      return complete(step);
    case KvStep::Kind::cut:
      return cut(step);
  }
}

// Commands.

bool KvRun::create(SequenceId id, std::uint32_t shape) {
  const bool few_bits = setup_.format.quantised() && shape % 2 == 1;
  const KvShape made{setup_.one_head ? 1 : 1 + shape % 2,
                     setup_.one_head ? 1 : 1 + shape / 2 % 3,
                     16,
                     shape % 200,
                     shape % 4 != 3,
                     few_bits ? setup_.format : RowQuantisation{}};
  if (ftl_->create_sequence(id, made) != KvStatus::ok) return false;
  ++coverage_.commands;
  live_[id] = {made, ftl_->layout(id).row_words(), {}};
  return true;
}

void KvRun::create(const KvStep& step) {
  const SequenceId id{step.n[0] % setup_.sequences};
  if (!live_.contains(id) && create(id, step.n[1])) tell(step, fmt::format(" sequence {}", id.value));
}

void KvRun::append(const KvStep& step) {
  const SequenceId id{step.n[0] % setup_.sequences};
  if (!live_.contains(id) && !create(id, setup_.one_head ? 0 : step.n[2])) return;
  const Sequence& s = live_.at(id);
  const KvLayout& l = ftl_->layout(id);
  // Some tokens of a group, a group, more than two, more than a window.
  const std::uint32_t most = std::array{1u, l.group_tokens, 2 * l.group_tokens + 1, l.window_tokens + 3}[step.n[1] % 4];
  const std::uint32_t count = most - step.n[1] / 4 % most;
  tell(step, fmt::format(" {} tokens to sequence {}", count, id.value));
  if (step.n[2] % 4 != 1) {  // a step of the whole model
    for (std::uint32_t layer = 0; layer < s.shape.layers; ++layer)
      if (!append(id, LayerId{layer}, KvHead{0}, count)) return;
  } else {
    append(id, LayerId{step.n[2] / 4 % s.shape.layers}, KvHead{step.n[2] / 8 % s.shape.kv_heads}, count);
  }
}

/// Appends to `first` and the heads after it that hold as many tokens. Returns false if there is no room: the sequence
/// is freed then.
bool KvRun::append(SequenceId id, LayerId layer, KvHead first, std::uint32_t count) {
  Sequence& s = live_.at(id);
  const std::uint32_t at = s.tokens({layer, first});
  std::uint32_t heads = 1;
  while (first.value + heads < s.shape.kv_heads && s.tokens({layer, KvHead{first.value + heads}}) == at) ++heads;
  const std::vector<Half> keys = rows(s.shape, std::size_t{heads} * count);
  const std::vector<Half> values = rows(s.shape, std::size_t{heads} * count);
  ++coverage_.commands;
  KvStatus status = KvStatus::busy;
  for (int tries = 0; status == KvStatus::busy && tries < 40; ++tries) {
    if (tries > 0) drain();
    const AppendResult result = ftl_->append(id, layer, TokenIndex{at}, count, {first, heads}, keys, values);
    add(result.jobs, result.erases);
    status = result.status;
    if (tries == 1) unpin_all();  // readers finish, too
  }
  require(status != KvStatus::busy, "an append waits for ever");
  if (status != KvStatus::ok) {
    const bool full = status == KvStatus::out_of_space || status == KvStatus::read_only;
    if (!full) throw Broken{fmt::format("an append ends with status {}", static_cast<int>(status))};
    if (status == KvStatus::out_of_space) check_refusal(id, layer, {first, heads}, at, count);
    ++coverage_.refused;
    free(id);
    return false;
  }
  for (std::uint32_t i = 0; i < heads; ++i) {
    const std::size_t part = std::size_t{count} * s.words, from = i * part;
    s.heads[{layer, KvHead{first.value + i}}].append(
        std::span(keys).subspan(from, part), std::span(values).subspan(from, part), s.shape.head_dim, s.shape.format);
  }
  return true;
}

/// Rows that no other append has.
std::vector<Half> KvRun::rows(const KvShape& shape, std::size_t count) {
  const std::uint32_t d = shape.head_dim;
  std::vector<float> values(d);
  const std::size_t words = shape.format.quantised() ? shape.format.row(d, kElementBytes).value / sizeof(Half) : d;
  std::vector<Half> made(count * words);
  for (std::size_t row = 0; row < count; ++row, ++rows_made_) {
    for (std::uint32_t i = 0; i < d; ++i) {
      const std::uint64_t bits = counter_random(setup_.seed, rows_made_ * d + i);
      values[i] = static_cast<float>(static_cast<double>(bits >> 11) * 0x1p-52 - 1.0);
    }
    const std::span<Half> to = std::span(made).subspan(row * words, words);
    if (shape.format.quantised()) {
      shape.format.quantise(values, std::as_writable_bytes(to));
    } else {
      std::ranges::transform(values, to.begin(), [](float value) { return float_to_half(value); });
    }
  }
  return made;
}

void KvRun::free(SequenceId id) {
  const FreeResult result = ftl_->free_sequence(id);
  require(result.status == KvStatus::ok, "a sequence that exists cannot be freed");
  ++coverage_.commands;
  live_.erase(id);
  // While somebody works on its pages, the sequence still holds its DRAM.
  if (ftl_->create_sequence(id, {1, 1, 16, 0}) == KvStatus::busy)
    closing_.insert(id);
  else
    require(ftl_->free_sequence(id).status == KvStatus::ok, "a new sequence cannot be freed");
  add({}, result.erases);
}

void KvRun::release(const KvStep& step) {
  const SequenceId id{step.n[0] % setup_.sequences};
  if (!live_.contains(id)) return;
  tell(step, fmt::format(" sequence {}", id.value));
  free(id);
}

void KvRun::fork(const KvStep& step) {
  const SequenceId parent{step.n[0] % setup_.sequences}, child{step.n[1] % setup_.sequences};
  if (!live_.contains(parent) || ftl_->fork_sequence(parent, child) != KvStatus::ok) return;
  tell(step, fmt::format(" of sequence {} to {}", parent.value, child.value));
  ++coverage_.commands;
  ++coverage_.forks;
  live_[child] = live_.at(parent);
}

void KvRun::pin(const KvStep& step) {
  const SequenceId id{step.n[0] % setup_.sequences};
  if (!live_.contains(id)) return;
  tell(step, fmt::format(" sequence {}", id.value));
  require(ftl_->pin(id) == KvStatus::ok, "a sequence that exists cannot be pinned");
  pins_.push_back(id);
}

void KvRun::unpin(const KvStep& step) {
  if (pins_.empty()) return;
  const auto at = pins_.begin() + static_cast<std::ptrdiff_t>(step.n[0] % pins_.size());
  const SequenceId id = *at;
  tell(step, fmt::format(" sequence {}", id.value));
  pins_.erase(at);
  add({}, ftl_->unpin(id));
}

void KvRun::unpin_all() {
  for (const SequenceId id : std::exchange(pins_, {})) add({}, ftl_->unpin(id));
}

// The flash.

void KvRun::add(const std::vector<FlushJob>& jobs, const std::vector<PageOp>& erases, bool of_recovery) {
  for (const FlushJob& job : jobs) {
    Flight& flight = flights_.emplace_back(Flight{job.id, job.reads, job.programs, 0, of_recovery, 0});
    for (const PageOp& op : job.programs) flight.pages += store_.written(op.ppa) ? 1 : 0;
    if (flight.reads.empty()) flight.submitted = ++submissions_;
  }
  for (const PageOp& erase : erases) flights_.push_back(Flight{{}, {}, {erase}, 0, of_recovery, ++submissions_});
}

/// On each plane the first program or erase in the order of submission; and the reads of flushes.
std::vector<KvRun::Ready> KvRun::ready_ops() const {
  std::vector<Ready> ready;
  std::map<PlaneId, std::pair<std::uint64_t, Ready>> first;
  for (auto flight = flights_.begin(); flight != flights_.end(); ++flight) {
    if (flight->submitted == 0) {
      ready.push_back({flight, nullptr});
      continue;
    }
    for (const PageOp& op : flight->changes) {
      const PlaneId plane = setup_.geometry.plane_of(op.ppa);
      const auto at = first.find(plane);
      if (at == first.end() || at->second.first > flight->submitted)
        first[plane] = {flight->submitted, Ready{flight, &op}};
    }
  }
  for (const auto& [plane, of_plane] : first) ready.push_back(of_plane.second);
  return ready;
}

/// Executes an operation as a flash does. Throws Broken for a page that does not exist, a read of an erased page, and a
/// second program of a page.
void KvRun::run(const PageOp& op) {
  const std::uint64_t ppa = op.ppa.value, in_block = setup_.geometry.pages_per_block;
  if (!setup_.geometry.contains(op.ppa)) throw Broken{fmt::format("page {} does not exist", ppa)};
  switch (op.kind) {
    case PageOpKind::read:
      if (!programmed_[ppa]) throw Broken{fmt::format("page {} is read while it is erased", ppa)};
      break;
    case PageOpKind::program:
      if (programmed_[ppa]) throw Broken{fmt::format("page {} is programmed twice", ppa)};
      programmed_[ppa] = true;
      break;
    case PageOpKind::erase:
      for (std::uint64_t i = 0; i < in_block; ++i) programmed_[ppa + i] = false;
      break;
  }
}

void KvRun::complete(const Ready& ready) {
  ++coverage_.completions;
  Flight& flight = *ready.flight;
  if (ready.op == nullptr) {
    for (const PageOp& op : flight.reads) run(op);
    flight.submitted = ++submissions_;
    return;
  }
  const PageOp op = *ready.op;
  run(op);
  flight.changes.erase(flight.changes.begin() + (ready.op - flight.changes.data()));
  if (!flight.changes.empty()) return;
  const std::optional<FlushJobId> job = flight.job;
  flights_.erase(ready.flight);
  if (job) {
    add({}, ftl_->flush_done(*job));
  } else {
    ftl_->erase_done(op.ppa);
  }
}

void KvRun::complete(const KvStep& step) {
  const std::vector<Ready> ready = ready_ops();
  if (ready.empty()) return;
  const Ready& one = ready[step.n[0] % ready.size()];
  if (tells_) {
    const char* const what = one.op == nullptr                     ? "reads of a flush"
                             : one.op->kind == PageOpKind::program ? "program of page"
                                                                   : "erase from page";
    tell(step, fmt::format(": {} {}", what, one.op == nullptr ? "" : std::to_string(one.op->ppa.value)));
  }
  complete(one);
}

void KvRun::drain() {
  while (!flights_.empty()) complete(ready_ops().front());
}

// Cuts.

/// Decides for each operation that may be under way whether it has not begun, is torn, or has ended and the firmware
/// does not know it yet.
PowerLoss KvRun::decide_fates(std::uint32_t fates) {
  PowerLoss loss;
  std::set<std::uint64_t> ended;
  for (const Ready& ready : ready_ops()) {
    const std::uint32_t fate = fates % 3;
    fates /= 3;
    if (ready.op == nullptr || fate == 0) continue;
    const PageOp& op = *ready.op;
    run(op);
    if (fate == 2) {
      ended.insert(op.ppa.value);
      if (op.kind == PageOpKind::erase) store_.erase(setup_.geometry.block_of(op.ppa));
    } else if (op.kind == PageOpKind::program) {
      loss.torn.push_back(op.ppa);
      ended.insert(op.ppa.value);
    } else {
      loss.half_erased.push_back(setup_.geometry.block_of(op.ppa));
    }
  }
  for (const Flight& flight : flights_)
    for (const PageOp& op : flight.changes) {
      if (op.kind == PageOpKind::program && !ended.contains(op.ppa.value)) loss.unprogrammed.push_back(op.ppa);
      coverage_.undone_erases += op.kind == PageOpKind::erase && !ended.contains(op.ppa.value) ? 1 : 0;
    }
  coverage_.torn += loss.torn.size();
  coverage_.half_erased += loss.half_erased.size();
  return loss;
}

void KvRun::cut(const KvStep& step) {
  tell(step, "");
  ++coverage_.cuts;
  coverage_.collected += ftl_->stats().gc_blocks;
  coverage_.bad_blocks += blocks_->grown_bad_blocks();
  coverage_.cuts_in_recovery += std::ranges::any_of(flights_, &Flight::of_recovery) ? 1 : 0;
  KvDump dump = ftl_->power_loss();
  for (const KvDump::Sequence& s : dump.sequences)
    require(live_.contains(s.id), "a sequence that was freed is in the dump");
  const PowerLoss loss = decide_fates(step.n[0]);
  if (setup_.weak_capacitors) forget_images(dump, step.n[1]);
  store_.lose_power(loss);
  flights_.clear();
  pins_.clear();
  recover(dump);
}

void KvRun::forget_images(KvDump& dump, std::uint32_t count) {
  for (std::size_t left = count % (dump.images.size() + 1); left > 0; --left) dump.images.pop_back();
}

void KvRun::recover(const KvDump& dump) {
  const std::vector<BlockRecord> before = blocks_->records();
  switch_on();
  const RecoveryResult found = ftl_->recover(dump);
  check_blocks(before);
  check_told(found.pages);
  for (const PageOp& op : found.reads) run(op);
  add(found.jobs, found.erases, true);
  coverage_.found += found.pages;
  coverage_.stale += found.stale_pages;
  coverage_.saved += found.saved_pages;
  coverage_.rebuilt += found.rebuilt_pages;
  coverage_.evacuated += found.evacuated_pages;
  coverage_.parked += ftl_->parked_pages();
  drop_lost(found);
  for (const auto& [id, s] : live_)
    for (const auto& [where, h] : s.heads) {
      const std::uint32_t transposed = ftl_->transposed_tokens({id, where.first, where.second});
      coverage_.partial_windows += transposed > ftl_->layout(id).windowed(transposed) ? 1 : 0;
    }
  check();
}

/// Only capacitors that do not save all pages lose sequences, and the recovery says which.
void KvRun::drop_lost(const RecoveryResult& found) {
  if (!setup_.weak_capacitors && !found.lost_sequences.empty())
    throw Broken{fmt::format("sequence {} is lost", found.lost_sequences.front().value)};
  coverage_.lost_sequences += found.lost_sequences.size();
  for (const SequenceId id : found.lost_sequences)
    require(live_.erase(id) == 1, "a sequence that does not exist is reported as lost");
}

void KvRun::check_blocks(const std::vector<BlockRecord>& before) const {
  for (const BlockRecord& record : before) {
    require(blocks_->erase_count(record.block) == record.erases, "a recovery changes the number of erases of a block");
    const BlockState state = blocks_->state(record.block);
    if (record.state == BlockState::free) continue;  // the recovery may have written to it, or have failed to
    const auto out_of_service = [](BlockState s) { return s == BlockState::bad || s == BlockState::retired; };
    require(out_of_service(record.state) == out_of_service(state), "a block that failed comes back, or another goes");
    require(state != BlockState::open, "a page goes to a block that was open when the power failed");
  }
}

/// The policy has heard of each page that was found in flash, and where.
void KvRun::check_told(std::uint64_t found) const {
  require(told_.size() == found, "the policy has not heard of every page that was found");
  ftl_->visit_pages([&](const KvPageId& page, PhysicalPageAddress ppa) {
    const auto told = told_.find(ppa);
    require(told == told_.end() || told->second == page, "the policy has heard of another page");
  });
}

// What must hold.

/// An append is refused only where valid pages, those that it may write, and the block that collection keeps do not
/// fit: all others are garbage, and there is room to collect it.
void KvRun::check_refusal(SequenceId id, LayerId layer, HeadRange heads, std::uint32_t at, std::uint32_t count) const {
  const KvLayout& layout = ftl_->layout(id);
  const auto pages = [&](std::uint32_t tokens) { return layout.pages(tokens).total(); };
  // Groups and windows that were begun before, or are programmed before they are full.
  const std::uint64_t begun = layout.pages_per_group() + 2 * std::uint64_t{layout.embedding_pages()};
  std::uint64_t most = heads.count * (pages(at + count) - pages(at) + begun);
  // Full groups that the policy has kept in DRAM until there are more of them.
  for (std::uint32_t h = heads.first.value; at > 0 && h < heads.first.value + heads.count; ++h) {
    const std::uint32_t written = ftl_->flushed_tokens({id, layer, KvHead{h}}) / layout.group_tokens;
    most += (at / layout.group_tokens - written) * layout.pages_per_group();
  }
  const std::uint64_t held = blocks_->valid_pages(Namespace::kv) + ftl_->parked_pages();
  require(held + most + setup_.geometry.pages_per_block > blocks_->total_pages(Namespace::kv),
          "an append is refused although there is room");
}

/// Appends empty blocks in which a program has failed, as soon as there is room beside the block that collection keeps.
void KvRun::empty_failed_blocks() {
  const auto left = [&] {
    for (std::uint32_t i = 0; i < setup_.geometry.blocks(); ++i) {
      const BlockId block{i};
      const std::uint32_t valid = blocks_->valid_pages(block);
      if (blocks_->state(block) == BlockState::retired && valid > 0 &&
          valid + setup_.geometry.pages_per_block <= blocks_->available_pages(Namespace::kv))
        return true;
    }
    return false;
  };
  for (int tries = 0; tries < 8 && left() && !live_.empty(); ++tries) {
    append(live_.begin()->first, LayerId{0}, KvHead{0}, 1);
    drain();
  }
  require(!left() || live_.empty(), "a failed block is not emptied although there is room");
}

void KvRun::check() {
  std::set<std::uint64_t> used;
  ftl_->visit_pages([&](const KvPageId&, PhysicalPageAddress ppa) {
    require(setup_.geometry.contains(ppa) && blocks_->valid(ppa), "a mapped page is not valid");
    require(used.insert(ppa.value).second, "two entries of the map have one page");
  });
  require(blocks_->valid_pages(Namespace::kv) == used.size() + ftl_->superseded_pages(),
          "pages are valid that no entry of the map has");
  for (const auto& [id, s] : live_)
    for (const auto& [where, h] : s.heads) check_head({id, where.first, where.second}, h);
  check_dram();
  require(store_.integrity_errors() == 0, "a page does not hold what it should");
}

void KvRun::check_dram() const {
  Bytes rows, means;
  for (const auto& [id, s] : live_)
    for (const auto& [where, h] : s.heads) {
      const HeadKey key{id, where.first, where.second};
      const KvLayout& l = ftl_->layout(id);
      rows += l.row() * (2 * (s.tokens(where) - ftl_->flushed_tokens(key)));
      means += s.tokens(where) > 0 ? Bytes{sizeof(float)} * l.head_dim : Bytes{};
    }
  if (closing_.empty()) {
    require(dram_->used(DramUse::group_buffer) == rows, "controller DRAM counts other rows than there are");
    require(dram_->used(DramUse::value_mean) == means, "controller DRAM counts other means than there are");
  }
  std::uint64_t pending = ftl_->parked_pages();
  for (const Flight& flight : flights_) pending += flight.pages;
  require(dram_->used(DramUse::flush_pending) == setup_.geometry.page_size * pending,
          "controller DRAM counts other images than there are");
}

void KvRun::check_head(const HeadKey& key, const HeadOracle& h) {
  const auto broken = [&](const char* what) {
    throw Broken{fmt::format("{} of sequence {}, layer {}, head {} {} not what was appended", what, key.sequence.value,
                             key.layer.value, key.head.value, what[0] == 'r' ? "are" : "is")};
  };
  if (ftl_->check(key) != KvStatus::ok) throw Broken{fmt::format("sequence {} is gone", key.sequence.value)};
  const KvLayout& l = ftl_->layout(key.sequence);
  const std::uint32_t words = l.row_words();
  const std::size_t tokens = h.keys.size() / words;
  if (ftl_->tokens(key) != tokens)
    throw Broken{fmt::format("sequence {}, layer {}, head {} has {} tokens of {}", key.sequence.value, key.layer.value,
                             key.head.value, ftl_->tokens(key), tokens)};
  for (std::uint32_t t = 0; t < tokens; t += l.group_tokens) {
    const std::size_t bytes = std::size_t{2} * words * std::min<std::size_t>(l.group_tokens, tokens - t);
    const std::size_t at = std::size_t{t} * words;
    const std::uint32_t group = t / l.group_tokens;
    if (std::memcmp(ftl_->token_rows(key, KvKind::key, group), &h.keys[at], bytes) != 0) broken("rows of K");
    if (std::memcmp(ftl_->token_rows(key, KvKind::value, group), &h.values[at], bytes) != 0) broken("rows of V");
  }
  if (tokens > 0 && !std::ranges::equal(ftl_->value_mean(key), h.mean)) broken("the mean of V");
  check_windows(key, h);
  std::vector<std::uint32_t> groups;
  for (std::uint32_t g = 0; g * l.group_tokens < tokens; ++g) groups.push_back(g);
  ReadPlan plan;
  ftl_->plan_token_groups(key, KvRows::both, groups, {}, plan);
  for (const PageOp& op : plan.ops) run(op);
}

/// Component-major pages hold the same elements.
void KvRun::check_windows(const HeadKey& key, const HeadOracle& h) {
  const KvLayout& l = ftl_->layout(key.sequence);
  const std::uint32_t d = l.head_dim, transposed = ftl_->transposed_tokens(key);
  require(transposed <= ftl_->tokens(key), "more tokens are component-major than there are");
  const std::vector<Half> keys = elements_of(l.format, h.keys, d);
  for (std::uint32_t w = 0; w < ftl_->transposed_windows(key); ++w) {
    const KvWindow window = l.window(w);
    const std::uint32_t held = std::min(window.tokens, transposed - window.first);
    ++coverage_.windows;
    coverage_.few_bits += l.format.quantised() ? 1 : 0;
    std::vector<Half> made(std::size_t{window.group} * window.tokens);
    for (std::uint32_t ge = 0; ge < l.embedding_pages(window); ++ge) {
      const Half* page = ftl_->embedding_page(key, ge, w);
      if (l.format.quantised()) {
        dequantise_components(l, window, ge, held, page, made);
        page = made.data();
      }
      for (std::uint32_t i = 0; i < window.group; ++i)
        for (std::uint32_t t = 0; t < held; ++t)
          require(page[i * window.tokens + t] == keys[std::size_t{window.first + t} * d + ge * window.group + i],
                  "an embedding page differs from the keys");
    }
  }
}

/// With no operation under way every full window is component-major.
void KvRun::check_settled() {
  drain();
  unpin_all();
  drain();
  check();
  require(ftl_->verify() == 0, "a page does not hold what it should");
  if (ftl_->parked_pages() > 0) return;
  for (const auto& [id, s] : live_)
    for (const auto& [where, h] : s.heads) {
      const HeadKey key{id, where.first, where.second};
      require(ftl_->transposed_tokens(key) >= ftl_->layout(id).windowed(ftl_->flushed_tokens(key)),
              "a full window is not component-major");
    }
}

void KvRun::go_on_without_faults() {
  check_settled();
  empty_failed_blocks();
  check_settled();
  while (!live_.empty()) free(live_.begin()->first);
  closing_.clear();
  drain();
  check();
  require(dram_->used() == Bytes{}, "controller DRAM is held when nothing is there");
  require(ftl_->parked_pages() == 0 && blocks_->valid_pages(Namespace::kv) == 0,
          "pages are held when nothing is there");
  coverage_.collected += ftl_->stats().gc_blocks;
  coverage_.bad_blocks += blocks_->grown_bad_blocks();
}

KvCoverage& KvCoverage::operator+=(const KvCoverage& o) {
  for (const auto member : {&KvCoverage::cuts,
                            &KvCoverage::commands,
                            &KvCoverage::completions,
                            &KvCoverage::torn,
                            &KvCoverage::half_erased,
                            &KvCoverage::undone_erases,
                            &KvCoverage::found,
                            &KvCoverage::stale,
                            &KvCoverage::saved,
                            &KvCoverage::rebuilt,
                            &KvCoverage::evacuated,
                            &KvCoverage::parked,
                            &KvCoverage::partial_windows,
                            &KvCoverage::windows,
                            &KvCoverage::few_bits,
                            &KvCoverage::cuts_in_recovery,
                            &KvCoverage::lost_sequences,
                            &KvCoverage::forks,
                            &KvCoverage::refused,
                            &KvCoverage::collected,
                            &KvCoverage::bad_blocks})
    this->*member += o.*member;
  return *this;
}

std::string to_string(const KvSetup& setup) {
  const FlashGeometry& g = setup.geometry;
  constexpr std::array kTails{"token_index", "dram", "partial_program"};
  return fmt::format(
      "{} channels, {} dies, {} planes, {} blocks of {} pages of {} bytes; mapping {}, tail {}, {} components a page, "
      "{} rewrites{}; {} sequences; {}; {} spare blocks, {} of 1,000 programs and erases fail; seed {}",
      g.channels, g.dies_per_channel, g.planes_per_die, g.blocks_per_plane, g.pages_per_block, g.page_size.value,
      setup.policy, kTails[static_cast<std::size_t>(setup.config.tail)], setup.config.layout.embedding_group,
      setup.config.tail_rewrites, setup.format.quantised() ? fmt::format(", rows of {} bits", setup.format.bits) : "",
      setup.sequences, setup.weak_capacitors ? "weak capacitors" : "capacitors", setup.spare_blocks,
      setup.failures_per_mille, setup.seed);
}

KvCaseResult run_case(const KvCase& c, bool with_history, bool only_steps) {
  return run_steps<KvCaseResult>(KvRun(c, with_history), c, only_steps);
}

}  // namespace csdsim::ftl::durability
