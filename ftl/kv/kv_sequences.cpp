#include "ftl/kv/kv_sequences.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace csdsim::ftl {

namespace {

/// Layers and heads are 16-bit in commands; anything larger is a mistake and would only cost memory.
constexpr std::uint32_t kMaxCount = 65535;

}  // namespace

KvStatus KvSequences::create(SequenceId id, const KvShape& shape) {
  if (const KvStatus status = table_.check_unused(id); status != KvStatus::ok) return status;
  if (shape.layers == 0 || shape.layers > kMaxCount || shape.kv_heads == 0 || shape.kv_heads > kMaxCount) {
    return KvStatus::bad_shape;
  }
  KvSequence s;
  s.id = id;
  s.segment = table_.new_segment_number();
  s.shape = shape;
  try {
    s.layout = policy_.layout(shape, flash_.geometry.page_size, flash_.config.layout);
    s.layout.format = shape.format;
    s.layout.codeword = flash_.config.codeword;
    s.layout.group_codewords = flash_.config.group_codewords;
  } catch (const PolicyError&) {
    throw;
  } catch (const UserError&) {
    return KvStatus::bad_shape;
  }
  check_layout(s);
  s.layers.resize(shape.layers);
  table_.add(std::move(s));
  return KvStatus::ok;
}

/// Throws unless what the policy answered can be, for this shape and flash.
void KvSequences::check_layout(const KvSequence& s) const {
  const auto wrong = [&](std::string_view what) {
    throw PolicyError(fmt::format("mapping policy \"{}\": layout(sequence {}: {} KV heads, d {}) {}", policy_.name(),
                                  s.id.value, s.shape.kv_heads, s.shape.head_dim, what));
  };
  const KvLayout& l = s.layout;
  try {
    l.validate();
  } catch (const UserError& e) {
    wrong(e.what());
  }
  if (l.head_dim != s.shape.head_dim || l.page_size != flash_.geometry.page_size) {
    wrong(fmt::format("is one of rows of {} elements on pages of {} bytes, the flash has pages of {}", l.head_dim,
                      l.page_size.value, flash_.geometry.page_size.value));
  }
  if (l.component_major && !s.shape.component_major) wrong("has embedding pages, which the sequence is not to have");
}

std::shared_ptr<MapSegment> KvSequences::new_segment(const HeadKey& key, std::uint32_t number, const KvTile* before,
                                                     const KvLayout& layout) {
  auto segment = std::make_shared<MapSegment>();
  segment->key = key;
  segment->number = number;
  owners_.add(*segment);
  segment->layout = layout;
  const bool first = before == nullptr || before->segments.empty();
  segment->map = HeadMap(first ? 0 : before->segments.back()->map.end_group(),
                         first ? 0 : before->segments.back()->map.end_position(), layout.pages_per_group());
  segment->users.push_back(key.sequence);
  return segment;
}

KvStatus KvSequences::fork(SequenceId parent_id, SequenceId child_id) {
  KvSequence* parent = table_.find(parent_id);
  if (parent == nullptr) return KvStatus::bad_sequence;
  if (const KvStatus status = table_.check_unused(child_id); status != KvStatus::ok) return status;
  const std::uint32_t tokens = parent->layers.front() ? parent->layers.front()->heads.front().tokens : 0;
  for (const auto& layer : parent->layers) {
    for (std::uint32_t h = 0; h < parent->shape.kv_heads; ++h) {
      if ((layer ? layer->heads[h].tokens : 0) != tokens) return KvStatus::bad_token;
    }
  }
  Bytes tails;
  for (const Bytes held : parent->dram) tails += held;
  if (!flash_.dram.fits(tails)) {
    const Bytes drains = draining_dram();
    return flash_.dram.used() - drains + tails > flash_.dram.capacity() ? KvStatus::out_of_dram : KvStatus::busy;
  }
  for (std::size_t use = 0; use < kDramUses; ++use) flash_.dram.charge(static_cast<DramUse>(use), parent->dram[use]);

  KvSequence child;
  child.id = child_id;
  child.segment = table_.new_segment_number();
  child.shape = parent->shape;
  child.layout = parent->layout;
  child.dram = parent->dram;
  child.layers.resize(parent->layers.size());
  parent->segment = table_.new_segment_number();
  for (std::uint32_t i = 0; i < parent->layers.size(); ++i) {
    if (parent->layers[i]) fork_layer(*parent, child, i);
  }
  table_.add(std::move(child));
  losses_.inherit(parent_id, child_id);
  return KvStatus::ok;
}

void KvSequences::fork_layer(KvSequence& parent, KvSequence& child, std::uint32_t index) {
  KvLayer& from = *parent.layers[index];
  auto to = std::make_unique<KvLayer>();
  for (KvHeadState& head : from.heads) {
    // A window that is partly filled belongs to nobody now: its keys are scored from their token pages.
    for (auto* partial : {&head.partial, &head.coming_partial}) {
      if (*partial) parent.supersede((*partial)->pages);
      partial->reset();
    }
    KvHeadState& copy = to->heads.emplace_back();
    copy.tokens = head.tokens;
    copy.readable_windows = head.readable_windows;
    copy.key_tail = head.key_tail;
    copy.value_tail = head.value_tail;
    copy.value_mean = head.value_mean;
    copy.component_tail = head.component_tail;
  }
  for (std::uint32_t t = 0; t < from.tiles.size(); ++t) {
    KvTile& tile = from.tiles[t];
    const LayerId layer{index};
    const KvHead head{t * child.layout.page_heads};
    if (tile.segments.back()->map.pages() == 0) {  // forking again must not lengthen the chain
      std::vector<PageOp> none;
      release_segment(*tile.segments.back(), parent.id, none);
      tile.segments.pop_back();
    }
    KvTile& copy = to->tiles.emplace_back(tile);
    for (const auto& segment : copy.segments) segment->users.push_back(child.id);
    copy.segments.push_back(new_segment({child.id, layer, head}, child.segment, &tile, child.layout));
    tile.segments.push_back(new_segment({parent.id, layer, head}, parent.segment, &tile, child.layout));
  }
  child.layers[index] = std::move(to);
}

FreeResult KvSequences::free(SequenceId id) {
  KvSequence* s = table_.find(id);
  if (s == nullptr) return {KvStatus::bad_sequence, {}};
  if (s->pins == 0) return {KvStatus::ok, release(id)};
  s->closing = true;
  ++closing_;
  for (const Bytes held : s->dram) s->closing_dram += held;
  for (const auto& layer : s->layers) {
    if (!layer) continue;
    for (const KvTile& tile : layer->tiles) {
      for (const auto& segment : tile.segments)
        s->closing_dram += segment->users.size() == 1 ? segment->table : Bytes{};
    }
  }
  closing_dram_ += s->closing_dram;
  return {};
}

KvStatus KvSequences::pin(SequenceId id) {
  KvSequence* s = table_.find(id);
  if (s == nullptr) return KvStatus::bad_sequence;
  ++s->pins;
  return KvStatus::ok;
}

std::vector<PageOp> KvSequences::unpin(SequenceId id) {
  KvSequence& s = table_.at(id);
  if (s.pins == 0) throw InternalError(fmt::format("sequence {} is unpinned without a pin", id.value));
  if (--s.pins > 0) return {};
  std::vector<PageOp> erases;
  if (s.closing) {
    --closing_;
    closing_dram_ -= s.closing_dram;
    erases = release(id);
  } else {
    drop_superseded(s, erases);
  }
  eraser_.readers_left(id, erases);
  return erases;
}

void KvSequences::drop_pages(std::span<const KvMapEntry> pages, std::vector<PageOp>& erases) {
  for (const KvMapEntry& entry : pages) {
    if (placer_.drop(entry.ppa())) erases.push_back(eraser_.begin(flash_.blocks.block_of(entry.ppa())));
  }
}

void KvSequences::drop_superseded(KvSequence& s, std::vector<PageOp>& erases) {
  drop_pages(std::exchange(s.superseded, {}), erases);
}

void KvSequences::drop_superseded_of_unpinned(std::vector<PageOp>& erases) {
  for (auto& [id, s] : table_) {
    if (s.pins == 0) drop_superseded(s, erases);
  }
}

/// `user` shares the segment no longer; the last one takes its pages along.
void KvSequences::release_segment(MapSegment& segment, SequenceId user, std::vector<PageOp>& erases) {
  std::erase(segment.users, user);
  if (!segment.users.empty()) return;
  drop_pages(segment.map.all_tokens(), erases);
  drop_pages(segment.map.all_embedding(), erases);
  flash_.dram.release(DramUse::map, segment.table);
  owners_.remove(segment);
}

std::vector<PageOp> KvSequences::release(SequenceId id) {
  KvSequence& s = table_.at(id);
  std::vector<PageOp> erases;
  for (const auto& layer : s.layers) {
    if (!layer) continue;
    for (KvTile& tile : layer->tiles) {
      for (const auto& segment : tile.segments) release_segment(*segment, id, erases);
    }
    for (const KvHeadState& head : layer->heads) {
      if (head.partial) drop_pages(head.partial->pages, erases);
      if (head.coming_partial) drop_pages(head.coming_partial->pages, erases);
    }
  }
  drop_superseded(s, erases);
  for (std::size_t use = 0; use < kDramUses; ++use) flash_.dram.release(static_cast<DramUse>(use), s.dram[use]);
  policy_.sequence_freed(s.info(), pages_);
  for (const BlockId block : pages_.take_emptied()) erases.push_back(eraser_.begin(block));
  table_.remove(id);
  losses_.forget(id);
  return erases;
}

Bytes KvSequences::draining_dram() const {
  const Bytes parked = flash_.geometry.page_size * parked_.size();
  return flash_.dram.used(DramUse::flush_pending) - parked + flash_.dram.used(DramUse::write_buffer) + closing_dram_;
}

}  // namespace csdsim::ftl
