// The page allocator that mapping policies see; not a public header.
#pragma once

#include <cstdint>
#include <vector>

#include "ftl/kv/kv_ftl.h"

namespace csdsim::ftl {

class KvFtl::Pages final : public PageAllocator {
 public:
  explicit Pages(KvFtl& ftl) : ftl_(ftl) {}

  /// Pages that a policy takes until the next call of begin() are programmed on behalf of `op_class`.
  void begin(std::vector<PageOp>& programs, OpClass op_class) {
    programs_ = &programs;
    op_class_ = op_class;
    taken_ = 0;
    exhausted_ = false;
    last_ = PhysicalPageAddress::invalid();
  }
  /// From now on no page may be taken.
  void end() { programs_ = nullptr; }

  std::uint32_t taken() const { return taken_; }
  PhysicalPageAddress last() const { return last_; }
  bool exhausted() const { return exhausted_; }

  const FlashGeometry& geometry() const override { return ftl_.geometry_; }
  PhysicalPageAddress take(PlaneId wanted, AppendPoint point) override;
  void close(AppendPoint point) override;
  std::uint64_t free_pages(PlaneId plane) const override;
  double read_load(ChannelId channel) const override;
  std::uint64_t valid_pages(ChannelId channel) const override;

  /// Blocks without a valid page that close() has left: they may be erased.
  std::vector<BlockId> take_emptied() { return std::exchange(emptied_, {}); }

 private:
  void check(PlaneId plane) const;
  void check(ChannelId channel) const;

  KvFtl& ftl_;
  std::vector<PageOp>* programs_ = nullptr;
  OpClass op_class_ = OpClass::flush;
  std::uint32_t taken_ = 0;
  bool exhausted_ = false;
  PhysicalPageAddress last_ = PhysicalPageAddress::invalid();
  std::vector<BlockId> emptied_;
};

}  // namespace csdsim::ftl
