// Checks the page operations that the FTLs emit as a NAND array would.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "contracts/page_op.h"

namespace csdsim::ftl::test {

/// Executes page operations and throws where real flash would be misused: a read of an erased page, a program of a
/// programmed one or (with `in_order`) out of page order within its block.
class FlashModel {
 public:
  explicit FlashModel(const FlashGeometry& geometry) : geometry_(geometry), programmed_(geometry.pages(), false) {}

  void run(const PageOp& op, bool in_order) {
    const std::uint64_t ppa = op.ppa.value;
    if (!geometry_.contains(op.ppa)) fail(ppa, "does not exist");
    switch (op.kind) {
      case PageOpKind::read:
        if (!programmed_[ppa]) fail(ppa, "is read while erased");
        if (op.channel_bytes != geometry_.page_size.value) fail(ppa, "is not read whole");
        ++reads;
        break;
      case PageOpKind::program:
        if (programmed_[ppa]) fail(ppa, "is programmed twice");
        if (in_order && geometry_.page_in_block(op.ppa) > 0 && !programmed_[ppa - 1]) fail(ppa, "is out of order");
        programmed_[ppa] = true;
        ++programs;
        break;
      case PageOpKind::erase:
        if (geometry_.page_in_block(op.ppa) != 0) fail(ppa, "is not the first page of a block to erase");
        for (std::uint32_t i = 0; i < geometry_.pages_per_block; ++i) programmed_[ppa + i] = false;
        ++erases;
        break;
    }
  }

  bool programmed(PhysicalPageAddress ppa) const { return programmed_[ppa.value]; }

  std::uint64_t reads = 0;
  std::uint64_t programs = 0;
  std::uint64_t erases = 0;

 private:
  [[noreturn]] static void fail(std::uint64_t ppa, const char* what) {
    throw std::runtime_error("page " + std::to_string(ppa) + " " + what);
  }
  FlashGeometry geometry_;
  std::vector<bool> programmed_;
};

}  // namespace csdsim::ftl::test
