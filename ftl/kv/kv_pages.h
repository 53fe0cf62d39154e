// The flash as mapping policies see it: the pages that they may take, and the loads that they may ask for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/fixed_divisor.h"
#include "ftl/kv/append_points.h"
#include "ftl/kv/kv_flash.h"
#include "ftl/kv/kv_policy.h"

namespace csdsim::ftl {

class KvPages final : public PageAllocator {
 public:
  /// Errors name `policy`, which must outlive this.
  KvPages(KvFlash& flash, const KvMappingPolicy& policy);

  /// Pages that a policy takes until the next call of begin() are programmed on behalf of `op_class`.
  void begin(std::vector<PageOp>& programs, OpClass op_class) {
    programs_ = &programs;
    op_class_ = op_class;
    taken_ = 0;
    exhausted_ = false;
    last_ = PhysicalPageAddress::invalid();
  }
  /// Ends the call of the policy: it may take no more pages.
  void end() { programs_ = nullptr; }

  std::uint32_t taken() const { return taken_; }
  PhysicalPageAddress last() const { return last_; }
  bool exhausted() const { return exhausted_; }

  const FlashGeometry& geometry() const override { return flash_.geometry; }
  PhysicalPageAddress take(PlaneId wanted, AppendPoint point) override;
  void close(AppendPoint point) override;
  std::uint64_t free_pages(PlaneId plane) const override;
  double read_load(ChannelId channel) const override;
  std::uint64_t valid_pages(ChannelId channel) const override;

  AppendPoints& points() { return points_; }
  /// Blocks without a valid page that close() has left: they may be erased.
  std::vector<BlockId> take_emptied() { return std::exchange(emptied_, {}); }
  /// A retired block may hold valid pages.
  void add_failed(BlockId block) { failed_.push_back(block); }
  bool any_failed() const { return !failed_.empty(); }
  std::vector<BlockId> take_failed() { return std::exchange(failed_, {}); }

  /// Count the valid pages of each channel.
  void count_valid(PhysicalPageAddress ppa) { ++valid_pages_[channel_of(ppa)]; }
  void count_invalid(PhysicalPageAddress ppa) { --valid_pages_[channel_of(ppa)]; }
  /// Counts a read for attention; older reads weigh half as much after every 1,024 a channel.
  void note_read(PhysicalPageAddress ppa);

 private:
  PhysicalPageAddress next_page(PlaneId wanted, AppendPoint point);
  PhysicalPageAddress search(PlaneId wanted, AppendPoint point);
  std::size_t channel_of(PhysicalPageAddress ppa) const { return pages_per_channel_.quotient(ppa.value); }
  void check(PlaneId plane) const;
  void check(ChannelId channel) const;

  KvFlash& flash_;
  const KvMappingPolicy& policy_;
  FixedDivisor pages_per_channel_;
  AppendPoints points_;
  std::vector<PageOp>* programs_ = nullptr;
  OpClass op_class_ = OpClass::flush;
  std::uint32_t taken_ = 0;
  bool exhausted_ = false;
  PhysicalPageAddress last_ = PhysicalPageAddress::invalid();
  std::vector<BlockId> emptied_;
  std::vector<BlockId> failed_;
  std::vector<double> read_load_;  ///< by channel
  std::uint32_t reads_to_halving_ = 0;
  std::vector<std::uint64_t> valid_pages_;  ///< by channel
};

}  // namespace csdsim::ftl
