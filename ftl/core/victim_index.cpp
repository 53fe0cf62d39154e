#include "ftl/core/victim_index.h"

#include <algorithm>
#include <utility>

namespace csdsim::ftl {

VictimIndex::VictimIndex(const VictimPolicy& policy, std::uint64_t blocks, std::uint32_t pages_per_block,
                         const std::vector<bool>& group_used)
    : policy_(policy),
      pages_per_block_(pages_per_block),
      nodes_(blocks),
      groups_(group_used.size()),
      rng_(policy.seed, "gc_victims") {
  const std::size_t lists = policy.kind == GcPolicy::fifo ? 1 : std::size_t{pages_per_block} + 1;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    if (group_used[g]) groups_[g].lists.resize(lists);
  }
}

void VictimIndex::link(Group& group, std::uint32_t block) {
  Node& node = nodes_[block];
  const std::uint32_t at = list_of(node);
  List& list = group.lists[at];
  node.previous = list.tail;
  node.next = kNone;
  (list.tail == kNone ? list.head : nodes_[list.tail].next) = block;
  list.tail = block;
  group.lowest = std::min(group.lowest, at);
}

void VictimIndex::unlink(Group& group, std::uint32_t block) {
  const Node& node = nodes_[block];
  List& list = group.lists[list_of(node)];
  (node.previous == kNone ? list.head : nodes_[node.previous].next) = node.next;
  (node.next == kNone ? list.tail : nodes_[node.next].previous) = node.previous;
}

void VictimIndex::add(std::uint32_t g, BlockId block, std::uint32_t valid, std::uint64_t now) {
  Group& group = groups_[g];
  Node& node = nodes_[block.value];
  node.valid = valid;
  node.since = now;
  link(group, block.value);
  if (policy_.kind == GcPolicy::random_greedy) {
    node.member = static_cast<std::uint32_t>(group.members.size());
    group.members.push_back(block.value);
  }
}

void VictimIndex::lose_pages(std::uint32_t g, BlockId block, std::uint32_t count, std::uint64_t now) {
  Node& node = nodes_[block.value];
  if (policy_.kind == GcPolicy::fifo) {
    node.valid -= count;
    node.since = now;
    return;
  }
  unlink(groups_[g], block.value);
  node.valid -= count;
  node.since = now;
  link(groups_[g], block.value);
}

void VictimIndex::remove(std::uint32_t g, BlockId block) {
  Group& group = groups_[g];
  unlink(group, block.value);
  if (policy_.kind != GcPolicy::random_greedy) return;
  const std::uint32_t at = std::exchange(nodes_[block.value].member, kNone);
  group.members[at] = group.members.back();
  nodes_[group.members[at]].member = at;
  group.members.pop_back();
  if (at == group.members.size()) nodes_[block.value].member = kNone;
}

std::optional<BlockId> VictimIndex::choose(std::uint32_t g, std::uint64_t now) {
  Group& group = groups_[g];
  if (group.lists.empty()) return std::nullopt;
  switch (policy_.kind) {
    case GcPolicy::greedy:
      return fewest_valid(group);
    case GcPolicy::cost_benefit:
      return best_value(group, now);
    case GcPolicy::random_greedy:
      return best_of_sample(group);
    case GcPolicy::fifo:
      return oldest(group);
  }
  return std::nullopt;
}

std::uint32_t VictimIndex::settled_gain(std::uint32_t g, std::uint64_t now, std::uint64_t quiet) {
  Group& group = groups_[g];
  if (group.lists.empty()) return 0;
  const std::optional<BlockId> best = policy_.kind == GcPolicy::fifo ? oldest(group) : fewest_valid(group);
  if (!best || now - nodes_[best->value].since < quiet) return 0;
  return pages_per_block_ - nodes_[best->value].valid;
}

std::optional<BlockId> VictimIndex::fewest_valid(Group& group) {
  while (group.lowest < pages_per_block_ && group.lists[group.lowest].head == kNone) ++group.lowest;
  if (group.lowest > most_valid_) return std::nullopt;
  return BlockId{group.lists[group.lowest].head};
}

std::optional<BlockId> VictimIndex::best_value(const Group& group, std::uint64_t now) const {
  std::optional<BlockId> best;
  double most = -1;
  for (std::uint32_t valid = group.lowest; valid <= most_valid_; ++valid) {
    const std::uint32_t head = group.lists[valid].head;
    if (head == kNone) continue;
    if (valid == 0) return BlockId{head};  // costs nothing
    const double value =
        static_cast<double>(now - nodes_[head].since) * (pages_per_block_ - valid) / (2.0 * static_cast<double>(valid));
    if (value > most) {
      most = value;
      best = BlockId{head};
    }
  }
  return best;
}

std::optional<BlockId> VictimIndex::best_of_sample(Group& group) {
  // The first `d` of a partial shuffle are a sample without replacement.
  const auto size = static_cast<std::uint32_t>(group.members.size());
  const std::uint32_t sample = std::min(policy_.choices, size);
  std::uint32_t best = kNone;
  for (std::uint32_t i = 0; i < sample; ++i) {
    const auto j = i + static_cast<std::uint32_t>(rng_.below(size - i));
    std::swap(group.members[i], group.members[j]);
    nodes_[group.members[i]].member = i;
    nodes_[group.members[j]].member = j;
    if (best == kNone || nodes_[group.members[i]].valid < nodes_[best].valid) best = group.members[i];
  }
  // A sample of blocks that make too little room frees nothing: better the best there is.
  if (best == kNone || nodes_[best].valid > most_valid_) return fewest_valid(group);
  return BlockId{best};
}

std::optional<BlockId> VictimIndex::oldest(const Group& group) const {
  for (std::uint32_t block = group.lists[0].head; block != kNone; block = nodes_[block].next) {
    if (nodes_[block].valid <= most_valid_) return BlockId{block};
  }
  return std::nullopt;
}

}  // namespace csdsim::ftl
