// Appending tokens: group buffers, token pages, embedding windows, and the flushes that carry them to flash.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/error.h"
#include "ftl/core/kv_ftl.h"
#include "ftl/core/kv_sequence.h"

namespace csdsim::ftl {

KvStatus KvFtl::validate(const Append& a) const {
  const Sequence& s = a.sequence;
  if (a.layer.value >= s.shape.layers) return KvStatus::bad_layer;
  if (std::uint64_t{a.heads.first.value} + a.heads.count > s.shape.kv_heads) return KvStatus::bad_head;
  if (std::uint64_t{a.first} + a.count > std::numeric_limits<std::uint32_t>::max()) return KvStatus::bad_token;
  const std::uint64_t elements = store_.carried() ? std::uint64_t{a.heads.count} * a.count * s.layout.head_dim : 0;
  if (a.keys.size() != elements || a.values.size() != elements) return KvStatus::bad_data;
  const auto& layer = s.layers[a.layer.value];
  for (std::uint32_t i = 0; i < a.heads.count; ++i) {
    const std::uint32_t tokens = layer ? layer->heads[a.heads.first.value + i].tokens : 0;
    if (tokens != a.first) return KvStatus::bad_token;
  }
  return KvStatus::ok;
}

/// Books what the append needs of flash and DRAM, or says why it cannot.
KvStatus KvFtl::book(const Append& a) {
  Sequence& s = a.sequence;
  const KvLayout& l = s.layout;
  const std::uint64_t heads = a.heads.count;
  const std::uint64_t pages = heads * (l.pages(a.end()).total() - l.pages(a.first).total());
  if (pages > 0 && blocks_.read_only()) return KvStatus::read_only;
  if (pages > appendable_pages()) return room_may_come(pages) ? KvStatus::busy : KvStatus::out_of_space;

  std::array<Bytes, kDramUses> before{};
  std::array<Bytes, kDramUses> after{};
  const auto set = [&](DramUse use, Bytes from, Bytes to) {
    before[static_cast<std::size_t>(use)] = from;
    after[static_cast<std::size_t>(use)] = to;
  };
  set(DramUse::group_buffer, l.group_buffer(a.first) * heads, l.group_buffer(a.end()) * heads);
  if (config_.tail == TailPolicy::dram) {
    set(DramUse::component_tail, l.component_tail(a.first) * heads, l.component_tail(a.end()) * heads);
  }
  if (a.first == 0) set(DramUse::value_mean, {}, Bytes{sizeof(float)} * l.head_dim * heads);
  set(DramUse::map, {}, HeadMap::kEntryBytes * pages);
  set(DramUse::flush_pending, {}, l.page_size * pages);

  Bytes gone;
  Bytes come;
  for (std::size_t use = 0; use < kDramUses; ++use) {
    gone += before[use];
    come += after[use];
  }
  const Bytes kept = dram_.used() - gone;
  if (kept + come > dram_.capacity()) {
    const Bytes drains = dram_.used(DramUse::flush_pending) + dram_.used(DramUse::write_buffer) + closing_dram_;
    return kept - drains + come > dram_.capacity() ? KvStatus::out_of_dram : KvStatus::busy;
  }
  for (std::size_t use = 0; use < kDramUses; ++use) dram_.release(static_cast<DramUse>(use), before[use]);
  for (std::size_t use = 0; use < kDramUses; ++use) {
    dram_.charge(static_cast<DramUse>(use), after[use]);
    if (static_cast<DramUse>(use) != DramUse::flush_pending) s.dram[use] = s.dram[use] - before[use] + after[use];
  }
  return KvStatus::ok;
}

AppendResult KvFtl::append(SequenceId id, LayerId layer, TokenIndex first, std::uint32_t count, HeadRange heads,
                           std::span<const Half> keys, std::span<const Half> values) {
  Sequence* s = find(id);
  if (s == nullptr) return {KvStatus::bad_sequence, {}, {}};
  const Append a{*s, id, layer, first.value, count, heads, keys, values};
  if (const KvStatus status = validate(a); status != KvStatus::ok) return {status, {}, {}};
  if (count == 0 || heads.count == 0) return {};
  AppendResult result;
  make_room(std::uint64_t{heads.count} * (s->layout.pages(a.end()).total() - s->layout.pages(a.first).total()), result);
  result.status = book(a);
  if (result.status != KvStatus::ok) return result;

  auto& slot = s->layers[layer.value];
  if (!slot) {
    slot = std::make_unique<Layer>();
    slot->heads.resize(s->shape.kv_heads);
    for (std::uint32_t h = 0; h < s->shape.kv_heads; ++h) slot->heads[h].slot = take_slot({id, layer, KvHead{h}});
    // Growing maps by doubling would waste up to half of them; a hint that the flash could never hold is not believed.
    const std::uint64_t hinted = s->layout.pages(s->shape.max_tokens).total() * s->shape.kv_heads;
    if (hinted <= blocks_.available_pages(Namespace::kv)) {
      for (Head& head : slot->heads) head.map.reserve(s->layout, s->shape.max_tokens);
    }
  }
  for (std::uint32_t i = 0; i < heads.count; ++i) append_head(a, KvHead{heads.first.value + i}, result.jobs);
  return result;
}

void KvFtl::append_head(const Append& a, KvHead h, std::vector<FlushJob>& jobs) {
  Sequence& s = a.sequence;
  const KvLayout& l = s.layout;
  const KvKey key{a.id, a.layer, h};
  Head& head = s.layers[a.layer.value]->heads[h.value];
  head.tokens = a.end();
  if (store_.carried()) update_value_mean(a, h, head);
  flush_groups(a, key, head, jobs);
  const auto last = static_cast<std::uint32_t>(l.full_windows(a.end()));
  for (auto window = static_cast<std::uint32_t>(l.full_windows(a.first)); window <= last; ++window) {
    if (store_.carried() && config_.tail == TailPolicy::dram && l.component_major)
      fill_component_tail(a, h, head, window);
    if (window < last) jobs.push_back(flush_window(s, key, head, window));
  }
}

void KvFtl::update_value_mean(const Append& a, KvHead h, Head& head) {
  const std::uint32_t d = a.sequence.layout.head_dim;
  head.value_mean.resize(d);
  const std::span<const Half> rows = a.rows(KvKind::value, h);
  for (std::uint32_t t = 0; t < a.count; ++t) {
    const auto tokens = static_cast<float>(a.first + t + 1);
    for (std::uint32_t i = 0; i < d; ++i) {
      head.value_mean[i] += (half_to_float(rows[std::size_t{t} * d + i]) - head.value_mean[i]) / tokens;
    }
  }
}

/// Rows of the group that `token` falls into go to the group buffer. Returns the first token of the next group, or the
/// end.
std::uint32_t KvFtl::buffer_rows(const Append& a, KvHead h, Head& head, std::uint32_t token) {
  const KvLayout& l = a.sequence.layout;
  const std::uint32_t slot = token % l.group_tokens;
  const std::uint32_t end = std::min(a.end(), token - slot + l.group_tokens);
  if (!head.group_buffer) {
    head.group_buffer = std::make_unique_for_overwrite<Half[]>(2 * std::size_t{l.group_tokens} * l.head_dim);
  }
  for (const KvKind kind : {KvKind::key, KvKind::value}) {
    const auto rows =
        a.rows(kind, h).subspan(std::size_t{token - a.first} * l.head_dim, std::size_t{end - token} * l.head_dim);
    std::ranges::copy(rows, head.group_buffer.get() + group_buffer_offset(l, kind) + std::size_t{slot} * l.head_dim);
  }
  return end;
}

void KvFtl::flush_groups(const Append& a, const KvKey& key, Head& head, std::vector<FlushJob>& jobs) {
  const KvLayout& l = a.sequence.layout;
  const auto first = static_cast<std::uint32_t>(l.full_groups(a.first));
  const auto last = static_cast<std::uint32_t>(l.full_groups(a.end()));
  if (first < last) {
    FlushJob job;
    job.id = begin_flush(a.sequence, {key, false, first, last - first});
    job.programs.reserve(2 * std::size_t{last - first});
    for (std::uint32_t group = first; group < last; ++group) {
      std::array<PhysicalPageAddress, 2> ppa{};
      // Only the group that was begun earlier passes through the group buffer; whole ones are cut out of the input.
      const bool begun = group == first && a.first % l.group_tokens != 0;
      if (store_.carried() && begun) buffer_rows(a, key.head, head, a.first);
      for (const KvKind kind : {KvKind::key, KvKind::value}) {
        const KvPageId page{key, token_page_kind(kind), group, 0};
        const PageOwner owner{head.slot, 2 * group + static_cast<std::uint32_t>(kind)};
        const PhysicalPageAddress to = allocate_for(page, a.sequence, owner, job);
        if (store_.carried()) {
          const std::size_t size = std::size_t{l.group_tokens} * l.head_dim;
          const std::span<const Half> image =
              begun ? std::span<const Half>(head.group_buffer.get() + group_buffer_offset(l, kind), size)
                    : a.rows(kind, key.head).subspan(std::size_t{group * l.group_tokens - a.first} * l.head_dim, size);
          store_.write(to, std::as_bytes(image), oob_tag(page, l));
        }
        ppa[static_cast<std::size_t>(kind)] = to;
      }
      head.map.push_group({ppa[0], false}, {ppa[1], false});
    }
    stats_.token_pages_programmed += 2 * std::uint64_t{last - first};
    jobs.push_back(std::move(job));
  }
  const std::uint32_t rest = std::max(a.first, last * l.group_tokens);
  if (store_.carried() && rest < a.end()) buffer_rows(a, key.head, head, rest);
}

/// Keys of this append that fall into `window`, transposed into the component-major tail.
void KvFtl::fill_component_tail(const Append& a, KvHead h, Head& head, std::uint32_t window) {
  const KvLayout& l = a.sequence.layout;
  if (!head.component_tail) {
    head.component_tail = std::make_unique_for_overwrite<Half[]>(std::size_t{l.head_dim} * l.window_tokens);
  }
  const std::uint64_t start = std::uint64_t{window} * l.window_tokens;
  const std::uint64_t end = std::min<std::uint64_t>(a.end(), start + l.window_tokens);
  const std::span<const Half> rows = a.rows(KvKind::key, h);
  for (std::uint64_t token = std::max<std::uint64_t>(a.first, start); token < end; ++token) {
    const Half* row = rows.data() + (token - a.first) * l.head_dim;
    for (std::uint32_t i = 0; i < l.head_dim; ++i) {
      head.component_tail[std::size_t{i} * l.window_tokens + (token - start)] = row[i];
    }
  }
}

/// Transposes a window from its K token pages.
void KvFtl::transpose_window(const KvLayout& l, const KvKey& key, std::uint32_t window) {
  window_image_.resize(std::size_t{l.head_dim} * l.window_tokens);
  for (std::uint32_t g = 0; g < l.window_groups(); ++g) {
    const Half* rows = token_rows(key, KvKind::key, window * l.window_groups() + g);
    for (std::uint32_t t = 0; t < l.group_tokens; ++t) {
      for (std::uint32_t i = 0; i < l.head_dim; ++i) {
        window_image_[std::size_t{i} * l.window_tokens + g * l.group_tokens + t] = rows[t * l.head_dim + i];
      }
    }
  }
}

FlushJob KvFtl::flush_window(Sequence& s, const KvKey& key, Head& head, std::uint32_t window) {
  const KvLayout& l = s.layout;
  FlushJob job;
  job.id = begin_flush(s, {key, true, window, 1});
  if (config_.tail == TailPolicy::token_index) {
    for (std::uint32_t g = 0; g < l.window_groups(); ++g) {
      const KvMapEntry& e = head.map.token(KvKind::key, window * l.window_groups() + g);
      if (!e.in_dram()) job.reads.push_back(read_op(e.ppa(), OpClass::flush));
    }
  }
  const Half* image = head.component_tail.get();
  if (store_.carried() && config_.tail == TailPolicy::token_index) {
    transpose_window(l, key, window);
    image = window_image_.data();
  }
  job.programs.reserve(l.embedding_pages());
  const std::size_t page_halves = std::size_t{l.embedding_group} * l.window_tokens;
  for (std::uint32_t ge = 0; ge < l.embedding_pages(); ++ge) {
    const KvPageId page{key, PageKind::embedding, ge, window};
    const PageOwner owner{head.slot, kEmbedding | (window * l.embedding_pages() + ge)};
    const PhysicalPageAddress to = allocate_for(page, s, owner, job);
    if (store_.carried()) {
      store_.write(to, std::as_bytes(std::span(image + ge * page_halves, page_halves)), oob_tag(page, l));
    }
    head.map.push_embedding({to, !job.reads.empty()});
  }
  advance_readable_windows(l, head);
  stats_.read_back_pages += job.reads.size();
  stats_.embedding_pages_programmed += l.embedding_pages();
  return job;
}

void KvFtl::advance_readable_windows(const KvLayout& l, Head& head) {
  const std::uint32_t windows = head.map.windows(l);
  while (head.readable_windows < windows && !head.map.embedding(l, head.readable_windows, 0).awaits_read_back()) {
    ++head.readable_windows;
  }
}

std::optional<PhysicalPageAddress> KvFtl::next_page(PlaneId wanted, Stream stream) {
  if (const auto ppa = blocks_.allocate(wanted, stream)) return ppa;
  if (stream == Stream::kv) ++stats_.misplaced_pages;
  const std::uint32_t per_channel = geometry_.planes_per_channel();
  for (std::uint32_t c = 0; c < geometry_.channels; ++c) {
    const std::uint32_t channel = (geometry_.channel_of(wanted).value + c) % geometry_.channels;
    for (std::uint32_t i = 0; i < per_channel; ++i) {
      const PlaneId plane{channel * per_channel + (wanted.value + i) % per_channel};
      if (const auto ppa = blocks_.allocate(plane, stream)) return ppa;
    }
  }
  return std::nullopt;
}

std::optional<PhysicalPageAddress> KvFtl::allocate(PlaneId wanted, Stream stream, OpClass op_class,
                                                   std::vector<PageOp>& programs) {
  for (;;) {
    auto ppa = next_page(wanted, stream);
    // The last pages may lie in the open blocks of the other stream.
    if (!ppa) ppa = next_page(wanted, stream == Stream::kv ? Stream::kv_gc : Stream::kv);
    if (!ppa) return std::nullopt;
    programs.push_back(op(*ppa, PageOpKind::program, op_class));
    const BlockId block = blocks_.block_of(*ppa);
    // What was booked before the last spare block went must find room: the append that sees it go ends well.
    if (faults_ == nullptr || blocks_.read_only() || !faults_->program_fails(*ppa, blocks_.erase_count(block))) {
      return ppa;
    }
    ++stats_.program_failures;
    blocks_.invalidate(*ppa);
    blocks_.retire(block);
    failed_.push_back(block);
  }
}

PhysicalPageAddress KvFtl::allocate_for(const KvPageId& page, const Sequence& s, PageOwner owner, FlushJob& job) {
  const PlaneId wanted = placement_->place(page, s.shape, s.layout);
  const auto ppa = allocate(wanted, Stream::kv, OpClass::flush, job.programs);
  if (!ppa) throw InternalError("a flash page was booked but is not there");
  owners_[ppa->value] = owner;
  return *ppa;
}

FlushJobId KvFtl::begin_flush(Sequence& s, const PendingFlush& flush) {
  const FlushJobId id{next_job_++};
  pending_.emplace(id.value, flush);
  ++s.pins;
  return id;
}

std::vector<PageOp> KvFtl::flush_done(FlushJobId id) {
  if (const auto move = moves_.find(id.value); move != moves_.end()) {
    const PendingMove done = std::move(move->second);
    moves_.erase(move);
    return move_done(done);
  }
  const auto it = pending_.find(id.value);
  if (it == pending_.end()) throw InternalError(fmt::format("flush job {} is not pending", id.value));
  const PendingFlush flush = it->second;
  pending_.erase(it);
  Sequence& s = sequences_.at(flush.key.sequence);
  const KvLayout& l = s.layout;
  Head& head = s.layers[flush.key.layer.value]->heads[flush.key.head.value];
  std::uint64_t pages = 0;
  if (flush.embedding) {
    pages = l.embedding_pages();
    for (std::uint32_t ge = 0; ge < l.embedding_pages(); ++ge) head.map.embedding(l, flush.first, ge).flushed();
    advance_readable_windows(l, head);
  } else {
    pages = 2 * std::uint64_t{flush.count};
    for (std::uint32_t group = flush.first; group < flush.first + flush.count; ++group) {
      head.map.token(KvKind::key, group).flushed();
      head.map.token(KvKind::value, group).flushed();
    }
  }
  dram_.release(DramUse::flush_pending, l.page_size * pages);
  return unpin(flush.key.sequence);
}

}  // namespace csdsim::ftl
