// The operations of a case on the drive and on the plain arrays beside it.
#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/fp16.h"
#include "ftl/conformance/run.h"
#include "ftl/kv/kv_recovery.h"

namespace csdsim::ftl::conformance {

namespace {

/// Full checks are slow: one follows after this many operations.
constexpr std::size_t kCheckEvery = 24;
constexpr std::uint32_t kSequences = 5;
/// Bounds the plain arrays, which a long list of appends would make too large.
constexpr std::size_t kMostHalves = std::size_t{1} << 20;

}  // namespace

Run::Run(const PolicyMaker& policy, const Case& c, const CaseOptions& options)
    : case_(c),
      options_(options),
      faults_(c.setup.seed, c.setup.failures_per_mille),
      policy_(policy),
      store_(c.setup.geometry, DataMode::carried),
      rng_(c.setup.seed, "rows"),
      programmed_(c.setup.geometry.pages(), false) {
  if (options_.journal != nullptr) options_.journal->begin_drive(c.setup);
  switch_on();
}

void Run::switch_on() {
  const Setup& s = case_.setup;
  ftl_.reset();
  const BlockQuota quota{0, s.geometry.blocks_per_plane - s.spare_blocks};
  blocks_.emplace(s.geometry, quota, BlockManagerConfig{.spare_blocks = s.spare_blocks});
  dram_.emplace(s.dram);
  ftl_.emplace(s.config, *blocks_, store_, *dram_,
               std::make_unique<WatchedPolicy>(policy_(s.geometry), append_use_, options_.journal), &faults_);
}

/// Adds what the FTL has done since it was switched on.
void Run::count() {
  const KvFtlStats& s = ftl_->stats();
  coverage_.pages += s.token_pages_programmed + s.embedding_pages_programmed + s.partial_pages_programmed;
  coverage_.token_pages += s.token_pages_programmed;
  coverage_.windows += s.embedding_pages_programmed;
  coverage_.moved_pages += s.gc_pages_moved;
  coverage_.program_failures += s.program_failures;
}

Coverage Run::coverage() {
  count();
  return coverage_;
}

/// Power fails while each operation in progress has not begun, has begun, or has ended; then power returns.
void Run::lose_power(const Operation& o) {
  note("power loss with {} jobs and {} erases under way", jobs_.size(), erases_.size());
  std::uint64_t draws = 0;
  const auto draw = [&] { return counter_random(o.n[0], draws++) % 3; };
  const KvDump dump = ftl_->power_loss();
  count();
  ++coverage_.power_losses;
  PowerLoss loss;
  for (const FlushJob& job : jobs_) {
    const bool reads_done = draw() > 0;
    for (const PageOp& op : job.programs) {
      const std::uint64_t how = reads_done ? draw() : 0;
      if (how == 0) {
        loss.unprogrammed.push_back(op.ppa);
        continue;
      }
      flash(op);
      if (how == 1) loss.torn.push_back(op.ppa);
    }
  }
  for (const PageOp& op : erases_) {
    const BlockId block = case_.setup.geometry.block_of(op.ppa);
    const std::uint64_t how = draw();
    if (how == 0) loss.half_erased.push_back(block);
    if (how != 1) continue;
    flash(op);
    store_.erase(block);
  }
  store_.lose_power(loss);
  jobs_.clear();
  erases_.clear();
  pins_.clear();
  switch_on();
  RecoveryResult found = ftl_->recover(dump);
  require(Property::power_loss, found.lost_pages.empty() && found.lost_sequences.empty(), [&] {
    return fmt::format("{} pages of {} sequences are lost{}", found.lost_pages.size(), found.lost_sequences.size(),
                       found.lost_pages.empty() ? "" : ", the first is " + to_string(found.lost_pages[0]));
  });
  for (const auto& [id, s] : live_) {
    const KvStatus status = ftl_->check({id, LayerId{0}, KvHead{0}});
    require(Property::power_loss, status == KvStatus::ok,
            [&] { return fmt::format("sequence {} is not there after a power loss", id.value); });
  }
  take(found.jobs);
  take_erases(found.erases);
  check(false);
}

void Run::run() {
  for (at_ = 0; at_ < case_.operations.size(); ++at_) {
    if (options_.interfere) options_.interfere(*ftl_, *blocks_, at_);
    ++coverage_.operations;
    if (options_.journal != nullptr) options_.journal->begin_operation(at_, case_.operations[at_].kind);
    step(case_.operations[at_]);
    if (at_ % kCheckEvery == kCheckEvery - 1) check(false);
  }
  if (options_.interfere) options_.interfere(*ftl_, *blocks_, at_);
  drain();
  for (const SequenceId id : std::exchange(pins_, {})) take_erases(ftl_->unpin(id));
  drain();
  check(ftl_->parked_pages() == 0);
  while (!live_.empty()) free(live_.begin()->first);
  drain();
  check_end();
}

void Run::step(const Operation& o) {
  switch (o.kind) {
    case Operation::Kind::append:
      return append(o);
    case Operation::Kind::advance:
      return advance(o);
    case Operation::Kind::create:
      return create(o);
    case Operation::Kind::complete_job:
      if (!jobs_.empty()) complete_job(o.n[0] % jobs_.size());
      return;
    case Operation::Kind::complete_erase:
      if (!erases_.empty()) complete_erase(o.n[0] % erases_.size());
      return;
    case Operation::Kind::attend:
      return attend(o);
    case Operation::Kind::pin:
      if (live_.empty()) return;
      pins_.push_back(sequence(o.n[0])->first);
      ftl_->pin(pins_.back());
      note("pin sequence {}", pins_.back().value);
      return;
    case Operation::Kind::unpin: {
      if (pins_.empty()) return;
      const auto which = pins_.begin() + static_cast<std::ptrdiff_t>(o.n[0] % pins_.size());
      const SequenceId id = *which;
      pins_.erase(which);
      note("unpin sequence {}", id.value);
      take_erases(ftl_->unpin(id));
      return;
    }
    case Operation::Kind::fork:
      return fork(o);
    case Operation::Kind::free:
      if (!live_.empty()) free(sequence(o.n[0])->first);
      return;
    case Operation::Kind::power_loss:
      return lose_power(o);
  }
}

Run::Live::iterator Run::sequence(std::uint32_t n) {
  return std::next(live_.begin(), static_cast<std::ptrdiff_t>(n % live_.size()));
}

void Run::create(const Operation& o) {
  const SequenceId id{o.n[0] % kSequences};
  const std::uint64_t row_limit = case_.setup.geometry.page_size.value / kElementBytes;
  KvShape shape;
  shape.layers = 1 + o.n[1] % 3;
  shape.kv_heads = 1 + o.n[1] / 3 % 5;
  shape.head_dim = static_cast<std::uint32_t>(std::min<std::uint64_t>(std::uint64_t{16} << o.n[2] % 4, row_limit));
  shape.max_tokens = o.n[3] % 700;
  shape.component_major = o.n[2] / 4 % 4 != 3;
  const KvStatus status = ftl_->create_sequence(id, shape);
  if (live_.contains(id)) {
    require(Property::interface, status == KvStatus::bad_sequence,
            [&] { return fmt::format("sequence {} is created twice: {}", id.value, ftl::to_string(status)); });
    return;
  }
  if (status != KvStatus::ok) return;  // the old sequence is still closing, or the policy does not accept the shape
  ++coverage_.sequences;
  live_[id] = {shape, next_root_++, {}};
  const KvLayout& l = ftl_->layout(id);
  note("create sequence {}: {} layers, {} KV heads, d {}, {}; {} tokens and {} heads a page{}", id.value, shape.layers,
       shape.kv_heads, shape.head_dim, shape.component_major ? "K component-major too" : "K token-major only",
       l.group_tokens, l.page_heads,
       l.component_major
           ? fmt::format(", {} components of {} tokens an embedding page", l.embedding_group, l.window_tokens)
           : std::string());
  check_layout(shape, l);
}

void Run::append(const Operation& o) {
  if (live_.empty()) return;
  auto& [id, s] = *sequence(o.n[0]);
  const KvLayout& l = ftl_->layout(id);
  const std::uint32_t layer = o.n[1] % s.shape.layers;
  const std::uint32_t first_head = o.n[2] % s.shape.kv_heads;
  const std::uint32_t at = s.tokens(layer, first_head);
  HeadRange heads{KvHead{first_head}, 1};
  while (first_head + heads.count < s.shape.kv_heads && s.tokens(layer, first_head + heads.count) == at) ++heads.count;
  // Counts below, at and beyond the ends of groups and windows.
  const std::uint32_t most =
      std::array{3u, l.group_tokens + 1, l.window_tokens / 2 + 1, 2 * l.window_tokens + 3}[o.n[3] % 4];
  append_rows(id, layer, heads, at, 1 + o.n[3] / 4 % std::max(1u, most));
  note("append to sequence {}, layer {}, heads {}-{}: tokens [{}, {})", id.value, layer, first_head,
       first_head + heads.count - 1, at, s.tokens(layer, first_head));
}

void Run::advance(const Operation& o) {
  if (live_.empty()) return;
  const SequenceId id = sequence(o.n[0])->first;
  std::uint32_t most = 0;
  for (const auto& [where, h] : live_[id].heads) most = std::max(most, live_[id].tokens(where.first, where.second));
  const std::uint32_t end = most + o.n[3] % 40;
  note("append to sequence {}, all layers and heads: up to token {}", id.value, end);
  for (std::uint32_t layer = 0; layer < live_[id].shape.layers; ++layer) {
    for (std::uint32_t head = 0; head < live_[id].shape.kv_heads; ++head) {
      const std::uint32_t at = live_[id].tokens(layer, head);
      if (at < end && !append_rows(id, layer, {KvHead{head}, 1}, at, end - at)) return;
    }
  }
}

std::vector<Half> Run::random_rows(std::size_t count) {
  std::vector<Half> rows(count);
  for (Half& h : rows) h = static_cast<Half>(rng_() & 0xBFFF);  // magnitudes below 2
  return rows;
}

AppendResult Run::submit(SequenceId id, std::uint32_t layer, HeadRange heads, std::uint32_t first,
                         const std::vector<Half>& keys, const std::vector<Half>& values) {
  const auto count = static_cast<std::uint32_t>(keys.size() / heads.count / ftl_->shape(id).head_dim);
  const DramBudget dram = *dram_;
  const std::uint64_t available = blocks_->available_pages(Namespace::kv);
  AppendResult result = ftl_->append(id, LayerId{layer}, TokenIndex{first}, count, heads, keys, values);
  if (result.status != KvStatus::ok && result.jobs.empty() && result.erases.empty()) {
    require(Property::dram, dram_->used() == dram.used(),
            [&] { return fmt::format("an append that ended {} left DRAM taken", ftl::to_string(result.status)); });
    require(Property::space, blocks_->available_pages(Namespace::kv) == available,
            [&] { return fmt::format("an append that ended {} left pages taken", ftl::to_string(result.status)); });
  }
  take(result.jobs);
  take_erases(result.erases);
  return result;
}

/// Returns false if there is no room.
bool Run::append_rows(SequenceId id, std::uint32_t layer, HeadRange heads, std::uint32_t first, std::uint32_t count) {
  SequenceOracle& s = live_.at(id);
  const std::uint32_t d = s.shape.head_dim;
  const std::size_t most = kMostHalves / 64 / d / heads.count;
  count = static_cast<std::uint32_t>(std::min<std::size_t>(count, std::max<std::size_t>(1, most)));
  if (std::size_t{first} * d > kMostHalves / 16) return false;
  const std::vector<Half> keys = random_rows(std::size_t{heads.count} * count * d);
  const std::vector<Half> values = random_rows(std::size_t{heads.count} * count * d);
  AppendResult result = submit(id, layer, heads, first, keys, values);
  for (std::size_t tries = 0; result.status == KvStatus::busy && tries < 2 + case_.setup.geometry.blocks(); ++tries) {
    drain();
    result = submit(id, layer, heads, first, keys, values);
    if (result.status != KvStatus::busy || !jobs_.empty() || !erases_.empty()) continue;
    if (!pins_.empty()) break;  // readers hold the pages that it waits for
    require(Property::progress, false, [&] {
      return fmt::format("{}: an append of {} tokens still has to wait when nothing is under way",
                         to_string(KvPageId{{id, LayerId{layer}, heads.first}}), count);
    });
    break;
  }
  if (result.status != KvStatus::ok) {
    require(Property::interface,
            result.status == KvStatus::busy || result.status == KvStatus::out_of_dram ||
                result.status == KvStatus::out_of_space || result.status == KvStatus::read_only,
            [&] { return fmt::format("an append that is in order ended {}", ftl::to_string(result.status)); });
    return false;
  }
  for (std::uint32_t i = 0; i < heads.count; ++i) {
    HeadOracle& h = s.heads[{layer, heads.first.value + i}];
    h.mean.resize(d);
    const std::size_t from = std::size_t{i} * count * d;
    h.keys.insert(h.keys.end(), &keys[from], &keys[from] + std::size_t{count} * d);
    h.values.insert(h.values.end(), &values[from], &values[from] + std::size_t{count} * d);
    for (std::uint32_t t = 0; t < count; ++t) {
      for (std::uint32_t c = 0; c < d; ++c) {
        h.mean[c] +=
            (half_to_float(values[from + std::size_t{t} * d + c]) - h.mean[c]) / static_cast<float>(first + t + 1);
      }
    }
  }
  return true;
}

void Run::attend(const Operation& o) {
  if (live_.empty()) return;
  const auto& [id, s] = *sequence(o.n[0]);
  const HeadKey key{id, LayerId{o.n[1] % s.shape.layers}, KvHead{o.n[2] % s.shape.kv_heads}};
  const std::uint32_t tokens = s.tokens(key.layer.value, key.head.value);
  if (tokens == 0) return;
  note("attend sequence {}, layer {}, head {}", id.value, key.layer.value, key.head.value);
  const std::uint32_t group = o.n[3] % tokens / ftl_->layout(id).group_tokens;
  ReadPlan plan;
  ftl_->plan_token_groups(key, KvRows::both, std::span(&group, 1), {}, plan);
  for (const PageOp& op : plan.ops) flash(op);
  check_lookups(id, plan);
  planned_.clear();
  check_head(s, key, false);
}

void Run::fork(const Operation& o) {
  if (live_.empty()) return;
  const auto parent = sequence(o.n[0]);
  const SequenceId child{o.n[1] % kSequences};
  const SequenceOracle& s = parent->second;
  bool even = true;
  for (std::uint32_t layer = 0; layer < s.shape.layers; ++layer) {
    for (std::uint32_t head = 0; head < s.shape.kv_heads; ++head) even &= s.tokens(layer, head) == s.tokens(0, 0);
  }
  const KvStatus status = ftl_->fork_sequence(parent->first, child);
  if (status == KvStatus::ok) {
    note("fork sequence {}: the copy is {}", parent->first.value, child.value);
    require(Property::interface, even && !live_.contains(child), [&] {
      return fmt::format("sequence {} was forked to {}, which it cannot be", parent->first.value, child.value);
    });
    ++coverage_.forks;
    live_[child] = s;
  } else {
    require(Property::interface, !even || live_.contains(child) || status != KvStatus::bad_token,
            [&] { return fmt::format("fork of sequence {} ended {}", parent->first.value, ftl::to_string(status)); });
  }
}

void Run::free(SequenceId id) {
  note("free sequence {}", id.value);
  const FreeResult result = ftl_->free_sequence(id);
  require(Property::interface, result.status == KvStatus::ok,
          [&] { return fmt::format("free of sequence {} ended {}", id.value, ftl::to_string(result.status)); });
  live_.erase(id);
  take_erases(result.erases);
}

void Run::take(std::vector<FlushJob>& jobs) {
  for (FlushJob& job : jobs) {
    for (const auto* ops : {&job.reads, &job.programs}) {
      for (const PageOp& op : *ops) addresses_.push_back(op.ppa.value);
    }
    jobs_.push_back(std::move(job));
  }
  jobs.clear();
}

void Run::take_erases(const std::vector<PageOp>& erases) {
  for (const PageOp& op : erases) {
    addresses_.push_back(op.ppa.value);
    erases_.push_back(op);
  }
}

void Run::complete_job(std::size_t which) {
  const FlushJob job = std::move(jobs_[which]);
  jobs_.erase(jobs_.begin() + static_cast<std::ptrdiff_t>(which));
  for (const auto* ops : {&job.reads, &job.programs}) {
    for (const PageOp& op : *ops) flash(op);
  }
  take_erases(ftl_->flush_done(job.id));
}

void Run::complete_erase(std::size_t which) {
  const PageOp op = erases_[which];
  erases_.erase(erases_.begin() + static_cast<std::ptrdiff_t>(which));
  flash(op);
  ftl_->erase_done(op.ppa);
}

void Run::drain() {
  while (!jobs_.empty()) complete_job(0);
  while (!erases_.empty()) complete_erase(0);
}

namespace {

std::string name(const KvPageId& page, std::uint64_t ppa) { return fmt::format("{} at page {}", to_string(page), ppa); }

PageKind token_kind(KvKind kind, const KvLayout& l) {
  if (l.paired) return PageKind::token_kv;
  return kind == KvKind::key ? PageKind::token_k : PageKind::token_v;
}

/// The first head of those that share token pages with `key`.
HeadKey tile_key(const HeadKey& key, const KvLayout& l) {
  return {key.sequence, key.layer, KvHead{key.head.value / l.page_heads * l.page_heads}};
}

}  // namespace

void Run::check_layout(const KvShape& shape, const KvLayout& l) {
  const std::uint64_t rows = std::uint64_t{l.group_tokens} * l.page_heads * (l.paired ? 2 : 1);
  require(Property::layout, l.head_dim == shape.head_dim && l.page_size == case_.setup.geometry.page_size, [&] {
    return fmt::format("the layout is one of rows of {} elements on pages of {} bytes, not of {} on {}", l.head_dim,
                       l.page_size.value, shape.head_dim, case_.setup.geometry.page_size.value);
  });
  require(Property::layout, l.page_heads <= std::max(1u, shape.kv_heads),
          [&] { return fmt::format("{} heads share a page of a sequence with {}", l.page_heads, shape.kv_heads); });
  require(Property::layout, rows > 0 && rows * l.row().value <= l.page_size.value,
          [&] { return fmt::format("{} rows of {} bytes on a page of {}", rows, l.row().value, l.page_size.value); });
  require(Property::layout, !l.component_major || shape.component_major,
          [] { return std::string("embedding pages for a sequence that wants none"); });
  if (!l.component_major) return;
  std::uint32_t next = 0;
  for (std::uint32_t w = 0; w < 3 * KvLayout::kWindowsPerStage; ++w) {
    const KvWindow window = l.window(w);
    require(Property::layout,
            window.first == next && window.tokens % l.group_tokens == 0 &&
                (l.format.quantised() ? l.embedding_bytes(window) <= l.page_size
                                      : l.embedding_bytes(window) == l.page_size) &&
                l.head_dim % window.group == 0,
            [&] {
              return fmt::format("window {} of {} components holds tokens [{}, {})", w, window.group, window.first,
                                 window.end());
            });
    next = window.end();
  }
}

/// `settled`: no operation is in progress and no reader holds pages, so that the whole state is known.
void Run::check(bool settled) {
  planned_.clear();
  std::map<std::uint64_t, KvPageId> mapped;
  std::map<std::uint32_t, std::uint32_t> valid;
  ftl_->visit_pages([&](const KvPageId& page, PhysicalPageAddress ppa) {
    require(Property::bijection, case_.setup.geometry.contains(ppa),
            [&] { return name(page, ppa.value) + ", which does not exist"; });
    const auto [at, is_new] = mapped.emplace(ppa.value, page);
    require(Property::bijection, is_new,
            [&] { return fmt::format("{}, where {} is, too", name(page, ppa.value), to_string(at->second)); });
    require(Property::bijection, blocks_->valid(ppa),
            [&] { return name(page, ppa.value) + ", which holds nothing valid"; });
    ++valid[case_.setup.geometry.block_of(ppa).value];
  });
  require(Property::bijection, blocks_->valid_pages(Namespace::kv) == mapped.size() + ftl_->superseded_pages(), [&] {
    return fmt::format("{} pages are valid, {} are mapped and {} wait to be given back",
                       blocks_->valid_pages(Namespace::kv), mapped.size(), ftl_->superseded_pages());
  });
  if (ftl_->superseded_pages() == 0) {
    for (std::uint32_t b = 0; b < case_.setup.geometry.blocks(); ++b) {
      const std::uint32_t here = valid.contains(b) ? valid[b] : 0;
      require(Property::bijection, blocks_->valid_pages(BlockId{b}) == here, [&] {
        return fmt::format("block {} has {} valid pages, of which {} are mapped", b, blocks_->valid_pages(BlockId{b}),
                           here);
      });
    }
  }
  for (const auto& [id, s] : live_) {
    check_tables(id, s);
    for (std::uint32_t layer = 0; layer < s.shape.layers; ++layer) {
      for (std::uint32_t head = 0; head < s.shape.kv_heads; ++head) {
        check_head(s, {id, LayerId{layer}, KvHead{head}}, settled);
      }
    }
  }
  require(Property::dram, dram_->peak() <= dram_->capacity(),
          [&] { return fmt::format("{} bytes of {} were taken", dram_->peak().value, dram_->capacity().value); });
  require(Property::data, store_.integrity_errors() == 0,
          [&] { return "a read met another page: " + to_string(store_.kept_integrity_errors().front()); });
  if (!settled) return;
  for (const auto& [ppa, page] : mapped) {
    require(Property::planning, planned_.contains(ppa),
            [&] { return name(page, ppa) + ": no attend of any sequence reads it"; });
  }
  check_dram();
}

void Run::check_head(const SequenceOracle& s, const HeadKey& key, bool settled) {
  static const HeadOracle none;
  const auto at = s.heads.find({key.layer.value, key.head.value});
  const HeadOracle& h = at == s.heads.end() ? none : at->second;
  const std::uint32_t tokens = s.tokens(key.layer.value, key.head.value);
  const std::string where = to_string(KvPageId{key});
  require(Property::data, ftl_->tokens(key) == tokens,
          [&] { return fmt::format("{} has {} tokens after {} were appended", where, ftl_->tokens(key), tokens); });
  require(Property::layout, ftl_->flushed_tokens(key) % ftl_->layout(key.sequence).group_tokens == 0,
          [&] { return fmt::format("{}: {} tokens in pages", where, ftl_->flushed_tokens(key)); });
  if (tokens == 0) return;
  check_token_pages(s, key, h, settled);
  check_embedding_pages(s, key, h, settled);
  const auto mean = ftl_->value_mean(key);
  require(Property::data,
          mean.size() == h.mean.size() && std::memcmp(mean.data(), h.mean.data(), mean.size_bytes()) == 0,
          [&] { return where + ": the mean of V is another"; });
}

void Run::check_planned(const PageOp& op, std::uint32_t root, const KvPageId& page) {
  const std::uint64_t ppa = op.ppa.value;
  require(Property::planning, op.kind == PageOpKind::read && op.op_class == OpClass::attend,
          [&] { return name(page, ppa) + ": planned as something else than a read for attention"; });
  require(Property::flash, case_.setup.geometry.contains(op.ppa) && programmed_[ppa],
          [&] { return name(page, ppa) + ": planned before it was programmed"; });
  require(Property::bijection, blocks_->valid(op.ppa), [&] { return name(page, ppa) + ": holds nothing valid"; });
  // Sequences that descend from one another share pages, at the same places.
  KvPageId place = page;
  place.key.sequence = {};
  const auto [at, is_new] = planned_.emplace(ppa, std::pair{root, place});
  require(Property::bijection, is_new || at->second == std::pair(root, place),
          [&] { return fmt::format("{}, where {} is, too", name(page, ppa), to_string(at->second.second)); });
}

void Run::check_lookups(SequenceId id, const ReadPlan& plan) {
  require(Property::planning, (plan.lookups > 0) == !plan.empty(), [&] {
    return fmt::format("sequence {}: a plan of {} pages costs {} lookups", id.value, plan.size(), plan.lookups);
  });
}

void Run::check_token_pages(const SequenceOracle& s, const HeadKey& key, const HeadOracle& h, bool settled) {
  const KvLayout& l = ftl_->layout(key.sequence);
  const std::uint32_t d = l.head_dim;
  const auto tokens = static_cast<std::uint32_t>(h.keys.size() / d);
  const std::uint32_t written = ftl_->flushed_tokens(key) / l.group_tokens;
  for (std::uint32_t group = 0; std::uint64_t{group} * l.group_tokens < tokens; ++group) {
    for (const KvKind kind : {KvKind::key, KvKind::value}) {
      const KvPageId page{tile_key(key, l), token_kind(kind, l), group, 0};
      const std::vector<Half>& rows = kind == KvKind::key ? h.keys : h.values;
      const std::size_t from = std::size_t{group} * l.group_tokens * d;
      const std::size_t count = std::min<std::size_t>(std::size_t{l.group_tokens} * d, rows.size() - from);
      const Half* const found = ftl_->token_rows(key, kind, group);
      require(Property::data, std::memcmp(found, &rows[from], count * sizeof(Half)) == 0,
              [&] { return to_string(page) + ": other bytes than were appended"; });
      ReadPlan plan;
      ftl_->plan_token_groups(key, kind == KvKind::key ? KvRows::keys : KvRows::values, std::span(&group, 1), {}, plan);
      check_lookups(key.sequence, plan);
      const std::vector<PageOp>& ops = plan.ops;
      require(Property::planning, ops.size() <= 1 && (!settled || ops.size() == (group < written ? 1 : 0)),
              [&] { return fmt::format("{}: {} page reads", to_string(page), ops.size()); });
      if (ops.empty()) continue;
      check_planned(ops[0], s.root, page);
      const std::size_t of_pair = l.paired && kind == KvKind::value ? l.page_heads : 0;
      const std::size_t row = (of_pair + key.head.value % l.page_heads) * l.group_tokens;
      require(Property::layout,
              reinterpret_cast<const std::byte*>(found) == store_.read(ops[0].ppa).data() + row * d * sizeof(Half),
              [&] { return name(page, ops[0].ppa.value) + ": its rows do not start where the layout says"; });
    }
  }
}

void Run::check_embedding_pages(const SequenceOracle& s, const HeadKey& key, const HeadOracle& h, bool settled) {
  const KvLayout& l = ftl_->layout(key.sequence);
  const std::uint32_t transposed = ftl_->transposed_tokens(key);
  const std::uint32_t windows = ftl_->transposed_windows(key);
  const std::uint32_t there =
      case_.setup.config.tail == TailPolicy::dram ? ftl_->tokens(key) : ftl_->flushed_tokens(key);
  require(Property::layout, transposed <= there && transposed % l.group_tokens == 0,
          [&] { return fmt::format("{}: {} tokens in embedding pages", to_string(KvPageId{key}), transposed); });
  if (settled) {
    require(Property::data, transposed >= l.windowed(there), [&] {
      return fmt::format("{}: {} tokens in embedding pages, full windows hold {}", to_string(KvPageId{key}), transposed,
                         l.windowed(there));
    });
  }
  if (windows == 0) return;
  std::vector<std::uint32_t> all(l.head_dim / l.finest_group());
  for (std::uint32_t i = 0; i < all.size(); ++i) all[i] = i;
  ReadPlan plan;
  ftl_->plan_embedding_groups(key, all, {}, plan);
  check_lookups(key.sequence, plan);
  const std::vector<PageOp>& ops = plan.ops;
  std::size_t next = 0;
  for (std::uint32_t w = 0; w < windows; ++w) {
    const KvWindow window = l.window(w);
    const std::uint32_t end = std::min(window.end(), transposed);
    for (std::uint32_t ge = 0; ge < l.embedding_pages(window); ++ge) {
      const KvPageId page{key, PageKind::embedding, ge, w};
      const Half* const found = ftl_->embedding_page(key, ge, w);
      const auto at = std::find_if(ops.begin() + static_cast<std::ptrdiff_t>(next), ops.end(), [&](const PageOp& op) {
        return reinterpret_cast<const std::byte*>(found) == store_.read(op.ppa).data();
      });
      if (at != ops.end()) {
        check_planned(*at, s.root, page);
        next = static_cast<std::size_t>(at - ops.begin()) + 1;
      }
      require(Property::planning, at != ops.end() || !settled, [&] { return to_string(page) + ": no page read"; });
      std::optional<std::pair<std::uint32_t, std::uint32_t>> wrong;  // component, token
      for (std::uint32_t i = 0; i < window.group && !wrong; ++i) {
        const std::uint32_t component = ge * window.group + i;
        for (std::uint32_t t = window.first; t < end && !wrong; ++t) {
          const Half expected = h.keys[std::size_t{t} * l.head_dim + component];
          if (found[i * window.tokens + (t - window.first)] != expected) wrong = {component, t};
        }
      }
      require(Property::data, !wrong, [&] {
        return fmt::format("{}: component {} of token {} is another", to_string(page), wrong->first, wrong->second);
      });
    }
  }
  require(Property::planning, next == ops.size(), [&] {
    return fmt::format("{}: {} of {} page reads are of no embedding page", to_string(KvPageId{key}), ops.size() - next,
                       ops.size());
  });
}

void Run::check_tables(SequenceId id, const SequenceOracle& s) {
  const KvMappingPolicy& policy = ftl_->policy();
  const KvLayout& l = ftl_->layout(id);
  const KvSequenceInfo info{id, s.shape, l};
  require(Property::planning, policy.lookups(info, 0) == 0, [&] {
    return fmt::format("sequence {}: finding no page costs {} lookups", id.value, policy.lookups(info, 0));
  });
  Bytes before;
  for (std::uint64_t pages = 1; pages <= 4096; pages = pages < 16 ? pages + 1 : pages * 2) {
    const Bytes table = policy.table_bytes(info, pages);
    require(Property::tables, table >= before && table.value <= 16 * pages, [&] {
      return fmt::format("sequence {}: a table of {} pages takes {} bytes, of fewer pages {}", id.value, pages,
                         table.value, before.value);
    });
    before = table;
  }
  for (std::uint32_t tokens = 0; tokens < 3 * l.group_tokens; ++tokens) {
    for (std::uint32_t written = 0; written <= tokens / l.group_tokens; ++written) {
      const std::uint32_t due = policy.groups_to_write(info, tokens, written);
      require(Property::interface, written + due <= tokens / l.group_tokens, [&] {
        return fmt::format("sequence {}: groups_to_write is {} with {} tokens, {} of {} groups written", id.value, due,
                           tokens, written, tokens / l.group_tokens);
      });
    }
  }
}

void Run::check_dram() {
  Bytes group_buffer, component_tail, mean;
  for (const auto& [id, s] : live_) {
    const KvLayout& l = ftl_->layout(id);
    for (std::uint32_t layer = 0; layer < s.shape.layers; ++layer) {
      for (std::uint32_t head = 0; head < s.shape.kv_heads; ++head) {
        const HeadKey key{id, LayerId{layer}, KvHead{head}};
        const std::uint32_t tokens = s.tokens(layer, head);
        group_buffer += l.row() * 2 * (tokens - ftl_->flushed_tokens(key));
        if (case_.setup.config.tail == TailPolicy::dram) component_tail += l.component_tail(tokens);
        if (tokens > 0) mean += Bytes{sizeof(float)} * l.head_dim;
      }
    }
  }
  const auto use = [&](DramUse which, Bytes expected) {
    require(Property::dram, dram_->used(which) == expected, [&] {
      return fmt::format("{} takes {} bytes of DRAM, it holds {}", kDramUseNames[static_cast<std::size_t>(which)],
                         dram_->used(which).value, expected.value);
    });
  };
  use(DramUse::group_buffer, group_buffer);
  use(DramUse::component_tail, component_tail);
  use(DramUse::value_mean, mean);
  use(DramUse::flush_pending, {});  // nothing is parked in a settled drive
  const std::uint64_t pages = blocks_->valid_pages(Namespace::kv);
  require(Property::tables, dram_->used(DramUse::map).value <= 16 * pages,
          [&] { return fmt::format("{} pages have tables of {} bytes", pages, dram_->used(DramUse::map).value); });
}

/// Refuses what a NAND array would: reading erased pages, programming a page twice.
void Run::flash(const PageOp& op) {
  const FlashGeometry& g = case_.setup.geometry;
  const auto bad = [&](bool good, std::string_view what) {
    require(Property::flash, good, [&] { return fmt::format("page {} {}", op.ppa.value, what); });
  };
  bad(g.contains(op.ppa), "does not exist");
  switch (op.kind) {
    case PageOpKind::read:
      bad(programmed_[op.ppa.value], "is read while erased");
      break;
    case PageOpKind::program:
      bad(!programmed_[op.ppa.value], "is programmed twice");
      programmed_[op.ppa.value] = true;
      break;
    case PageOpKind::erase:
      bad(g.page_in_block(op.ppa) == 0, "is not the first page of the block to erase");
      for (std::uint32_t i = 0; i < g.pages_per_block; ++i) programmed_[op.ppa.value + i] = false;
      break;
  }
}

/// Checks that nothing is left after everything was freed.
void Run::check_end() {
  require(Property::dram, dram_->used() == Bytes{},
          [&] { return fmt::format("{} bytes of DRAM are still taken at the end", dram_->used().value); });
  for (std::uint32_t b = 0; b < case_.setup.geometry.blocks(); ++b) {
    const BlockState state = blocks_->state(BlockId{b});
    const bool failed = state == BlockState::bad;
    require(
        Property::space,
        failed || ((state == BlockState::free || state == BlockState::open) && blocks_->valid_pages(BlockId{b}) == 0),
        [&] {
          return fmt::format("block {} (pages {} to {}) has {} valid pages at the end, or was not erased", b,
                             blocks_->first_page(BlockId{b}).value,
                             blocks_->first_page(BlockId{b}).value + case_.setup.geometry.pages_per_block - 1,
                             blocks_->valid_pages(BlockId{b}));
        });
  }
  require(Property::space,
          blocks_->valid_pages(Namespace::kv) == 0 && ftl_->superseded_pages() == 0 && ftl_->draining_blocks() == 0,
          [&] { return fmt::format("{} pages are valid at the end", blocks_->valid_pages(Namespace::kv)); });
  // A few pages may well lie apart; many of them waste a block each.
  constexpr std::uint64_t kFewPages = 32;
  const std::uint64_t few = std::max<std::uint64_t>(kFewPages, 4 * std::uint64_t{case_.setup.geometry.planes()});
  require(Property::space, append_use_.pages < few || append_use_.together > 0, [&] {
    return fmt::format(
        "{} pages went through {} append points, and no block has two pages of a point: each page opens "
        "a block",
        append_use_.pages, append_use_.blocks.size());
  });
  require(Property::progress, ftl_->pending_flushes() == 0,
          [&] { return fmt::format("{} flushes are pending at the end", ftl_->pending_flushes()); });
}

}  // namespace csdsim::ftl::conformance
