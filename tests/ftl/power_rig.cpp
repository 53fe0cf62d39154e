#include "power_rig.h"

#include "ftl/kv/kv_components.h"

namespace csdsim::ftl::test {

void PowerRig::complete_one() {
  if (idle()) return;
  ++completed_;
  const std::size_t i = rng_() % (flights_.size() + erases_.size());
  if (i >= flights_.size()) {
    const auto it = erases_.begin() + static_cast<std::ptrdiff_t>(i - flights_.size());
    const PageOp op = *it;
    erases_.erase(it);
    REQUIRE_NOTHROW(flash_.run(op, false));
    ftl_->erase_done(op.ppa);
    return;
  }
  const auto it = flights_.begin() + static_cast<std::ptrdiff_t>(i);
  auto& ops = it->reads.empty() ? it->programs : it->reads;
  const auto op = ops.begin() + static_cast<std::ptrdiff_t>(rng_() % ops.size());
  REQUIRE_NOTHROW(flash_.run(*op, false));
  ops.erase(op);
  if (!it->programs.empty()) return;
  const FlushJobId id = it->id;
  flights_.erase(it);
  add_erases(ftl_->flush_done(id));
}

void PowerRig::lose_power() {
  ++counts_.losses;
  counts_.collected += ftl_->stats().gc_blocks;
  counts_.bad_blocks += blocks_->grown_bad_blocks();
  std::uint64_t partials = 0;
  const KvDump dump = ftl_->power_loss();
  for (const KvDump::Sequence& s : dump.sequences) REQUIRE(live_.contains(s.id));
  PowerLoss loss;
  for (const Flight& flight : flights_) {
    for (const PageOp& op : flight.programs) {
      const std::uint64_t how = flight.reads.empty() ? rng_() % 3 : 0;
      if (how == 0) {
        loss.unprogrammed.push_back(op.ppa);
        continue;
      }
      REQUIRE_NOTHROW(flash_.run(op, false));
      if (how == 1) loss.torn.push_back(op.ppa);
    }
  }
  for (const PageOp& op : erases_) {
    const BlockId block = setup_.geometry.block_of(op.ppa);
    switch (rng_() % 3) {
      case 0:
        loss.half_erased.push_back(block);
        break;
      case 1:
        REQUIRE_NOTHROW(flash_.run(op, false));
        store_.erase(block);
        break;
      default:
        break;
    }
  }
  counts_.torn += loss.torn.size();
  store_.lose_power(loss);
  flights_.clear();
  erases_.clear();
  pins_.clear();
  const std::vector<BlockRecord> before = blocks_->records();
  switch_on();
  RecoveryResult result;
  REQUIRE_NOTHROW(result = ftl_->recover(dump));
  check_blocks(before);
  for (const PageOp& op : result.reads) REQUIRE_NOTHROW(flash_.run(op, false));
  for (const FlushJob& job : result.jobs) add_job(job);
  add_erases(result.erases);
  REQUIRE(result.lost_pages.empty());
  REQUIRE(result.lost_sequences.empty());
  counts_.saved += result.saved_pages;
  counts_.rebuilt += result.rebuilt_pages;
  counts_.evacuated += result.evacuated_pages;
  counts_.stale += result.stale_pages;
  counts_.parked += ftl_->parked_pages();
  for (const auto& [id, s] : live_) {
    for (const auto& [where, h] : s.heads) {
      const HeadKey key{id, where.first, where.second};
      const KvLayout& l = ftl_->layout(id);
      partials += ftl_->transposed_tokens(key) > l.windowed(ftl_->transposed_tokens(key)) ? 1 : 0;
    }
  }
  counts_.partial_windows += partials;
  check();
}

void PowerRig::check() {
  std::set<std::uint64_t> used;
  ftl_->visit_pages([&](const KvPageId&, PhysicalPageAddress ppa) {
    REQUIRE(setup_.geometry.contains(ppa));
    REQUIRE(used.insert(ppa.value).second);
    REQUIRE(blocks_->valid(ppa));
  });
  REQUIRE(blocks_->valid_pages(Namespace::kv) == used.size() + ftl_->superseded_pages());
  Bytes rows, tails, means;
  for (const auto& [id, s] : live_) {
    for (const auto& [where, h] : s.heads) {
      const HeadKey key{id, where.first, where.second};
      const KvLayout& l = ftl_->layout(id);
      const std::uint32_t tokens = s.tokens(where);
      REQUIRE(ftl_->tokens(key) == tokens);
      check_head(key, l, h);
      rows += l.row() * (2 * (tokens - ftl_->flushed_tokens(key)));
      means += tokens > 0 ? Bytes{4} * l.head_dim : Bytes{};
    }
  }
  if (closing_.empty()) {
    REQUIRE(ftl_->dram().used(DramUse::group_buffer) == rows);
    REQUIRE(ftl_->dram().used(DramUse::value_mean) == means);
  }
  std::uint64_t pending = ftl_->parked_pages();
  for (const Flight& flight : flights_) pending += flight.pages;
  REQUIRE(ftl_->dram().used(DramUse::flush_pending) == setup_.geometry.page_size * pending);
  REQUIRE(store_.integrity_errors() == 0);
}

void PowerRig::check_settled() {
  drain();
  for (const auto& [id, at] : std::exchange(pins_, {})) add_erases(ftl_->unpin(id));
  drain();
  check();
  REQUIRE(ftl_->verify() == 0);
  if (ftl_->parked_pages() > 0) return;
  for (const auto& [id, s] : live_) {
    for (const auto& [where, h] : s.heads) {
      const HeadKey key{id, where.first, where.second};
      REQUIRE(ftl_->transposed_tokens(key) >= ftl_->layout(id).windowed(ftl_->flushed_tokens(key)));
    }
  }
}

void PowerRig::check_blocks(const std::vector<BlockRecord>& before) {
  for (const BlockRecord& record : before) {
    REQUIRE(blocks_->erase_count(record.block) == record.erases);
    const BlockState state = blocks_->state(record.block);
    if (record.state == BlockState::free) continue;  // the recovery may have written to it, or have failed to
    const bool was_bad = record.state == BlockState::bad || record.state == BlockState::retired;
    REQUIRE(was_bad == (state == BlockState::bad || state == BlockState::retired));
    REQUIRE(state != BlockState::open);
  }
}

void PowerRig::create() {
  const SequenceId id{static_cast<std::uint32_t>(rng_() % 5)};
  const KvShape shape{1 + static_cast<std::uint32_t>(rng_() % 2),
                      1 + static_cast<std::uint32_t>(rng_() % 3),
                      16,
                      static_cast<std::uint32_t>(rng_() % 200),
                      rng_() % 4 != 0,
                      setup_.format.quantised() && rng_() % 2 == 0 ? setup_.format : RowQuantisation{}};
  if (ftl_->create_sequence(id, shape) == KvStatus::ok) live_[id] = {shape, ftl_->layout(id).row_words(), {}};
}

void PowerRig::release() {
  if (live_.empty()) return;
  const SequenceId id = any();
  const FreeResult result = ftl_->free_sequence(id);
  REQUIRE(result.status == KvStatus::ok);
  live_.erase(id);
  if (ftl_->create_sequence(id, {1, 1, 16, 0}) == KvStatus::busy) {
    closing_.insert(id);
  } else {
    REQUIRE(ftl_->free_sequence(id).status == KvStatus::ok);
  }
  add_erases(result.erases);
}

void PowerRig::pin() {
  if (!pins_.empty() && rng_() % 2 == 0) {
    const auto it = pins_.begin() + static_cast<std::ptrdiff_t>(rng_() % pins_.size());
    const SequenceId id = it->first;
    pins_.erase(it);
    add_erases(ftl_->unpin(id));
  } else if (!live_.empty()) {
    const SequenceId id = any();
    REQUIRE(ftl_->pin(id) == KvStatus::ok);
    pins_.emplace_back(id, completed_);
  }
}

void PowerRig::append() {
  if (live_.empty()) return;
  const SequenceId id = any();
  const KvShape shape = live_[id].shape;
  const KvLayout& l = ftl_->layout(id);
  const std::uint32_t most = std::array{1u, 5u, 2 * l.group_tokens + 1, l.window_tokens + 3}[rng_() % 4];
  const auto count = 1 + static_cast<std::uint32_t>(rng_() % most);
  if (rng_() % 4 != 0) {  // a step of the whole model
    for (std::uint32_t layer = 0; layer < shape.layers; ++layer) {
      if (!append(id, LayerId{layer}, KvHead{0}, count)) return;
    }
  } else {
    append(id, LayerId{static_cast<std::uint32_t>(rng_() % shape.layers)},
           KvHead{static_cast<std::uint32_t>(rng_() % shape.kv_heads)}, count);
  }
}

bool PowerRig::append(SequenceId id, LayerId layer, KvHead first, std::uint32_t count) {
  SequenceOracle& s = live_.at(id);
  const std::uint32_t at = s.tokens({layer, first});
  std::uint32_t heads = 1;
  while (first.value + heads < s.shape.kv_heads && s.tokens({layer, KvHead{first.value + heads}}) == at) ++heads;
  const std::vector<Half> keys = random_rows(s.shape, std::size_t{heads} * count);
  const std::vector<Half> values = random_rows(s.shape, std::size_t{heads} * count);
  KvStatus status = KvStatus::busy;
  for (int tries = 0; status == KvStatus::busy && tries < 40; ++tries) {
    if (tries > 0) drain();
    const AppendResult result = ftl_->append(id, layer, TokenIndex{at}, count, {first, heads}, keys, values);
    for (const FlushJob& job : result.jobs) add_job(job);
    add_erases(result.erases);
    status = result.status;
    if (tries == 1) {  // readers finish, too
      for (const auto& [pinned, when] : std::exchange(pins_, {})) add_erases(ftl_->unpin(pinned));
    }
  }
  REQUIRE(status != KvStatus::busy);
  if (status != KvStatus::ok) {
    REQUIRE((status == KvStatus::out_of_space || status == KvStatus::out_of_dram || status == KvStatus::read_only));
    ++counts_.out_of_space;
    release();
    return false;
  }
  for (std::uint32_t i = 0; i < heads; ++i) {
    const std::size_t part = std::size_t{count} * s.words, from = i * part;
    s.heads[{layer, KvHead{first.value + i}}].append(
        std::span(keys).subspan(from, part), std::span(values).subspan(from, part), s.shape.head_dim, s.shape.format);
  }
  return true;
}

std::vector<Half> PowerRig::random_rows(const KvShape& shape, std::size_t rows) {
  const std::uint32_t d = shape.head_dim;
  const std::vector<Half> elements = random_halves(rng_, rows * d);
  if (!shape.format.quantised()) return elements;
  const std::size_t words = shape.format.row(d, kElementBytes).value / sizeof(Half);
  std::vector<Half> made(rows * words);
  std::vector<float> values(d);
  for (std::size_t row = 0; row < rows; ++row) {
    halves_to_floats(std::span(elements).subspan(row * d, d), values);
    shape.format.quantise(values, std::as_writable_bytes(std::span(made).subspan(row * words, words)));
  }
  return made;
}

void PowerRig::check_head(const HeadKey& key, const KvLayout& l, const HeadOracle& h) {
  const std::uint32_t d = l.head_dim, words = l.row_words();
  const std::size_t tokens = h.keys.size() / words;
  for (std::uint32_t t = 0; t < tokens; t += l.group_tokens) {
    const std::size_t bytes = std::size_t{2} * words * std::min<std::size_t>(l.group_tokens, tokens - t);
    const std::uint32_t group = t / l.group_tokens;
    REQUIRE(std::memcmp(ftl_->token_rows(key, KvKind::key, group), &h.keys[std::size_t{t} * words], bytes) == 0);
    REQUIRE(std::memcmp(ftl_->token_rows(key, KvKind::value, group), &h.values[std::size_t{t} * words], bytes) == 0);
  }
  const std::vector<Half> keys = elements_of(l.format, h.keys, d);
  const std::uint32_t transposed = ftl_->transposed_tokens(key);
  REQUIRE(transposed <= tokens);
  for (std::uint32_t w = 0; w < ftl_->transposed_windows(key); ++w) {
    const KvWindow window = l.window(w);
    const std::uint32_t held = std::min(window.tokens, transposed - window.first);
    counts_.windows_of_few_bits += l.format.quantised() ? 1 : 0;
    std::vector<Half> made(std::size_t{window.group} * window.tokens);
    for (std::uint32_t ge = 0; ge < l.embedding_pages(window); ++ge) {
      const Half* page = ftl_->embedding_page(key, ge, w);
      if (l.format.quantised()) {
        dequantise_components(l, window, ge, held, page, made);
        page = made.data();
      }
      for (std::uint32_t i = 0; i < window.group; ++i)
        for (std::uint32_t t = 0; t < held; ++t)
          if (page[i * window.tokens + t] != keys[std::size_t{window.first + t} * d + ge * window.group + i])
            FAIL("an embedding page differs from the keys");
    }
  }
  if (tokens > 0) {
    REQUIRE(std::memcmp(ftl_->value_mean(key).data(), h.mean.data(), d * sizeof(float)) == 0);
  }
  std::vector<std::uint32_t> groups;
  for (std::uint32_t g = 0; g * l.group_tokens < tokens; ++g) groups.push_back(g);
  ReadPlan plan;
  ftl_->plan_token_groups(key, KvRows::both, groups, {}, plan);
  for (PageOp op : plan.ops) {
    op.channel_bytes = static_cast<std::uint32_t>(setup_.geometry.page_size.value);
    REQUIRE_NOTHROW(flash_.run(op, false));
  }
}

}  // namespace csdsim::ftl::test
