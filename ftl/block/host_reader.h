// Reads of the host.
#pragma once

#include <cstddef>
#include <span>

#include "base/fixed_divisor.h"
#include "ftl/block/page_reader.h"
#include "ftl/block/saved_image.h"

namespace csdsim::ftl {

class HostReader {
 public:
  HostReader(BlockFlash& flash, const PageMap& map, PageReader& reader, const UnwrittenImages& unwritten)
      : flash_(flash), map_(map), reader_(reader), unwritten_(unwritten), by_page_(flash.page_size.value) {}

  /// Appends the page reads that it takes to `ops`. Within the namespace.
  IoStatus read(Bytes offset, Bytes length, std::span<std::byte> out, Phase& ops);

 private:
  IoStatus plan_page(LogicalPage page, std::uint64_t first, std::uint64_t count, Phase& ops);
  IoStatus plan_runs(LogicalPage page, std::uint64_t in_page, Bytes length, Phase& ops);
  IoStatus plan_unmapped(LogicalPage page);
  IoStatus read_pages(Bytes offset, Bytes length, std::span<std::byte> out, Phase& ops);

  BlockFlash& flash_;
  const PageMap& map_;
  PageReader& reader_;
  const UnwrittenImages& unwritten_;
  FixedDivisor by_page_;
};

}  // namespace csdsim::ftl
