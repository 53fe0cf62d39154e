#include "ftl/core/victim_index.h"

#include <algorithm>
#include <utility>

namespace csdsim::ftl {

VictimIndex::VictimIndex(const VictimPolicy& policy, std::uint64_t blocks, std::uint32_t pages_per_block,
                         std::uint32_t groups)
    : policy_(policy),
      pages_per_block_(pages_per_block),
      lists_of_group_(policy.kind == GcPolicy::fifo ? 1 : std::size_t{pages_per_block} + 1),
      nodes_(blocks),
      lists_(groups * lists_of_group_),
      groups_(groups),
      rng_(policy.seed, "gc_victims") {}

void VictimIndex::link(std::uint32_t group, BlockId block) {
  Node& added = node(block);
  if (!listed(added)) return;
  List& list = list_of(group, block);
  added.previous = list.tail;
  added.next = kNone;
  (list.tail == kNone ? list.head : node(block_of(list.tail)).next) = link_to(block);
  list.tail = link_to(block);
  if (!fifo()) groups_[group].lowest = std::min(groups_[group].lowest, valid(block));
}

void VictimIndex::unlink(std::uint32_t group, BlockId block) {
  const Node& removed = node(block);
  if (!listed(removed)) return;
  List& list = list_of(group, block);
  (removed.previous == kNone ? list.head : node(block_of(removed.previous)).next) = removed.next;
  (removed.next == kNone ? list.tail : node(block_of(removed.next)).previous) = removed.previous;
}

void VictimIndex::add(std::uint32_t g, BlockId block, std::uint32_t valid, std::uint64_t now) {
  if (valid < pages_per_block_ || fifo()) {
    node(block).lost = pages_per_block_ - valid;
    node(block).since = now;
    link(g, block);
  }
  if (policy_.kind == GcPolicy::random_greedy) {
    node(block).member = static_cast<std::uint32_t>(groups_[g].members.size());
    groups_[g].members.push_back(block);
  }
}

void VictimIndex::add_valid(std::uint32_t g, BlockId first, std::uint32_t count) {
  if (!fifo() && policy_.kind != GcPolicy::random_greedy) return;  // they look only at blocks that have lost pages
  for (std::uint32_t i = 0; i < count; ++i) add(g, BlockId{first.value + i}, pages_per_block_, 0);
}

void VictimIndex::lose_pages(std::uint32_t g, BlockId block, std::uint32_t count, std::uint64_t now) {
  if (!fifo()) unlink(g, block);
  node(block).lost += count;
  node(block).since = now;
  if (!fifo()) link(g, block);
}

void VictimIndex::remove(std::uint32_t g, BlockId block) {
  unlink(g, block);
  node(block).lost = 0;
  if (policy_.kind != GcPolicy::random_greedy) return;
  std::vector<BlockId>& members = groups_[g].members;
  const std::uint32_t at = node(block).member;
  members[at] = members.back();
  node(members[at]).member = at;
  members.pop_back();
}

std::optional<BlockId> VictimIndex::choose(std::uint32_t g, std::uint64_t now) {
  switch (policy_.kind) {
    case GcPolicy::greedy:
      return fewest_valid(g);
    case GcPolicy::cost_benefit:
      return best_value(g, now);
    case GcPolicy::random_greedy:
      return best_of_sample(g);
    case GcPolicy::fifo:
      return oldest(g);
  }
  return std::nullopt;
}

std::uint32_t VictimIndex::settled_gain(std::uint32_t g, std::uint64_t now, std::uint64_t quiet) {
  const std::optional<BlockId> best = fifo() ? oldest(g) : fewest_valid(g);
  if (!best || now - node(*best).since < quiet) return 0;
  return node(*best).lost;
}

std::optional<BlockId> VictimIndex::fewest_valid(std::uint32_t g) {
  std::uint32_t& lowest = groups_[g].lowest;
  while (lowest < pages_per_block_ && list(g, lowest).head == kNone) ++lowest;
  if (lowest > most_valid_) return std::nullopt;
  return block_of(list(g, lowest).head);
}

std::optional<BlockId> VictimIndex::best_value(std::uint32_t g, std::uint64_t now) const {
  std::optional<BlockId> best;
  double most = -1;
  for (std::uint32_t valid = groups_[g].lowest; valid <= most_valid_; ++valid) {
    const Link head = list(g, valid).head;
    if (head == kNone) continue;
    const BlockId block = block_of(head);
    if (valid == 0) return block;  // costs nothing
    const double value =
        static_cast<double>(now - node(block).since) * (pages_per_block_ - valid) / (2.0 * static_cast<double>(valid));
    if (value > most) {
      most = value;
      best = block;
    }
  }
  return best;
}

std::optional<BlockId> VictimIndex::best_of_sample(std::uint32_t g) {
  // The first `d` of a partial shuffle are a sample without replacement.
  std::vector<BlockId>& members = groups_[g].members;
  const auto size = static_cast<std::uint32_t>(members.size());
  const std::uint32_t sample = std::min(policy_.choices, size);
  std::optional<BlockId> best;
  for (std::uint32_t i = 0; i < sample; ++i) {
    const auto j = i + static_cast<std::uint32_t>(rng_.below(size - i));
    std::swap(members[i], members[j]);
    node(members[i]).member = i;
    node(members[j]).member = j;
    if (!best || valid(members[i]) < valid(*best)) best = members[i];
  }
  // A sample of blocks that make too little room frees nothing: better the best there is.
  if (!best || valid(*best) > most_valid_) return fewest_valid(g);
  return best;
}

std::optional<BlockId> VictimIndex::oldest(std::uint32_t g) const {
  for (Link link = list(g, 0).head; link != kNone; link = node(block_of(link)).next) {
    if (valid(block_of(link)) <= most_valid_) return block_of(link);
  }
  return std::nullopt;
}

}  // namespace csdsim::ftl
