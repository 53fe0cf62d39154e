// Sequences, queries, read planning, data access.
#include "ftl/core/kv_ftl.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "ftl/core/kv_sequence.h"

namespace csdsim::ftl {
namespace {

/// Layers and heads are 16-bit in commands; anything larger is a mistake and would only cost memory.
constexpr std::uint32_t kMaxCount = 65535;

InternalError bad_page(const KvPageId& page, std::string_view what) {
  return InternalError(fmt::format("{} (sequence {}, layer {}, head {}, group {}, window {})", what,
                                   page.key.sequence.value, page.key.layer.value, page.key.head.value, page.group,
                                   page.window));
}

}  // namespace

KvFtl::KvFtl(const KvFtlConfig& config, BlockManager& blocks, BackingStore& store, DramBudget& dram,
             std::unique_ptr<KvPlacement> placement, MediaFaults* faults)
    : config_(config),
      blocks_(blocks),
      store_(store),
      dram_(dram),
      placement_(std::move(placement)),
      faults_(faults),
      geometry_(blocks.geometry()),
      owners_(blocks.quota(Namespace::kv) > 0 ? geometry_.pages() : 0) {
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

const KvFtl::Head& KvFtl::head(const KvKey& key) const {
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
  s.shape = shape;
  try {
    s.layout = KvLayout::make(geometry_.page_size, shape.head_dim, config_.embedding_group, shape.max_tokens,
                              shape.component_major);
  } catch (const UserError&) {
    return KvStatus::bad_shape;
  }
  s.layers.resize(shape.layers);
  sequences_.emplace(id, std::move(s));
  return KvStatus::ok;
}

FreeResult KvFtl::free_sequence(SequenceId id) {
  Sequence* s = find(id);
  if (s == nullptr) return {KvStatus::bad_sequence, {}};
  if (s->pins == 0) return {KvStatus::ok, release(id)};
  s->closing = true;
  ++closing_sequences_;
  for (const Bytes held : s->dram) closing_dram_ += held;
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
    for (const Bytes held : s.dram) closing_dram_ -= held;
    erases = release(id);
  }
  readers_left(id, erases);
  return erases;
}

std::vector<PageOp> KvFtl::release(SequenceId id) {
  const auto it = sequences_.find(id);
  const Sequence& s = it->second;
  std::vector<PageOp> erases;
  const auto drop = [&](PhysicalPageAddress ppa) {
    if (!blocks_.invalidate(ppa)) return;
    erases.push_back(begin_erase(blocks_.block_of(ppa)));
  };
  for (const auto& layer : s.layers) {
    if (!layer) continue;
    for (const Head& h : layer->heads) {
      for (const KvMapEntry& e : h.map.all_tokens()) drop(e.ppa());
      for (const KvMapEntry& e : h.map.all_embedding()) drop(e.ppa());
      free_slots_.push_back(h.slot);
    }
  }
  for (std::size_t use = 0; use < kDramUses; ++use) dram_.release(static_cast<DramUse>(use), s.dram[use]);
  sequences_.erase(it);
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
}

KvStatus KvFtl::check(const KvKey& key) const {
  const Sequence* s = find(key.sequence);
  if (s == nullptr) return KvStatus::bad_sequence;
  if (key.layer.value >= s->shape.layers) return KvStatus::bad_layer;
  if (key.head.value >= s->shape.kv_heads) return KvStatus::bad_head;
  return KvStatus::ok;
}

const KvShape& KvFtl::shape(SequenceId id) const { return sequence(id).shape; }
const KvLayout& KvFtl::layout(SequenceId id) const { return sequence(id).layout; }
std::uint32_t KvFtl::tokens(const KvKey& key) const { return head(key).tokens; }

std::uint32_t KvFtl::flushed_tokens(const KvKey& key) const {
  return head(key).map.groups() * layout(key.sequence).group_tokens;
}

std::uint32_t KvFtl::transposed_tokens(const KvKey& key) const {
  return head(key).readable_windows * layout(key.sequence).window_tokens;
}

PageOp KvFtl::op(PhysicalPageAddress ppa, PageOpKind kind, OpClass op_class) const {
  const auto bytes = static_cast<std::uint32_t>(geometry_.page_size.value);
  return {.ppa = ppa, .kind = kind, .op_class = op_class, .channel_bytes = kind == PageOpKind::erase ? 0 : bytes};
}

PageOp KvFtl::read_op(PhysicalPageAddress ppa, OpClass op_class) {
  PageOp read = op(ppa, PageOpKind::read, op_class);
  if (faults_ == nullptr) return read;
  const BlockId block = blocks_.block_of(ppa);
  const ReadOutcome outcome = faults_->read(ppa, blocks_.erase_count(block), blocks_.count_read(block));
  read.retries = outcome.retries;
  stats_.read_retries += outcome.retries;
  stats_.uncorrectable_reads += outcome.uncorrectable ? 1 : 0;
  return read;
}

void KvFtl::plan_token_groups(const KvKey& key, KvKind kind, std::span<const std::uint32_t> groups,
                              std::vector<PageOp>& out) {
  const Head& h = head(key);
  const std::uint32_t flushed = h.map.groups();
  const std::uint32_t present = flushed + (h.tokens > flushed * layout(key.sequence).group_tokens ? 1 : 0);
  for (const std::uint32_t group : groups) {
    if (group >= present) throw bad_page({key, token_page_kind(kind), group, 0}, "there is no such token group");
    if (group == flushed) continue;
    const KvMapEntry& e = h.map.token(kind, group);
    if (!e.in_dram()) out.push_back(read_op(e.ppa(), OpClass::attend));
  }
  stats_.lookups += groups.size();
}

void KvFtl::plan_embedding_groups(const KvKey& key, std::span<const std::uint32_t> groups, std::vector<PageOp>& out) {
  const Head& h = head(key);
  const KvLayout& l = layout(key.sequence);
  for (std::uint32_t window = 0; window < h.readable_windows; ++window) {
    for (const std::uint32_t ge : groups) {
      if (ge >= l.embedding_pages()) {
        throw bad_page({key, PageKind::embedding, ge, window}, "there is no such embedding group");
      }
      const KvMapEntry& e = h.map.embedding(l, window, ge);
      if (!e.in_dram()) out.push_back(read_op(e.ppa(), OpClass::attend));
    }
  }
  stats_.lookups += groups.size() * h.readable_windows;
}

std::span<const std::byte> KvFtl::read(const KvPageId& page, const KvLayout& layout, PhysicalPageAddress ppa) const {
  return store_.read_verified(ppa, oob_tag(page, layout), config_.check);
}

const Half* KvFtl::token_rows(const KvKey& key, KvKind kind, std::uint32_t group) const {
  const Head& h = head(key);
  const KvLayout& l = layout(key.sequence);
  const KvPageId page{key, token_page_kind(kind), group, 0};
  if (group < h.map.groups()) return as_halves(read(page, l, h.map.token(kind, group).ppa()));
  if (!h.group_buffer || std::uint64_t{group} * l.group_tokens >= h.tokens) throw bad_page(page, "no rows to read");
  return h.group_buffer.get() + group_buffer_offset(l, kind);
}

const Half* KvFtl::token_row(const KvKey& key, KvKind kind, TokenIndex token) const {
  const KvLayout& l = layout(key.sequence);
  const std::uint32_t group = token.value / l.group_tokens;
  if (token.value >= tokens(key)) throw bad_page({key, token_page_kind(kind), group, 0}, "no row to read");
  return token_rows(key, kind, group) + std::size_t{token.value % l.group_tokens} * l.head_dim;
}

const Half* KvFtl::embedding_page(const KvKey& key, std::uint32_t ge, std::uint32_t window) const {
  const Head& h = head(key);
  const KvLayout& l = layout(key.sequence);
  const KvPageId page{key, PageKind::embedding, ge, window};
  if (window >= h.readable_windows || ge >= l.embedding_pages()) throw bad_page(page, "no embedding page to read");
  return as_halves(read(page, l, h.map.embedding(l, window, ge).ppa()));
}

std::span<const float> KvFtl::value_mean(const KvKey& key) const {
  const Head& h = head(key);
  if (h.value_mean.empty()) throw bad_page({key}, "no values were appended to this head, or only in timing mode");
  return h.value_mean;
}

void KvFtl::visit_pages(const std::function<void(const KvPageId&, PhysicalPageAddress)>& visit) const {
  for (const auto& [id, s] : sequences_) {
    for (std::uint32_t layer = 0; layer < s.shape.layers; ++layer) {
      if (!s.layers[layer]) continue;
      for (std::uint32_t i = 0; i < s.shape.kv_heads; ++i) {
        const KvKey key{id, LayerId{layer}, KvHead{i}};
        const HeadMap& map = s.layers[layer]->heads[i].map;
        for (std::uint32_t group = 0; group < map.groups(); ++group) {
          visit({key, PageKind::token_k, group, 0}, map.token(KvKind::key, group).ppa());
          visit({key, PageKind::token_v, group, 0}, map.token(KvKind::value, group).ppa());
        }
        for (std::uint32_t window = 0; window < map.windows(s.layout); ++window) {
          for (std::uint32_t ge = 0; ge < s.layout.embedding_pages(); ++ge) {
            visit({key, PageKind::embedding, ge, window}, map.embedding(s.layout, window, ge).ppa());
          }
        }
      }
    }
  }
}

std::uint64_t KvFtl::verify() const {
  const std::uint64_t before = store_.integrity_errors();
  visit_pages([this](const KvPageId& page, PhysicalPageAddress ppa) {
    store_.read_verified(ppa, oob_tag(page, layout(page.key.sequence)), PageCheck::key_and_crc);
  });
  return store_.integrity_errors() - before;
}

KvMapEntry& KvFtl::entry(const KvPageId& page) {
  Sequence* s = check(page.key) == KvStatus::ok ? find(page.key.sequence) : nullptr;
  Layer* layer = s != nullptr ? s->layers[page.key.layer.value].get() : nullptr;
  if (layer != nullptr) {
    HeadMap& map = layer->heads[page.key.head.value].map;
    if (page.kind == PageKind::embedding) {
      if (page.window < map.windows(s->layout) && page.group < s->layout.embedding_pages()) {
        return map.embedding(s->layout, page.window, page.group);
      }
    } else if (page.kind != PageKind::host && page.group < map.groups()) {
      return map.token(page.kind == PageKind::token_k ? KvKind::key : KvKind::value, page.group);
    }
  }
  throw UserError(
      fmt::format("fault injection: {} is not mapped",
                  to_string(OobTag{page.kind, page.key.layer, page.key.head, page.key.sequence, page.group})));
}

void KvFtl::swap_mapping(const KvPageId& a, const KvPageId& b) {
  KvMapEntry& first = entry(a);
  KvMapEntry& second = entry(b);
  const PhysicalPageAddress was = first.ppa();
  first.redirect(second.ppa());
  second.redirect(was);
}

}  // namespace csdsim::ftl
