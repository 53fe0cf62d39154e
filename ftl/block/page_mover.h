// Moving the valid pages of a block, and erasing it.
#pragma once

#include <cstdint>
#include <vector>

#include "ftl/block/map_entries.h"
#include "ftl/block/page_appender.h"
#include "ftl/block/page_reader.h"

namespace csdsim::ftl {

/// Functions append their operations to `phases`, unless that is null.
class PageMover {
 public:
  PageMover(BlockFlash& flash, PageMap& map, MapEntries& entries, PageAppender& appender, PageReader& reader)
      : flash_(flash), map_(map), entries_(entries), appender_(appender), reader_(reader) {}

  /// The stream that the pages of a block move to. Translation pages have one of their own.
  Stream stream_for(BlockId victim) const;
  /// Moves up to `limit` valid pages of `from` within its plane, in two phases, and adds their number to `moved`.
  /// False: there was no room for a page.
  bool move_pages(BlockId from, Stream to, std::uint32_t limit, std::vector<Phase>* phases, std::uint64_t& moved);
  /// The same for all of its pages.
  bool move_all(BlockId from, Stream to, std::vector<Phase>* phases, std::uint64_t& moved) {
    return move_pages(from, to, flash_.geometry.pages_per_block, phases, moved);
  }
  void erase(BlockId block, std::vector<Phase>* phases);

 private:
  BlockFlash& flash_;
  PageMap& map_;
  MapEntries& entries_;
  PageAppender& appender_;
  PageReader& reader_;
};

}  // namespace csdsim::ftl
