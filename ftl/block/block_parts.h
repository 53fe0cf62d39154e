// The objects that the block namespace is made of, each over those before it.
#pragma once

#include "ftl/block/block_filler.h"
#include "ftl/block/block_refresher.h"
#include "ftl/block/host_reader.h"
#include "ftl/block/saved_image.h"

namespace csdsim::ftl {

struct BlockParts {
  BlockParts(const BlockFtlConfig& config, BlockManager& blocks, BackingStore& store, MediaFaults* faults,
             BlockFtlStats& stats)
      : flash(config, blocks, store, faults, stats),
        map(flash.geometry, config.stripe_order, flash.exported + translation_pages(flash), config.units_per_program) {}

  BlockFlash flash;
  PageMap map;  ///< map of the host's pages and, behind them, of translation pages
  MapEntries entries{flash};
  BlockAges ages{flash};
  PageReader page_reader{flash};
  PageAppender appender{flash, ages};
  LineFiller lines{flash, appender};
  TrimLog trims{flash.store};
  PageMover mover{flash, map, entries, appender, lines, page_reader, trims};
  Victims victims{flash.blocks};
  WearLeveller leveller{flash, victims, mover};
  BlockCollector collector{flash, victims, mover, leveller};
  BlockRefresher refresher{flash, ages, victims, mover, collector};
  FailedBlocks failed{flash, appender, mover, collector};
  PagePlacer placer{flash, appender, lines, collector};
  MapPages map_pages{flash, map, entries, page_reader, placer};
  UnwrittenImages unwritten;  ///< a page that is here is not mapped
  HostReader reader{flash, map, page_reader, unwritten};
  HostWriter writer{flash, map, page_reader, appender, lines, placer, failed, trims};
  BlockFiller filler{flash, map, entries, ages, placer, map_pages, writer};
  PlaneLoad* load = nullptr;  ///< null: dynamic allocation takes the planes in turn
};

}  // namespace csdsim::ftl
