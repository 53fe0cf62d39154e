// Sequences: their lives, and what is known of them.
#include "ftl/kv/kv_ftl.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "ftl/kv/kv_pages.h"
#include "ftl/kv/kv_sequence.h"

namespace csdsim::ftl {
namespace {

/// Layers and heads are 16-bit in commands; anything larger is a mistake and would only cost memory.
constexpr std::uint32_t kMaxCount = 65535;

}  // namespace

KvFtl::KvFtl(const KvFtlConfig& config, BlockManager& blocks, BackingStore& store, DramBudget& dram,
             std::unique_ptr<KvMappingPolicy> policy, MediaFaults* faults)
    : config_(config),
      blocks_(blocks, store.geometry()),
      store_(store),
      dram_(dram),
      policy_(std::move(policy)),
      faults_(faults),
      geometry_(store.geometry()),
      next_parked_(geometry_.pages()),
      owners_(blocks.quota(Namespace::kv) > 0 ? geometry_.pages() : 0),
      points_(blocks_),
      pages_(std::make_unique<Pages>(*this)),
      read_load_(geometry_.channels),
      channel_pages_(geometry_.channels) {
  if (geometry_.pages() >= std::uint64_t{1} << 62) throw UserError("the flash has more than 2^62 pages");
}

KvFtl::~KvFtl() = default;

const KvFtl::Sequence* KvFtl::find(SequenceId id) const {
  const auto it = sequences_.find(id);
  return it == sequences_.end() || it->second.closing ? nullptr : &it->second;
}

KvFtl::Sequence* KvFtl::find(SequenceId id) { return const_cast<Sequence*>(std::as_const(*this).find(id)); }

const KvFtl::Sequence& KvFtl::sequence(SequenceId id) const {
  // A freed sequence that is still pinned stays readable for whoever pins it.
  const auto it = sequences_.find(id);
  if (it == sequences_.end()) throw InternalError(fmt::format("sequence {} does not exist", id.value));
  return it->second;
}

const KvFtl::Head& KvFtl::head(const HeadKey& key) const {
  const Sequence& s = sequence(key.sequence);
  if (key.layer.value >= s.shape.layers || key.head.value >= s.shape.kv_heads) {
    throw bad_page({key}, "there is no such KV head");
  }
  static const Head untouched;
  const auto& layer = s.layers[key.layer.value];
  return layer ? layer->heads[key.head.value] : untouched;
}

KvStatus KvFtl::create_sequence(SequenceId id, const KvShape& shape) {
  if (const auto it = sequences_.find(id); it != sequences_.end()) {
    return it->second.closing ? KvStatus::busy : KvStatus::bad_sequence;
  }
  if (shape.layers == 0 || shape.layers > kMaxCount || shape.kv_heads == 0 || shape.kv_heads > kMaxCount) {
    return KvStatus::bad_shape;
  }
  Sequence s;
  s.id = id;
  s.segment = next_segment_++;
  s.shape = shape;
  try {
    s.layout = policy_->layout(shape, geometry_.page_size, config_.layout);
    s.layout.format = shape.format;
    s.layout.codeword = config_.codeword;
    s.layout.group_codewords = config_.group_codewords;
  } catch (const PolicyError&) {
    throw;
  } catch (const UserError&) {
    return KvStatus::bad_shape;
  }
  check_layout(s);
  s.layers.resize(shape.layers);
  sequences_.emplace(id, std::move(s));
  return KvStatus::ok;
}

/// Throws unless what the policy answered can be, for this shape and flash.
void KvFtl::check_layout(const Sequence& s) const {
  const auto wrong = [&](std::string_view what) {
    throw PolicyError(fmt::format("mapping policy \"{}\": layout(sequence {}: {} KV heads, d {}) {}", policy_->name(),
                                  s.id.value, s.shape.kv_heads, s.shape.head_dim, what));
  };
  const KvLayout& l = s.layout;
  try {
    l.validate();
  } catch (const UserError& e) {
    wrong(e.what());
  }
  if (l.head_dim != s.shape.head_dim || l.page_size != geometry_.page_size) {
    wrong(fmt::format("is one of rows of {} elements on pages of {} bytes, the flash has pages of {}", l.head_dim,
                      l.page_size.value, geometry_.page_size.value));
  }
  if (l.component_major && !s.shape.component_major) wrong("has embedding pages, which the sequence is not to have");
}

std::shared_ptr<KvFtl::MapSegment> KvFtl::new_segment(const HeadKey& key, std::uint32_t number, const Tile* before,
                                                      const KvLayout& layout) {
  auto segment = std::make_shared<MapSegment>();
  segment->key = key;
  segment->number = number;
  segment->slot = take_slot(*segment);
  segment->layout = layout;
  const bool first = before == nullptr || before->segments.empty();
  segment->map = HeadMap(first ? 0 : before->segments.back()->map.end_group(),
                         first ? 0 : before->segments.back()->map.end_position(), layout.pages_per_group());
  segment->users.push_back(key.sequence);
  return segment;
}

/// Controller DRAM that what is under way will give back.
Bytes KvFtl::draining_dram() const {
  const Bytes parked = geometry_.page_size * parked_.size();
  return dram_.used(DramUse::flush_pending) - parked + dram_.used(DramUse::write_buffer) + closing_dram_;
}

FreeResult KvFtl::free_sequence(SequenceId id) {
  Sequence* s = find(id);
  if (s == nullptr) return {KvStatus::bad_sequence, {}};
  if (s->pins == 0) return {KvStatus::ok, release(id)};
  s->closing = true;
  ++closing_sequences_;
  for (const Bytes held : s->dram) s->closing_dram += held;
  for (const auto& layer : s->layers) {
    if (!layer) continue;
    for (const Tile& tile : layer->tiles) {
      for (const auto& segment : tile.segments)
        s->closing_dram += segment->users.size() == 1 ? segment->table : Bytes{};
    }
  }
  closing_dram_ += s->closing_dram;
  return {};
}

KvStatus KvFtl::pin(SequenceId id) {
  Sequence* s = find(id);
  if (s == nullptr) return KvStatus::bad_sequence;
  ++s->pins;
  return KvStatus::ok;
}

std::vector<PageOp> KvFtl::unpin(SequenceId id) {
  const auto it = sequences_.find(id);
  if (it == sequences_.end() || it->second.pins == 0) {
    throw InternalError(fmt::format("sequence {} is unpinned without a pin", id.value));
  }
  Sequence& s = it->second;
  if (--s.pins > 0) return {};
  std::vector<PageOp> erases;
  if (s.closing) {
    --closing_sequences_;
    closing_dram_ -= s.closing_dram;
    erases = release(id);
  } else {
    drop_superseded(s, erases);
  }
  readers_left(id, erases);
  return erases;
}

void KvFtl::drop_pages(std::span<const KvMapEntry> pages, std::vector<PageOp>& erases) {
  for (const KvMapEntry& entry : pages) {
    if (drop_page(entry.ppa())) erases.push_back(begin_erase(blocks_.block_of(entry.ppa())));
  }
}

void KvFtl::drop_superseded(Sequence& s, std::vector<PageOp>& erases) {
  drop_pages(std::exchange(s.superseded, {}), erases);
}

/// `user` shares the segment no longer; the last one takes its pages along.
void KvFtl::release_segment(MapSegment& segment, SequenceId user, std::vector<PageOp>& erases) {
  std::erase(segment.users, user);
  if (!segment.users.empty()) return;
  drop_pages(segment.map.all_tokens(), erases);
  drop_pages(segment.map.all_embedding(), erases);
  dram_.release(DramUse::map, segment.table);
  slots_[segment.slot] = nullptr;
  free_slots_.push_back(segment.slot);
}

std::vector<PageOp> KvFtl::release(SequenceId id) {
  const auto it = sequences_.find(id);
  Sequence& s = it->second;
  std::vector<PageOp> erases;
  for (const auto& layer : s.layers) {
    if (!layer) continue;
    for (Tile& tile : layer->tiles) {
      for (const auto& segment : tile.segments) release_segment(*segment, id, erases);
    }
    for (const Head& head : layer->heads) {
      if (head.partial) drop_pages(head.partial->pages, erases);
      if (head.coming_partial) drop_pages(head.coming_partial->pages, erases);
    }
  }
  drop_superseded(s, erases);
  for (std::size_t use = 0; use < kDramUses; ++use) dram_.release(static_cast<DramUse>(use), s.dram[use]);
  policy_->sequence_freed(s.info(), *pages_);
  for (const BlockId block : pages_->take_emptied()) erases.push_back(begin_erase(block));
  sequences_.erase(it);
  forget_dropped(id);
  return erases;
}

void KvFtl::erase_done(PhysicalPageAddress ppa) {
  const BlockId block = blocks_.block_of(ppa);
  if (faults_ != nullptr && faults_->erase_fails(block, blocks_.erase_count(block))) {
    ++stats_.erase_failures;
    blocks_.fail_erase(block);
  } else {
    blocks_.finish_erase(block);
  }
  store_.erase(block);
}

KvStatus KvFtl::check(const HeadKey& key) const {
  const Sequence* s = find(key.sequence);
  if (s == nullptr) return KvStatus::bad_sequence;
  if (key.layer.value >= s->shape.layers) return KvStatus::bad_layer;
  if (key.head.value >= s->shape.kv_heads) return KvStatus::bad_head;
  return KvStatus::ok;
}

const KvShape& KvFtl::shape(SequenceId id) const { return sequence(id).shape; }
const KvLayout& KvFtl::layout(SequenceId id) const { return sequence(id).layout; }
std::uint32_t KvFtl::tokens(const HeadKey& key) const { return head(key).tokens; }

const KvFtl::Tile& KvFtl::tile(const HeadKey& key) const {
  static const Tile untouched;
  const Sequence& s = sequence(key.sequence);
  const auto& layer = s.layers[key.layer.value];
  return layer ? layer->tiles[key.head.value / s.layout.page_heads] : untouched;
}

std::uint32_t KvFtl::flushed_tokens(const HeadKey& key) const {
  head(key);  // throws for one that does not exist
  return tile(key).written_groups() * layout(key.sequence).group_tokens;
}

std::uint32_t KvFtl::transposed_windows(const HeadKey& key) const {
  const Head& h = head(key);
  const std::uint32_t full = readable_windows(tile(key), h, layout(key.sequence));
  return h.partial && h.partial->window == full ? full + 1 : full;
}

std::uint32_t KvFtl::transposed_tokens(const HeadKey& key) const {
  const Head& h = head(key);
  const KvLayout& l = layout(key.sequence);
  const std::uint32_t full = readable_windows(tile(key), h, l);
  if (h.partial && h.partial->window == full) return h.partial->end;
  return l.component_major ? l.window(full).first : 0;
}

void KvFtl::visit_pages(const std::function<void(const KvPageId&, PhysicalPageAddress)>& visit) const {
  const auto visit_page = [&](const KvPageId& page, const KvMapEntry& e) {
    if (!is_parked(e.ppa())) visit(page, e.ppa());
  };
  const auto visit_segment = [&](const MapSegment& segment) {
    const std::uint32_t per_group = segment.layout.pages_per_group();
    std::uint32_t position = segment.map.first_group() * per_group;
    for (const KvMapEntry& e : segment.map.all_tokens()) visit_page(page_id({segment.slot, position++}), e);
    position = segment.map.first_position();
    for (const KvMapEntry& e : segment.map.all_embedding())
      visit_page(page_id({segment.slot, kEmbedding | position++}), e);
  };
  for (const auto& [id, s] : sequences_) {
    for (std::uint32_t i = 0; i < s.layers.size(); ++i) {
      if (!s.layers[i]) continue;
      for (const Tile& tile : s.layers[i]->tiles) {
        for (const auto& segment : tile.segments) {
          if (segment->users.front() == id) visit_segment(*segment);
        }
      }
      for (std::uint32_t h = 0; h < s.shape.kv_heads; ++h) {
        const Head& head = s.layers[i]->heads[h];
        for (const PartialWindow* const partial : {head.partial.get(), head.coming_partial.get()}) {
          if (partial == nullptr) continue;
          for (std::uint32_t ge = 0; ge < partial->pages.size(); ++ge) {
            visit_page({{id, LayerId{i}, KvHead{h}}, PageKind::embedding, ge, partial->window}, partial->pages[ge]);
          }
        }
      }
    }
  }
}

std::uint64_t KvFtl::verify() const {
  const std::uint64_t before = store_.integrity_errors();
  visit_pages([this](const KvPageId& page, PhysicalPageAddress ppa) {
    const PageOwner owner = owners_.get(ppa.value);
    const MapSegment& segment = *slots_[owner.slot];
    const std::uint32_t partial_tokens = find_entry(owner, ppa).partial_tokens;
    store_.read_verified(ppa, oob_tag(page, segment.layout, segment.number, partial_tokens), PageCheck::key_and_crc);
  });
  return store_.integrity_errors() - before;
}

KvMapEntry& KvFtl::entry(const KvPageId& page) {
  Sequence* s = check(page.key) == KvStatus::ok ? find(page.key.sequence) : nullptr;
  Layer* layer = s != nullptr ? s->layers[page.key.layer.value].get() : nullptr;
  if (layer != nullptr) {
    const KvLayout& l = s->layout;
    Tile& t = layer->tiles[page.key.head.value / l.page_heads];
    if (page.kind == PageKind::embedding) {
      if (page.window < t.written_windows(l) && page.group < l.embedding_pages(l.window(page.window))) {
        return t.embedding(l.embedding_position(l.window(page.window)) + page.group);
      }
    } else if (page.kind != PageKind::host && (page.kind == PageKind::token_kv) == l.paired &&
               page.group < t.written_groups()) {
      return t.token(page.kind == PageKind::token_v ? KvKind::value : KvKind::key, page.group);
    }
  }
  throw UserError(
      fmt::format("fault injection: {} is not mapped",
                  to_string(OobTag{page.kind, page.key.layer, page.key.head, page.key.sequence, page.group, 0})));
}

void KvFtl::swap_mapping(const KvPageId& a, const KvPageId& b) {
  KvMapEntry& first = entry(a);
  KvMapEntry& second = entry(b);
  const PhysicalPageAddress was = first.ppa();
  first.redirect(second.ppa());
  second.redirect(was);
}

void KvFtl::forget_tail(const HeadKey& key) {
  Sequence* s = check(key) == KvStatus::ok ? find(key.sequence) : nullptr;
  Layer* layer = s != nullptr ? s->layers[key.layer.value].get() : nullptr;
  if (layer == nullptr || layer->heads[key.head.value].key_tail.empty()) {
    throw UserError(fmt::format("fault injection: {} has no tail", to_string(KvPageId{key})));
  }
  Head& head = layer->heads[key.head.value];
  std::ranges::fill(head.key_tail, Half{});
  std::ranges::fill(head.value_tail, Half{});
}

}  // namespace csdsim::ftl
