// Pages that cannot be read back: what was in them, and tokens that attention does without.
#include <algorithm>
#include <utility>

#include "ftl/kv/kv_ftl.h"
#include "ftl/kv/kv_sequence.h"

namespace csdsim::ftl {

KvLoss KvFtl::loss_of(SequenceId reader, PhysicalPageAddress ppa) const {
  const PageOwner owner = is_parked(ppa) ? parked_.at(ppa.value).owner : owners_.get(ppa.value);
  const KvLayout& l = slots_[owner.slot]->layout;
  KvLoss loss{page_id(owner)};
  if (loss.page.kind == PageKind::embedding) {
    const KvWindow window = l.window(loss.page.window);
    loss.first_token = window.first;
    loss.tokens = std::min(window.end(), tokens({reader, loss.page.key.layer, loss.page.key.head})) - window.first;
  } else {
    loss.heads = std::min(l.page_heads, shape(reader).kv_heads - loss.page.key.head.value);
    loss.first_token = loss.page.group * l.group_tokens;
    loss.tokens = l.group_tokens;
  }
  loss.page.key.sequence = reader;
  return loss;
}

void KvFtl::drop(const KvLoss& loss) {
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
    stats_.rows_dropped += whole.end - whole.first - known;
    spans.insert(std::ranges::lower_bound(spans, whole.first, {}, &TokenSpan::first), whole);
  }
}

std::span<const TokenSpan> KvFtl::dropped(const HeadKey& key) const {
  const auto found = dropped_.find(key);
  return found == dropped_.end() ? std::span<const TokenSpan>() : found->second;
}

/// True if all tokens [first, end), which are in `page`, are dropped: it is not read, and whoever wants it is told so.
bool KvFtl::report_dropped(const KvPageId& page, std::uint32_t first, std::uint32_t end) {
  if (dropped_.empty()) return false;
  const auto within = [&](const TokenSpan& span) { return span.first <= first && end <= span.end; };
  if (std::ranges::none_of(dropped(page.key), within)) return false;
  losses_.push_back({.page = page, .first_token = first, .tokens = end - first});
  return true;
}

void KvFtl::forget_dropped(SequenceId id) {
  std::erase_if(dropped_, [&](const auto& entry) { return entry.first.sequence == id; });
}

}  // namespace csdsim::ftl
