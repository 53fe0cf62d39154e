// Chooses the full block that garbage collection takes next.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/address.h"
#include "base/prefetch.h"
#include "base/rng.h"
#include "ftl/core/zero_array.h"

namespace csdsim::ftl {

enum class GcPolicy : std::uint8_t {
  greedy,         ///< the fewest valid pages (Bux and Iliadis 2010)
  cost_benefit,   ///< the most age * (1 - u) / 2u, u being the share of valid pages (Kawaguchi et al., USENIX 1995)
  random_greedy,  ///< the fewest valid pages of d blocks drawn at random (Li et al., Van Houdt: SIGMETRICS 2013)
  fifo            ///< the one that was filled longest ago
};

struct VictimPolicy {
  GcPolicy kind = GcPolicy::greedy;
  std::uint32_t choices = 8;  ///< random_greedy: d, drawn without replacement
  std::uint64_t seed = 1;     ///< random_greedy
};

/// Full blocks in groups (a plane's blocks of one namespace), within a group in lists by valid pages. A block joins its
/// list at the end, so the head of a list is the block that has had so many valid pages for the longest time. Blocks
/// whose pages are all valid are never chosen, and only fifo lists them. Adding, removing and losing a page take
/// constant time; so does choosing, but for cost_benefit, which compares the heads of the lists.
class VictimIndex {
 public:
  VictimIndex(const VictimPolicy& policy, std::uint64_t blocks, std::uint32_t pages_per_block, std::uint32_t groups);

  /// A block was filled. `now` counts page programs; ages are differences of it.
  void add(std::uint32_t group, BlockId block, std::uint32_t valid, std::uint64_t now);
  /// `count` blocks from `first` on were filled, one after the other, and all their pages are valid.
  void add_valid(std::uint32_t group, BlockId first, std::uint32_t count);
  /// Pages of the block became invalid.
  void lose_pages(std::uint32_t group, BlockId block, std::uint32_t count, std::uint64_t now);
  void remove(std::uint32_t group, BlockId block);

  /// From now on blocks that make room for fewer pages are never chosen. At least 1, at most those of a block.
  void want_gain(std::uint32_t pages) { most_valid_ = pages_per_block_ - pages; }

  /// Empty if no block of the group makes room for enough pages. The block stays in the index.
  std::optional<BlockId> choose(std::uint32_t group, std::uint64_t now);

  /// Pages that the block with the fewest valid pages (fifo: the oldest) makes room for, if it has lost none for
  /// `quiet`; otherwise 0.
  std::uint32_t settled_gain(std::uint32_t group, std::uint64_t now, std::uint64_t quiet);

  /// Prefetches the memory that lose_pages() of the block changes.
  void prefetch(BlockId block) const { prefetch_line(&node(block)); }

 private:
  /// A block, or 0 for none. Nodes and lists are in memory that is zero at first, so that only what is written is
  /// committed.
  using Link = std::uint32_t;
  static constexpr Link kNone = 0;
  static constexpr Link link_to(BlockId block) { return block.value + 1; }
  static constexpr BlockId block_of(Link link) { return BlockId{link - 1}; }
  /// All zeros: a block whose pages are all valid.
  struct Node {
    std::uint64_t since;  ///< time of the last change of `lost`
    std::uint32_t lost;   ///< pages that are not valid
    Link previous;
    Link next;
    std::uint32_t member;  ///< random_greedy: its place among the members of its group
  };
  struct List {
    Link head;
    Link tail;
  };
  struct Group {
    std::uint32_t lowest = 0;  ///< lists below it are empty
    std::vector<BlockId> members;
  };

  bool fifo() const { return policy_.kind == GcPolicy::fifo; }
  Node& node(BlockId block) { return nodes_[block.value]; }
  const Node& node(BlockId block) const { return nodes_[block.value]; }
  std::uint32_t valid(BlockId block) const { return pages_per_block_ - node(block).lost; }
  bool listed(const Node& node) const { return fifo() || node.lost > 0; }
  /// By valid pages; fifo: one for all.
  List& list(std::uint32_t group, std::uint32_t valid) { return lists_[group * lists_of_group_ + valid]; }
  const List& list(std::uint32_t group, std::uint32_t valid) const { return lists_[group * lists_of_group_ + valid]; }
  List& list_of(std::uint32_t group, BlockId block) { return list(group, fifo() ? 0 : valid(block)); }
  void link(std::uint32_t group, BlockId block);
  void unlink(std::uint32_t group, BlockId block);
  std::optional<BlockId> fewest_valid(std::uint32_t group);
  std::optional<BlockId> best_value(std::uint32_t group, std::uint64_t now) const;
  std::optional<BlockId> best_of_sample(std::uint32_t group);
  std::optional<BlockId> oldest(std::uint32_t group) const;

  VictimPolicy policy_;
  std::uint32_t pages_per_block_;
  std::uint32_t most_valid_ = pages_per_block_ - 1;  ///< pages of a block that can be chosen
  std::size_t lists_of_group_;
  ZeroArray<Node> nodes_;
  ZeroArray<List> lists_;
  std::vector<Group> groups_;
  Rng rng_;
};

}  // namespace csdsim::ftl
