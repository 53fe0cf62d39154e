#include "host_runtime/core/serving/kv_block_tables.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace csdsim::host {

KvBlockTables::KvBlockTables(std::uint64_t blocks, std::uint32_t block_tokens, std::unique_ptr<EvictionPolicy> eviction)
    : slots_(blocks, std::move(eviction)), block_tokens_(block_tokens) {
  if (block_tokens == 0) throw UserError("a KV block of 0 tokens");
}

const KvBlockTables::Sequence& KvBlockTables::at(SequenceId sequence) const {
  const auto found = sequences_.find(sequence);
  if (found == sequences_.end()) throw InternalError(fmt::format("no block table of sequence {}", sequence.value));
  return found->second;
}

std::uint64_t KvBlockTables::tokens(SequenceId sequence) const {
  const Sequence& s = at(sequence);
  return s.ids.size() * block_tokens_ + s.tail.size();
}

std::optional<std::uint64_t> KvBlockTables::create(SequenceId sequence, std::span<const std::uint32_t> tokens,
                                                   std::uint64_t salt) {
  if (sequences_.contains(sequence))
    throw InternalError(fmt::format("sequence {} has a block table already", sequence.value));
  const std::vector<KvBlockId> ids = chained_ids(tokens, block_tokens_, salt);
  Sequence s;
  s.root = chain_root(salt);
  for (const KvBlockId id : ids) {
    const auto slot = slots_.find(id);
    if (!slot) break;
    slots_.hold(*slot);
    s.slots.push_back(*slot);
    s.ids.push_back(id);
  }
  const std::uint64_t found = s.slots.size() * block_tokens_;
  if (!slots_.has_room((tokens.size() + block_tokens_ - 1) / block_tokens_ - s.slots.size())) {
    for (const KvBlockSlot slot : s.slots) slots_.release(slot);
    return std::nullopt;
  }
  extend(s, tokens.subspan(found));
  sequences_.emplace(sequence, std::move(s));
  return found;
}

/// Precondition: there is room, and the last block is not shared if it is not full.
void KvBlockTables::extend(Sequence& s, std::span<const std::uint32_t> tokens) {
  while (!tokens.empty()) {
    if (s.tail.empty()) s.slots.push_back(slots_.take_unnamed().slot);
    const std::size_t count = std::min<std::size_t>(tokens.size(), block_tokens_ - s.tail.size());
    s.tail.insert(s.tail.end(), tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(count));
    tokens = tokens.subspan(count);
    if (s.tail.size() < block_tokens_) return;
    const KvBlockId id = chained_id(s.ids.empty() ? s.root : s.ids.back(), s.tail);
    s.ids.push_back(id);
    s.tail.clear();
    // Two sequences that compute the same block at a time have one each; the first one is found from then on.
    if (!slots_.find(id)) slots_.name(s.slots.back(), id);
  }
}

std::optional<KvBlockTables::Copies> KvBlockTables::append(SequenceId sequence, std::span<const std::uint32_t> tokens) {
  Sequence& s = const_cast<Sequence&>(at(sequence));
  if (tokens.empty()) return Copies{};
  const bool copies = !s.tail.empty() && slots_.holds(s.slots.back()) > 1;
  const std::uint64_t whole = (s.tail.size() + tokens.size() + block_tokens_ - 1) / block_tokens_;
  if (!slots_.has_room(whole - (s.tail.empty() ? 0 : 1) + (copies ? 1 : 0))) return std::nullopt;
  Copies made;
  if (copies) {
    const KvBlockSlot shared = s.slots.back();
    s.slots.back() = slots_.take_unnamed().slot;
    slots_.release(shared);
    made.push_back({shared, s.slots.back()});
  }
  extend(s, tokens);
  return made;
}

void KvBlockTables::fork(SequenceId parent, SequenceId child) {
  if (sequences_.contains(child))
    throw InternalError(fmt::format("sequence {} has a block table already", child.value));
  Sequence s = at(parent);
  hold(s.slots);
  sequences_.emplace(child, std::move(s));
}

void KvBlockTables::free(SequenceId sequence) {
  const Sequence s = at(sequence);
  sequences_.erase(sequence);
  // From the last to the first, so that a prefix outlives its tail.
  for (std::size_t i = s.slots.size(); i-- > 0;) {
    if (slots_.named(s.slots[i])) slots_.used(s.slots[i]);
    slots_.release(s.slots[i]);
  }
}

void KvBlockTables::hold(std::span<const KvBlockSlot> slots) {
  for (const KvBlockSlot slot : slots) slots_.hold(slot);
}

void KvBlockTables::release(std::span<const KvBlockSlot> slots) {
  for (const KvBlockSlot slot : slots) slots_.release(slot);
}

}  // namespace csdsim::host
