#include "ftl/kv/fault_injection.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace csdsim::ftl {

namespace {

KvMapEntry& entry(SequenceTable& table, const KvPageId& page) {
  KvSequence* s = table.check(page.key) == KvStatus::ok ? table.find(page.key.sequence) : nullptr;
  KvLayer* layer = s != nullptr ? s->layers[page.key.layer.value].get() : nullptr;
  if (layer != nullptr) {
    const KvLayout& l = s->layout;
    KvTile& t = layer->tiles[page.key.head.value / l.page_heads];
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

}  // namespace

void swap_mapping(SequenceTable& table, const KvPageId& a, const KvPageId& b) {
  KvMapEntry& first = entry(table, a);
  KvMapEntry& second = entry(table, b);
  const PhysicalPageAddress was = first.ppa();
  first.redirect(second.ppa());
  second.redirect(was);
}

void forget_tail(SequenceTable& table, const HeadKey& key) {
  KvSequence* s = table.check(key) == KvStatus::ok ? table.find(key.sequence) : nullptr;
  KvLayer* layer = s != nullptr ? s->layers[key.layer.value].get() : nullptr;
  if (layer == nullptr || layer->heads[key.head.value].key_tail.empty()) {
    throw UserError(fmt::format("fault injection: {} has no tail", to_string(KvPageId{key})));
  }
  KvHeadState& head = layer->heads[key.head.value];
  std::ranges::fill(head.key_tail, Half{});
  std::ranges::fill(head.value_tail, Half{});
}

}  // namespace csdsim::ftl
