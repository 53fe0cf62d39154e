#include "ftl/kv/parked_pages.h"

namespace csdsim::ftl {

PhysicalPageAddress ParkedPages::park(PageOwner owner, std::span<const std::byte> image) {
  flash_.dram.charge(DramUse::flush_pending, flash_.geometry.page_size);
  pages_.emplace(next_, Page{owner, {image.begin(), image.end()}});
  return {next_++};
}

void ParkedPages::drop(PhysicalPageAddress ppa) {
  pages_.erase(ppa.value);
  flash_.dram.release(DramUse::flush_pending, flash_.geometry.page_size);
}

}  // namespace csdsim::ftl
