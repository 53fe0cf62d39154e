// Which full block garbage collection takes next.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "base/address.h"
#include "base/rng.h"

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
/// whose pages are all valid are never chosen. Adding, removing and losing a page take constant time; so does choosing,
/// but for cost_benefit, which compares the heads of the lists.
class VictimIndex {
 public:
  /// `group_used`: groups that will hold blocks; the others cost no memory.
  VictimIndex(const VictimPolicy& policy, std::uint64_t blocks, std::uint32_t pages_per_block,
              const std::vector<bool>& group_used);

  /// A block was filled. `now` counts page programs; ages are differences of it.
  void add(std::uint32_t group, BlockId block, std::uint32_t valid, std::uint64_t now);
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

 private:
  static constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();
  struct Node {
    std::uint64_t since = 0;  ///< time of the last change of `valid`
    std::uint32_t valid = 0;
    std::uint32_t previous = kNone;
    std::uint32_t next = kNone;
    std::uint32_t member = kNone;  ///< random_greedy: its place among the members of its group
  };
  struct List {
    std::uint32_t head = kNone;
    std::uint32_t tail = kNone;
  };
  struct Group {
    std::vector<List> lists;   ///< by valid pages; fifo: one for all
    std::uint32_t lowest = 0;  ///< lists below it are empty
    std::vector<std::uint32_t> members;
  };

  std::uint32_t list_of(const Node& node) const { return policy_.kind == GcPolicy::fifo ? 0 : node.valid; }
  void link(Group& group, std::uint32_t block);
  void unlink(Group& group, std::uint32_t block);
  std::optional<BlockId> fewest_valid(Group& group);
  std::optional<BlockId> best_value(const Group& group, std::uint64_t now) const;
  std::optional<BlockId> best_of_sample(Group& group);
  std::optional<BlockId> oldest(const Group& group) const;

  VictimPolicy policy_;
  std::uint32_t pages_per_block_;
  std::uint32_t most_valid_ = pages_per_block_ - 1;  ///< pages of a block that can be chosen
  std::vector<Node> nodes_;
  std::vector<Group> groups_;
  Rng rng_;
};

}  // namespace csdsim::ftl
