// Page images in DRAM that wait for room in flash. They were in flight when power failed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "ftl/kv/kv_flash.h"
#include "ftl/kv/page_owners.h"

namespace csdsim::ftl {

/// Images that have no page yet. Their map entries point behind the end of the flash.
class ParkedPages {
 public:
  struct Page {
    PageOwner owner;
    std::vector<std::byte> image;
  };
  using Pages = std::map<std::uint64_t, Page>;  ///< by the address in the map entry

  explicit ParkedPages(KvFlash& flash) : flash_(flash), next_(flash.geometry.pages()) {}

  /// Returns the address for the map entry. The caller has made sure that DRAM has room for a page.
  PhysicalPageAddress park(PageOwner owner, std::span<const std::byte> image);
  bool holds(PhysicalPageAddress ppa) const { return ppa.value >= flash_.geometry.pages(); }
  const Page& at(PhysicalPageAddress ppa) const { return pages_.at(ppa.value); }
  /// Removes a page that no sequence uses.
  void drop(PhysicalPageAddress ppa);

  std::size_t size() const { return pages_.size(); }
  bool empty() const { return pages_.empty(); }
  Pages::iterator begin() { return pages_.begin(); }
  Pages::iterator end() { return pages_.end(); }
  /// Removes a page that a job programs; the job then holds its DRAM.
  Pages::iterator remove(Pages::iterator page) { return pages_.erase(page); }

 private:
  KvFlash& flash_;
  Pages pages_;
  std::uint64_t next_;
};

}  // namespace csdsim::ftl
