// Bringing the KV namespace back after a power loss.
#include "ftl/kv/kv_recovery.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "ftl/kv/kv_components.h"
#include "ftl/kv/kv_parts.h"

namespace csdsim::ftl {
namespace {

class KvRecovery {
 public:
  KvRecovery(KvParts& parts, const KvDump& dump) : p_(parts), dump_(dump), segments_(dump.segments.size()) {}

  RecoveryResult run(const std::function<void()>& restore_others) {
    check();
    restore_sequences();
    scan();
    settle_partials();
    park_images();
    drop_lost();
    charge_dram();
    restore_blocks();
    if (restore_others) restore_others();
    rebuild_windows();
    rebuild_tails();
    tell_policy();
    make_reserve();
    p_.mover.place_parked(result_.jobs);
    return std::move(result_);
  }

 private:
  void check() const;
  void restore_sequences();
  void restore_layer(const KvDump::Layer& saved, KvSequence& s, std::uint32_t layer);
  const std::shared_ptr<MapSegment>& restore_segment(std::uint32_t number, const KvSequence& user);
  void scan();
  KvMapEntry* entry_for(const OobTag& tag);
  void settle_partials();
  void park_images();
  void drop_lost();
  void drop_sequence(SequenceId id);
  void charge_dram();
  void restore_blocks();
  void rebuild_windows();
  void rebuild_tails();
  void tell_policy();
  void make_reserve();

  template <class Visit>
  void for_each_head(const Visit& visit) {
    for (auto& [id, s] : p_.table) {
      for (std::uint32_t i = 0; i < s.layers.size(); ++i) {
        if (!s.layers[i]) continue;
        for (std::uint32_t h = 0; h < s.shape.kv_heads; ++h) {
          visit(s, HeadKey{id, LayerId{i}, KvHead{h}}, s.layers[i]->heads[h],
                s.layers[i]->tiles[h / s.layout.page_heads]);
        }
      }
    }
  }

  static bool is_ours(const BlockRecord& record) { return record.ns == Namespace::kv; }
  static std::uint64_t writer(std::uint32_t segment, LayerId layer, KvHead head) {
    return std::uint64_t{segment} << 32 | std::uint64_t{layer.value} << 16 | head.value;
  }

  KvParts& p_;
  const KvDump& dump_;
  std::vector<std::shared_ptr<MapSegment>> segments_;         ///< as the dump numbers them; null: no sequence is left
  std::unordered_map<std::uint64_t, MapSegment*> by_writer_;  ///< a sequence writes one segment of a number per tile
  RecoveryResult result_;
};

void KvRecovery::check() const {
  if (!p_.flash.store.carried()) {
    throw UserError("nothing can be recovered in timing mode: its flash keeps no out-of-band metadata");
  }
  if (dump_.policy != p_.policy->name() || dump_.tail != p_.flash.config.tail) {
    throw UserError(fmt::format("the dump is of mapping policy \"{}\" with tail policy {}, not of \"{}\" with {}",
                                dump_.policy, static_cast<int>(dump_.tail), p_.policy->name(),
                                static_cast<int>(p_.flash.config.tail)));
  }
  if (p_.table.segment_numbers() > 0) throw InternalError("the KV namespace is recovered but in use");
}

void KvRecovery::restore_sequences() {
  p_.table.restore_segment_numbers(dump_.next_segment);
  for (const KvDump::Sequence& saved : dump_.sequences) {
    KvSequence s;
    s.id = saved.id;
    s.segment = saved.segment;
    s.shape = saved.shape;
    s.layout = saved.layout;
    s.layers.resize(saved.layers.size());
    for (std::uint32_t i = 0; i < saved.layers.size(); ++i) {
      if (saved.layers[i]) restore_layer(*saved.layers[i], s, i);
    }
    p_.table.add(std::move(s));
  }
}

void KvRecovery::restore_layer(const KvDump::Layer& saved, KvSequence& s, std::uint32_t layer) {
  s.layers[layer] = std::make_unique<KvLayer>();
  KvLayer& to = *s.layers[layer];
  for (const KvDump::Tile& numbers : saved.tiles) {
    KvTile& tile = to.tiles.emplace_back();
    for (const std::uint32_t number : numbers) tile.segments.push_back(restore_segment(number, s));
  }
  for (const KvDump::Head& from : saved.heads) {
    const std::uint32_t windows = to.tiles[to.heads.size() / s.layout.page_heads].written_windows(s.layout);
    KvHeadState& head = to.heads.emplace_back();
    head.tokens = from.tokens;
    head.key_tail = from.key_tail;
    head.value_tail = from.value_tail;
    head.value_mean = from.value_mean;
    for (const KvDump::PartialWindow& partial : from.partials) {
      if (partial.window != windows) continue;  // a full one has taken its place
      auto& version = head.partial ? head.coming_partial : head.partial;
      version = std::make_unique<PartialWindow>(PartialWindow{partial.window, partial.end, kNoJob, {}});
      version->pages.assign(s.layout.embedding_pages(s.layout.window(partial.window)), KvMapEntry::nowhere());
    }
  }
}

const std::shared_ptr<MapSegment>& KvRecovery::restore_segment(std::uint32_t number, const KvSequence& user) {
  auto& segment = segments_[number];
  if (!segment) {
    const KvDump::MapSegment& saved = dump_.segments[number];
    segment = std::make_shared<MapSegment>();
    segment->key = saved.key;
    segment->number = saved.number;
    p_.owners.add(*segment);
    segment->layout = user.layout;
    segment->map = HeadMap(saved.first_group, saved.first_position, user.layout.pages_per_group());
    segment->map.assign_nowhere(saved.end_group, saved.end_position);
    by_writer_.emplace(writer(saved.number, saved.key.layer, saved.key.head), segment.get());
  }
  segment->users.push_back(user.id);
  return segment;
}

/// Where the page belongs, if anyone still wants it.
KvMapEntry* KvRecovery::entry_for(const OobTag& tag) {
  const auto at = by_writer_.find(writer(tag.segment, tag.layer, tag.head));
  if (at == by_writer_.end()) return nullptr;
  MapSegment& segment = *at->second;
  if (tag.kind != PageKind::embedding) {
    if (tag.index < segment.map.first_group() || tag.index >= segment.map.end_group()) return nullptr;
    const std::uint64_t first = tag.index * segment.layout.pages_per_group();
    return &segment.map.token_at(static_cast<std::uint32_t>(first + (tag.kind == PageKind::token_v ? 1 : 0)));
  }
  const auto position = static_cast<std::uint32_t>(tag.index);
  if (tag.partial_tokens == 0) {
    if (position < segment.map.first_position() || position >= segment.map.end_position()) return nullptr;
    return &segment.map.embedding_at(position);
  }
  if (!p_.table.contains(segment.key.sequence)) return nullptr;
  KvSequence& s = p_.table.at(segment.key.sequence);
  if (s.segment != segment.number) return nullptr;
  KvHeadState& head = s.layers[segment.key.layer.value]->heads[segment.key.head.value];
  const KvWindow window = segment.layout.window(segment.layout.window_at(position));
  for (PartialWindow* const partial : {head.partial.get(), head.coming_partial.get()}) {
    if (partial == nullptr || segment.layout.window(partial->window) != window) continue;
    if (partial->end - window.first != tag.partial_tokens) continue;
    return &partial->pages[position - segment.layout.embedding_position(window)];
  }
  return nullptr;
}

/// Reads the out-of-band metadata of every page that was handed out. Of several copies the newest counts: older ones
/// lie in blocks that garbage collection was emptying.
void KvRecovery::scan() {
  std::vector<std::uint64_t> of_plane(p_.flash.geometry.planes());
  for (const BlockRecord& record : dump_.blocks) {
    if (!is_ours(record) || record.state == BlockState::free || record.state == BlockState::erasing) continue;
    const std::uint64_t first = p_.flash.blocks.first_page(record.block).value;
    of_plane[p_.flash.blocks.plane_of(record.block).value] += record.written;
    result_.oob_reads += record.written;
    for (std::uint32_t page = 0; page < record.written; ++page) {
      const PhysicalPageAddress ppa{first + page};
      const auto oob = p_.flash.store.oob(ppa);
      if (!oob) {
        ++result_.unreadable_pages;
        continue;
      }
      if (oob->tag.kind == PageKind::host)
        throw InternalError(fmt::format("page {} of the KV namespace holds {}", ppa.value, to_string(oob->tag)));
      ++result_.stale_pages;
      KvMapEntry* const entry = entry_for(oob->tag);
      if (entry == nullptr) continue;
      if (!entry->is_nowhere() && p_.flash.store.oob(entry->ppa())->stamp > oob->stamp) continue;
      *entry = KvMapEntry::in_flash(ppa);
    }
  }
  result_.oob_reads_of_busiest_plane = *std::ranges::max_element(of_plane);
}

/// Keeps the newest version of an unfinished window that is complete. There may be none: its keys are scored from their
/// token pages then, and the next append programs it again.
void KvRecovery::settle_partials() {
  const auto complete = [](const std::unique_ptr<PartialWindow>& partial) {
    return partial != nullptr && std::ranges::none_of(partial->pages, &KvMapEntry::is_nowhere);
  };
  for_each_head([&](KvSequence&, const HeadKey&, KvHeadState& head, KvTile&) {
    if (complete(head.coming_partial)) head.partial = std::move(head.coming_partial);
    if (!complete(head.partial)) head.partial.reset();
    head.coming_partial.reset();
  });
}

void KvRecovery::park_images() {
  for (const KvDump::Image& image : dump_.images) {
    MapSegment& segment = *segments_[image.segment];
    KvMapEntry& entry = segment.map.token_at(image.position);
    if (!entry.is_nowhere()) continue;  // its program had completed
    entry = KvMapEntry(p_.parked.park({segment.slot, image.position}, image.bytes), false);
    ++result_.saved_pages;
  }
}

void KvRecovery::drop_lost() {
  std::vector<SequenceId>& lost = result_.lost_sequences;
  for (const auto& segment : segments_) {
    std::uint32_t position = segment->map.first_group() * segment->layout.pages_per_group();
    for (const KvMapEntry& entry : segment->map.all_tokens()) {
      if (entry.is_nowhere()) {
        result_.lost_pages.push_back(p_.owners.id_of({segment->slot, position}));
        lost.insert(lost.end(), segment->users.begin(), segment->users.end());
      }
      ++position;
    }
  }
  std::ranges::sort(lost);
  lost.erase(std::unique(lost.begin(), lost.end()), lost.end());
  for (const SequenceId id : lost) drop_sequence(id);
  for (auto& segment : segments_) {
    if (!segment->users.empty()) continue;
    for (const KvMapEntry& entry : segment->map.all_tokens()) {
      if (!entry.is_nowhere() && p_.parked.holds(entry.ppa())) p_.placer.drop(entry.ppa());
    }
    p_.owners.remove(*segment);
    segment.reset();
  }
}

void KvRecovery::drop_sequence(SequenceId id) {
  for (const auto& layer : p_.table.at(id).layers) {
    if (!layer) continue;
    for (const KvTile& tile : layer->tiles) {
      for (const auto& segment : tile.segments) std::erase(segment->users, id);
    }
  }
  p_.table.remove(id);
}

void KvRecovery::charge_dram() {
  for_each_head([&](KvSequence& s, const HeadKey&, KvHeadState& head, KvTile& tile) {
    if (head.tokens == 0) return;
    const KvLayout& l = s.layout;
    const auto charge = [&](DramUse use, Bytes bytes) {
      p_.flash.dram.charge(use, bytes);
      s.dram[static_cast<std::size_t>(use)] += bytes;
    };
    charge(DramUse::value_mean, Bytes{sizeof(float)} * l.head_dim);
    charge(DramUse::group_buffer,
           l.row() * (2 * (head.tokens - std::uint64_t{tile.written_groups()} * l.group_tokens)));
    if (p_.flash.config.tail == TailPolicy::dram && l.component_major) {
      charge(DramUse::component_tail, l.row() * (head.tokens - l.window(tile.written_windows(l)).first));
    }
  });
  for (const auto& segment : segments_) {
    if (!segment || segment->map.pages() == 0) continue;
    const KvSequence& s = p_.table.at(segment->users.front());
    segment->table = p_.policy->table_bytes(s.info(), segment->map.pages());
    p_.flash.dram.charge(DramUse::map, segment->table);
  }
}

void KvRecovery::restore_blocks() {
  std::vector<PhysicalPageAddress> live;
  const auto take = [&](std::span<const KvMapEntry> pages, PageOwner owner) {
    for (const KvMapEntry& entry : pages) {
      if (!p_.parked.holds(entry.ppa())) {
        live.push_back(entry.ppa());
        p_.placer.take(entry.ppa(), owner);
      }
      ++owner.position;
    }
  };
  for (const auto& segment : segments_) {
    if (!segment) continue;
    take(segment->map.all_tokens(), {segment->slot, segment->map.first_group() * segment->layout.pages_per_group()});
    take(segment->map.all_embedding(), {segment->slot, PageOwner::kEmbedding | segment->map.first_position()});
  }
  for_each_head([&](KvSequence& s, const HeadKey&, KvHeadState& head, KvTile& tile) {
    if (!head.partial) return;
    const std::uint64_t first = s.layout.embedding_position(s.layout.window(head.partial->window));
    take(head.partial->pages, {tile.segments.back()->slot, PageOwner::kEmbedding | static_cast<std::uint32_t>(first)});
  });
  std::ranges::sort(live);
  result_.pages = live.size();
  result_.stale_pages -= live.size();
  const auto page_before = [&](BlockId block) {
    return std::ranges::lower_bound(live, p_.flash.blocks.first_page(block));
  };
  for (const BlockRecord& record : dump_.blocks) {
    if (!is_ours(record)) continue;
    p_.flash.blocks.restore(record, {page_before(record.block), page_before(BlockId{record.block.value + 1})});
    const BlockState state = p_.flash.blocks.state(record.block);
    if (state == BlockState::retired) p_.pages.add_failed(record.block);
    if (state == BlockState::full && p_.flash.blocks.valid_pages(record.block) == 0)
      result_.erases.push_back(p_.eraser.begin(record.block));
  }
  for (const PhysicalPageAddress ppa : dump_.lost)
    if (p_.flash.blocks.valid(ppa)) p_.losses.mark(ppa);
}

/// Embedding pages are copies of keys that are in token rows: what is missing is transposed again.
void KvRecovery::rebuild_windows() {
  for (const auto& segment : segments_) {
    if (!segment) continue;
    const HeadKey reader{segment->users.front(), segment->key.layer, segment->key.head};
    std::optional<std::uint32_t> transposed;
    std::span<const Half> images;
    for (std::uint32_t at = segment->map.first_position(); at < segment->map.end_position(); ++at) {
      KvMapEntry& entry = segment->map.embedding_at(at);
      if (!entry.is_nowhere()) continue;
      const std::uint32_t w = segment->layout.window_at(at);
      const KvWindow window = segment->layout.window(w);
      if (transposed != w) images = p_.windows.transpose(reader, segment->layout, window, window.end());
      transposed = w;
      const std::size_t size = segment->layout.page_words();
      const std::size_t ge = at - segment->layout.embedding_position(window);
      const auto image = images.subspan(ge * size, size);
      entry = KvMapEntry(p_.parked.park({segment->slot, PageOwner::kEmbedding | at}, std::as_bytes(image)), true);
      ++result_.rebuilt_pages;
    }
  }
}

/// Component-major tails are copies of token rows, too.
void KvRecovery::rebuild_tails() {
  if (p_.flash.config.tail != TailPolicy::dram) return;
  for_each_head([&](KvSequence& s, const HeadKey& key, KvHeadState& head, KvTile& tile) {
    const KvLayout& l = s.layout;
    if (!l.component_major) return;
    const KvWindow window = l.window(tile.written_windows(l));
    if (head.tokens <= window.first) return;
    FlushJob job;
    p_.flash_reader.read_back(l, tile, window, head.tokens, job);
    result_.reads.insert(result_.reads.end(), job.reads.begin(), job.reads.end());
    head.component_tail.resize(l.window_words(window.tokens));
    for (std::uint32_t token = window.first; token < head.tokens; ++token) {
      const Half* row = p_.reader.token_row(key, KvKind::key, TokenIndex{token});
      put_window(l, window, token - window.first, {row, l.row_words()}, head.component_tail);
    }
  });
}

void KvRecovery::tell_policy() {
  p_.owners.visit_pages([&](const KvPageId& page, PhysicalPageAddress ppa) {
    const MapSegment& segment = p_.owners.segment(p_.owners.of(ppa));
    p_.policy->page_restored(page, p_.table.at(segment.users.front()).info(), ppa);
  });
}

/// Garbage collection needs a block's worth of free pages. Where closing the open blocks has cost them, blocks are
/// emptied into DRAM: their pages wait there for the erase.
void KvRecovery::make_reserve() {
  const KvBlocks& blocks = p_.flash.blocks;
  const auto coming = [&] { return blocks.available_pages() + blocks.erasing_pages(); };
  while (coming() < p_.flash.geometry.pages_per_block) {
    const auto victim = p_.collector.most_garbage();
    if (!victim || !p_.flash.dram.fits(p_.flash.geometry.page_size * blocks.valid_pages(*victim))) return;
    for (auto page = blocks.next_valid(*victim, 0); page; page = blocks.next_valid(*victim, *page + 1)) {
      const PhysicalPageAddress from{blocks.first_page(*victim).value + *page};
      const PageOwner owner = p_.owners.of(from);
      const FoundEntry found = p_.owners.find(owner, from);
      const PlannedRead read = p_.flash_reader.plan(from, OpClass::gc);
      result_.reads.push_back(read.op);
      const auto image =
          p_.flash_reader.bytes(p_.owners.id_of(owner), p_.owners.segment(owner), from, found.partial_tokens);
      *found.entry = KvMapEntry(p_.parked.park(owner, image), false);
      if (read.lost) p_.losses.mark(found.entry->ppa());
      p_.placer.drop(from);
      ++result_.evacuated_pages;
    }
    result_.erases.push_back(p_.eraser.begin(*victim));
  }
}

}  // namespace

RecoveryResult recover_kv(KvParts& parts, const KvDump& dump, const std::function<void()>& restore_others) {
  return KvRecovery(parts, dump).run(restore_others);
}

}  // namespace csdsim::ftl
