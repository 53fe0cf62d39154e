// Reads of single pages, with their errors, and the pages that are lost.
#pragma once

#include <cstdint>
#include <unordered_set>

#include "ftl/block/block_flash.h"

namespace csdsim::ftl {

class PageReader {
 public:
  explicit PageReader(BlockFlash& flash) : flash_(flash) {}

  /// The read of a page, with its retries. False: it cannot be corrected.
  bool plan(LogicalPage page, PhysicalPageAddress ppa, OpClass op_class, PageOp& read) {
    read = flash_.op(ppa, PageOpKind::read, op_class);
    return flash_.faults == nullptr || draw_errors(page, ppa, read);
  }

  /// Marks a page that was moved although it could not be corrected: later reads of it fail as well.
  void lose(LogicalPage page) { lost_.insert(page.value); }
  /// Removes the mark: the page has new content, or none.
  void forget(LogicalPage page) {
    if (!lost_.empty()) lost_.erase(page.value);
  }

  /// Data bytes that a read moves for `count` bytes from `first` on of a page: those of their codewords.
  std::uint32_t read_bytes(std::uint64_t first, std::uint64_t count) const {
    const std::uint64_t size = flash_.codeword.value;
    return static_cast<std::uint32_t>(((first + count - 1) / size - first / size + 1) * size);
  }
  /// The same for a write of these bytes, which reads the codewords that it does not replace.
  std::uint32_t kept_bytes(std::uint64_t first, std::uint64_t count) const {
    const std::uint64_t size = flash_.codeword.value, begin = (first + size - 1) / size, end = (first + count) / size;
    return static_cast<std::uint32_t>(flash_.page_size.value - (begin < end ? (end - begin) * size : 0));
  }

 private:
  bool draw_errors(LogicalPage page, PhysicalPageAddress ppa, PageOp& read);

  BlockFlash& flash_;
  std::unordered_set<std::uint64_t> lost_;  ///< logical pages
};

}  // namespace csdsim::ftl
