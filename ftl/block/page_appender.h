// Taking the next page of a block to program it, and the blocks in which that failed.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "ftl/block/block_ages.h"

namespace csdsim::ftl {

class PageAppender {
 public:
  PageAppender(BlockFlash& flash, BlockAges& ages) : flash_(flash), ages_(ages) {}

  /// The next page of `stream` in `plane`, and its program, which is appended to `ops` unless that is null. The program
  /// may fail; empty if there is no page.
  std::optional<PhysicalPageAddress> take(PlaneId plane, Stream stream, OpClass op_class, Phase* ops);
  /// Asks whether the program of a page that was just taken fails; if so the page is lost and its block retired.
  bool failed(PhysicalPageAddress ppa);
  /// The next page whose program succeeds. Failed programs before it are in the plan, too; the plane runs them one
  /// after the other.
  std::optional<PhysicalPageAddress> program(PlaneId plane, Stream stream, OpClass op_class, Phase* ops) {
    while (const auto ppa = take(plane, stream, op_class, ops))
      if (!failed(*ppa)) return ppa;
    return std::nullopt;
  }

  bool any_failed() const { return !failed_.empty(); }
  /// Removes and returns the retired blocks that may hold valid pages.
  std::vector<BlockId> take_failed() { return std::exchange(failed_, {}); }
  /// Gives back a block from take_failed() that still holds valid pages.
  void put_back(BlockId block) { failed_.push_back(block); }

 private:
  BlockFlash& flash_;
  BlockAges& ages_;
  std::vector<BlockId> failed_;
};

}  // namespace csdsim::ftl
