// Drives that were used before the simulation starts.
#pragma once

#include <cstdint>
#include <optional>

#include "ftl/block/host_writer.h"
#include "ftl/block/map_pages.h"

namespace csdsim::ftl {

class BlockFiller {
 public:
  BlockFiller(BlockFlash& flash, PageMap& map, MapEntries& entries, BlockAges& ages, PagePlacer& placer,
              MapPages& map_pages, HostWriter& writer)
      : flash_(flash),
        map_(map),
        entries_(entries),
        ages_(ages),
        placer_(placer),
        map_pages_(map_pages),
        writer_(writer) {}

  /// BlockFtl::precondition
  void precondition(Bytes working_set, std::optional<std::uint64_t> seed);
  /// BlockFtl::age
  void age(double overwrites, std::uint64_t seed, const AgeProgress& progress);

 private:
  void fill_translation_pages(std::uint64_t pages);
  void fill_page_by_page(std::uint64_t pages, std::optional<std::uint64_t> seed);

  BlockFlash& flash_;
  PageMap& map_;
  MapEntries& entries_;
  BlockAges& ages_;
  PagePlacer& placer_;
  MapPages& map_pages_;
  HostWriter& writer_;
  std::uint64_t preconditioned_ = 0;  ///< pages
};

}  // namespace csdsim::ftl
