// The map of the block namespace in flash: translation pages, and the entries of them that are cached (DFTL).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ftl/block/page_placer.h"

namespace csdsim::ftl {

/// Translation page t is logical page exported + t: the page map is its global directory, and garbage collection moves
/// it like any other page. Nothing happens where the map is held whole.
class MapPages {
 public:
  MapPages(BlockFlash& flash, PageMap& map, MapEntries& entries, PageReader& reader, PagePlacer& placer)
      : flash_(flash), map_(map), entries_(entries), reader_(reader), placer_(placer) {}

  /// Brings the map entry of `page` into the cache: its translation page is read, and one that has to make room is
  /// written first. `change`: the entry is about to change.
  IoStatus access(LogicalPage page, bool change, PlanBuilder& plan);
  /// Plans the map operations that a request of the pages from `first` to `last` needs before its own. With `change` it
  /// fails if an entry cannot be written back; reads go on.
  IoStatus access(LogicalPage first, LogicalPage last, bool change, PlanBuilder& plan);
  /// Reads a translation page, and programs it with all its entries as they are.
  IoStatus write(std::uint64_t index, PlanBuilder& plan);
  /// Writes the translation pages of entries that were moved without being cached, each once.
  void write_stale(PlanBuilder& plan);
  /// After a power loss, once all entries are found: reads every translation page, and writes those that are missing or
  /// differ from the map.
  void restore(PlanBuilder& plan);

 private:
  LogicalPage page_of(std::uint64_t index) const { return LogicalPage{flash_.exported + index}; }
  /// What a translation page has to hold.
  std::vector<std::byte> image(std::uint64_t index) const;
  bool is_up_to_date(std::uint64_t index) const;
  void read(std::uint64_t index, PlanBuilder& plan);

  BlockFlash& flash_;
  PageMap& map_;
  MapEntries& entries_;
  PageReader& reader_;
  PagePlacer& placer_;
};

}  // namespace csdsim::ftl
