// The part of the KV namespace that is saved when power fails.
#include <algorithm>
#include <unordered_map>

#include "base/error.h"
#include "ftl/kv/kv_parts.h"

namespace csdsim::ftl {
namespace {

template <class T>
Bytes bytes_of(const std::vector<T>& v) {
  return Bytes{sizeof(T) * v.size()};
}

}  // namespace

KvDumpSize KvDump::size() const {
  KvDumpSize size;
  size.tables = bytes_of(segments);
  for (const Sequence& s : sequences) {
    size.tables += Bytes{sizeof s.id + sizeof s.segment + sizeof s.shape + sizeof s.layout};
    for (const auto& layer : s.layers) {
      if (!layer) continue;
      for (const Tile& tile : layer->tiles) size.tables += bytes_of(tile);
      for (const Head& head : layer->heads) {
        size.tables += Bytes{sizeof head.tokens} + bytes_of(head.partials);
        size.tails += bytes_of(head.key_tail) + bytes_of(head.value_tail);
        size.value_means += bytes_of(head.value_mean);
      }
    }
  }
  for (const Image& image : images) size.images += image.saved();
  size.blocks = bytes_of(blocks) + bytes_of(lost);
  return size;
}

KvDump save_kv(const KvParts& parts) {
  const KvFlash& flash = parts.flash;
  if (!flash.store.carried()) {
    throw UserError("a power loss cannot be recovered from in timing mode: its flash keeps no out-of-band metadata");
  }
  // A page that was being moved has its old copy still.
  const std::unordered_set<std::uint64_t> copied = parts.jobs.being_copied();
  KvDump dump;
  dump.policy = parts.policy->name();
  dump.tail = flash.config.tail;
  dump.next_segment = parts.table.segment_numbers();
  dump.blocks = flash.blocks.records();
  dump.lost = parts.losses.lost_in_flash();
  std::unordered_map<const MapSegment*, std::uint32_t> numbers;
  const auto save_segment = [&](const MapSegment& segment) {
    const auto number = static_cast<std::uint32_t>(dump.segments.size());
    const auto [at, is_new] = numbers.try_emplace(&segment, number);
    if (!is_new) return at->second;
    dump.segments.push_back({segment.key, segment.number, segment.map.first_group(), segment.map.end_group(),
                             segment.map.first_position(), segment.map.end_position()});
    std::uint32_t position = segment.map.first_group() * segment.layout.pages_per_group();
    for (const KvMapEntry& e : segment.map.all_tokens()) {
      if (e.in_dram() && !copied.contains(e.ppa().value)) {
        const auto image = parts.parked.holds(e.ppa()) ? std::span<const std::byte>(parts.parked.at(e.ppa()).image)
                                                       : flash.store.read(e.ppa());
        dump.images.push_back({number, position, {image.begin(), image.end()}});
      }
      ++position;
    }
    return number;
  };
  for (const auto& [id, s] : parts.table) {
    if (s.closing) continue;
    KvDump::Sequence& saved = dump.sequences.emplace_back(KvDump::Sequence{id, s.segment, s.shape, s.layout, {}});
    for (const auto& layer : s.layers) {
      auto& to = saved.layers.emplace_back();
      if (!layer) continue;
      to.emplace();
      for (const KvHeadState& head : layer->heads) {
        KvDump::Head& copy = to->heads.emplace_back();
        copy.tokens = head.tokens;
        for (const PartialWindow* const partial : {head.partial.get(), head.coming_partial.get()}) {
          if (partial != nullptr) copy.partials.push_back({partial->window, partial->end});
        }
        copy.key_tail = head.key_tail;
        copy.value_tail = head.value_tail;
        copy.value_mean = head.value_mean;
      }
      for (const KvTile& tile : layer->tiles) {
        KvDump::Tile& numbers_of_tile = to->tiles.emplace_back();
        for (const auto& segment : tile.segments) numbers_of_tile.push_back(save_segment(*segment));
      }
    }
  }
  return dump;
}

}  // namespace csdsim::ftl
