// The open blocks of append points: which block of a plane the pages of a point go to next.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "base/address.h"
#include "ftl/kv/kv_blocks.h"
#include "ftl/kv/kv_policy.h"

namespace csdsim::ftl {

/// The shared point and that of moved pages are the streams kv and kv_gc (or kv_cold) of the block manager; points of a
/// policy's own are kept here. Call forget() when an open block of the KV namespace is closed, retired or collected.
class AppendPoints {
 public:
  explicit AppendPoints(KvBlocks& blocks) : blocks_(blocks) {}

  /// The next page of `point` in `plane`; invalid() if the plane has none for it.
  PhysicalPageAddress take(PlaneId plane, AppendPoint point);
  /// A page of any point's open block: the last resort where no plane has a block to open. invalid() if there is none.
  PhysicalPageAddress take_from_any();
  /// Closes the point's open blocks and returns them.
  std::vector<BlockId> close(AppendPoint point);
  /// With `worn`, moved pages go to the most worn free blocks, apart from other moved pages (static wear levelling).
  void move_to_worn_blocks(bool worn) { moved_ = worn ? Stream::kv_cold : Stream::kv_gc; }
  /// Removes a block that is no longer open.
  void forget(BlockId block);

  /// Pages that `plane` has left in open blocks.
  std::uint64_t open_pages(PlaneId plane) const;
  /// Open blocks of a policy's own points, by point, then plane.
  std::vector<BlockId> own_blocks() const;

 private:
  struct Key {
    AppendPoint point;
    PlaneId plane;
    auto operator<=>(const Key&) const = default;
  };
  KvBlocks& blocks_;
  Stream moved_ = Stream::kv_gc;  ///< where moved pages go
  std::map<Key, BlockId> open_;
};

}  // namespace csdsim::ftl
