// S3-FIFO (Yang, Zhang, Qiu, Yue, Rashmi, "FIFO queues are all you need for cache eviction", SOSP 2023, algorithm 1).
#pragma once

#include <limits>
#include <vector>

#include "base/lru_list.h"
#include "base/settings_reader.h"
#include "host_runtime/core/serving/eviction/eviction_policy.h"
#include "host_runtime/core/serving/ghost_list.h"

namespace csdsim::host {

/// New blocks enter a small queue of a tenth of the capacity. Those used twice while they pass it move on to the main
/// queue, the others leave, and their ids are remembered in a queue as long as the main one. A block that is remembered
/// enters the main queue, where each use, of at most three, saves a block from leaving once.
///
/// One block leaves at a time. Held blocks are passed over: they keep their places.
class S3FifoEviction final : public EvictionPolicy {
 public:
  static constexpr std::string_view kName = "s3fifo";
  static constexpr std::string_view kSummary =
      "A small queue lets through to the main queue what is used while it passes; the rest leaves soon.";

  explicit S3FifoEviction(const CachePolicyContext& context)
      : capacity_(context.capacity.value_or(std::numeric_limits<std::uint64_t>::max() / 16)) {
    SettingsReader(kName, context).finish();
  }

  std::string_view name() const override { return kName; }
  void stored(KvBlockSlot slot, KvBlockId id) override;
  void used(KvBlockSlot slot) override;
  void removed(KvBlockSlot slot) override;
  std::optional<KvBlockSlot> evict(KvBlockId incoming, std::span<const std::uint32_t> holds) override;

 private:
  struct Block {
    KvBlockId id;
    std::uint8_t uses = 0;
    bool in_main = false;
  };

  bool small_is_full() const { return small_.size() * 10 >= capacity_; }
  std::optional<KvBlockSlot> evict_small(std::span<const std::uint32_t> holds);
  std::optional<KvBlockSlot> evict_main(std::span<const std::uint32_t> holds);
  void remember(KvBlockId id);

  std::uint64_t capacity_;
  LruLinks links_;
  LruList small_, main_;
  GhostList ghosts_;
  std::vector<Block> blocks_;
};

}  // namespace csdsim::host
