#include "ftl/kv/kv_losses.h"

#include <algorithm>

namespace csdsim::ftl {

bool KvLosses::would_lose(PhysicalPageAddress ppa) const {
  if (lost(ppa)) return true;
  if (flash_.faults == nullptr || parked_.holds(ppa)) return false;
  const BlockId block = flash_.blocks.block_of(ppa);
  return flash_.faults->read(ppa, flash_.blocks.erase_count(block), flash_.blocks.reads(block)).uncorrectable;
}

std::vector<PhysicalPageAddress> KvLosses::lost_in_flash() const {
  std::vector<PhysicalPageAddress> pages;
  for (const std::uint64_t ppa : lost_)
    if (!parked_.holds({ppa})) pages.push_back({ppa});
  std::ranges::sort(pages);
  return pages;
}

void KvLosses::report(SequenceId reader, PhysicalPageAddress ppa) { reported_.push_back(loss_of(reader, ppa)); }

KvLoss KvLosses::loss_of(SequenceId reader, PhysicalPageAddress ppa) const {
  const PageOwner owner = parked_.holds(ppa) ? parked_.at(ppa).owner : owners_.of(ppa);
  const KvLayout& l = owners_.segment(owner).layout;
  KvLoss loss{owners_.id_of(owner)};
  if (loss.page.kind == PageKind::embedding) {
    const KvWindow window = l.window(loss.page.window);
    loss.first_token = window.first;
    loss.tokens =
        std::min(window.end(), table_.tokens({reader, loss.page.key.layer, loss.page.key.head})) - window.first;
  } else {
    loss.heads = std::min(l.page_heads, table_.at(reader).shape.kv_heads - loss.page.key.head.value);
    loss.first_token = loss.page.group * l.group_tokens;
    loss.tokens = l.group_tokens;
  }
  loss.page.key.sequence = reader;
  return loss;
}

bool KvLosses::report_dropped(const KvPageId& page, std::uint32_t first, std::uint32_t end) {
  if (dropped_.empty()) return false;
  const auto within = [&](const TokenSpan& span) { return span.first <= first && end <= span.end; };
  if (std::ranges::none_of(dropped(page.key), within)) return false;
  reported_.push_back({.page = page, .first_token = first, .tokens = end - first});
  return true;
}

void KvLosses::drop(const KvLoss& loss) {
  for (std::uint32_t h = 0; h < loss.heads; ++h) {
    HeadKey key = loss.page.key;
    key.head.value += h;
    std::vector<TokenSpan>& spans = dropped_[key];
    TokenSpan whole{loss.first_token, loss.first_token + loss.tokens};
    std::uint32_t known = 0;
    std::erase_if(spans, [&](const TokenSpan& span) {
      if (span.end < whole.first || span.first > whole.end) return false;
      whole = {std::min(whole.first, span.first), std::max(whole.end, span.end)};
      known += span.end - span.first;
      return true;
    });
    flash_.stats.rows_dropped += whole.end - whole.first - known;
    spans.insert(std::ranges::lower_bound(spans, whole.first, {}, &TokenSpan::first), whole);
  }
}

std::span<const TokenSpan> KvLosses::dropped(const HeadKey& key) const {
  const auto found = dropped_.find(key);
  return found == dropped_.end() ? std::span<const TokenSpan>() : found->second;
}

void KvLosses::inherit(SequenceId parent, SequenceId child) {
  std::map<HeadKey, std::vector<TokenSpan>> of_child;
  for (const auto& [key, spans] : dropped_)
    if (key.sequence == parent) of_child.emplace(HeadKey{child, key.layer, key.head}, spans);
  dropped_.merge(of_child);
}

void KvLosses::forget(SequenceId id) {
  std::erase_if(dropped_, [&](const auto& entry) { return entry.first.sequence == id; });
}

}  // namespace csdsim::ftl
