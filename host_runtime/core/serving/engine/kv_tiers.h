// The tiers behind the GPUs: host memory, and drives behind it. Several engines share them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <unordered_set>
#include <vector>

#include "base/param_codec.h"
#include "host_runtime/core/serving/engine/back_pressure.h"
#include "host_runtime/core/serving/engine/kv_contents.h"
#include "host_runtime/core/serving/engine/kv_files.h"
#include "host_runtime/core/serving/engine/kv_storage.h"
#include "host_runtime/core/serving/engine/kv_transport.h"
#include "host_runtime/core/serving/engine/staging.h"
#include "host_runtime/core/serving/engine/store_policy.h"
#include "host_runtime/core/serving/kv_block_manager.h"

namespace csdsim::host {

/// How blocks of drives reach the GPU: through host memory, or directly (GPUDirect Storage).
enum class DrivePath : std::uint8_t { staged, direct };

struct KvTiersConfig {
  Bytes block_bytes;           ///< K and V of a tier block, in all layers
  std::uint32_t parts = 1;     ///< a block is loaded in so many parts, a part of each block after the other
  Bytes part_alignment{4096};  ///< logical block of the drives
  StoreTraits store;
  DrivePath path = DrivePath::staged;
  std::uint32_t drives = 0;         ///< blocks take them in turn
  Bytes staging;                    ///< in host memory, for blocks on their way from and to drives
  bool fills_staging_once = false;  ///< a request loads no more from drives than the buffer holds
  std::optional<BackPressure::Config> back_pressure;
  std::optional<KvFiles::Config> files = {};  ///< a file per block; none: blocks lie in a range of each drive

  /// A part, and a block, in whole logical blocks of the drives.
  Bytes whole_part() const {
    const std::uint64_t bytes = (block_bytes.value + parts - 1) / parts, unit = part_alignment.value;
    return {(bytes + unit - 1) / unit * unit};
  }
  Bytes whole_block() const { return whole_part() * parts; }
};

/// What one tier did. Counts are in tier blocks.
struct TierUse {
  std::uint64_t found = 0;   ///< blocks of requests that were there when they were looked up for the first time
  std::uint64_t loaded = 0;  ///< blocks that reached a GPU from here
  std::uint64_t stored = 0;  ///< blocks that were written here
  std::uint64_t lost = 0;    ///< blocks that could not be read back when they were loaded
  Bytes bytes_read, bytes_written;
  SimTime load_time, store_time;  ///< sums over blocks
  bool operator==(const TierUse&) const = default;
};

struct TiersUse {
  TierUse host, drives;
  std::uint64_t asked = 0;     ///< blocks of requests beyond those that the GPU had, looked up for the first time
  std::uint64_t promoted = 0;  ///< blocks that came from drives to host memory by promote()
  std::uint64_t promoted_unread = 0;     ///< promoted blocks that left before anybody loaded them
  std::uint64_t promotion_failures = 0;  ///< times that promote() found no room
  std::uint64_t dropped_no_room = 0, dropped_back_pressure = 0, dropped_staging = 0;  ///< blocks that were not stored
};

/// Moves nothing by itself: it asks a transport. A block that is on its way from the GPU is in no tier yet; one that is
/// read from a drive through host memory stays there if that has room for it (promotion).
class KvTiers {
 public:
  /// A tier that is null does not exist. `contents` is null in runs that carry no data. `transport` and `contents` must
  /// outlive this.
  KvTiers(const KvTiersConfig& config, std::unique_ptr<KvBlockManager> host, std::unique_ptr<KvBlockManager> drives,
          KvTransport& transport, KvContents* contents = nullptr);

  bool any() const { return host_ || drives_; }

  /// Counts the blocks of a request for admission, once per request.
  void sight(std::span<const KvBlockId> ids);

  struct Found {
    std::uint32_t host = 0, drives = 0;  ///< leading blocks that can be read, by where they are read from
    bool pending = false;                ///< the next block is being written: asking again helps
    std::uint32_t blocks() const { return host + drives; }
  };
  /// Not more than `most_of_drives` blocks of drives.
  Found lookup(std::span<const KvBlockId> ids, std::uint64_t most_of_drives = ~std::uint64_t{0}) const;
  /// The part of what lookup() has found that a request can load.
  Found loadable(std::span<const KvBlockId> ids, const Found& found) const;
  /// Brings blocks that lookup() has found to host memory, into places that hold them until they are there; after that
  /// they may leave again. True if some are on their way, so that looking them up again helps; false, having changed
  /// nothing, without room for those that are missing. Precondition: there is a tier in host memory.
  bool promote(std::span<const KvBlockId> ids);
  /// The first lookup of a request, for the statistics.
  void count(std::size_t asked, const Found& found);

  /// The blocks of the GPU that the block `ids[i]` of a load or store consists of.
  using SlotsOf = std::function<std::span<const KvBlockSlot>(std::size_t i)>;

  /// Begins to read blocks into the memory of a GPU. Precondition: lookup() has found them just now. They are held from
  /// now on, and are read once the caller calls what this returns. `part_done` is called with the index of each part
  /// when it has arrived of all blocks, and with the number of leading blocks of which nothing was lost so far.
  using PartDone = std::function<void(std::uint32_t part, std::size_t blocks)>;
  std::function<void()> load(std::span<const KvBlockId> ids, std::uint32_t gpu, SlotsOf slots, PartDone part_done);
  std::uint32_t parts() const { return config_.parts; }

  /// Writes those blocks that the tiers do not have. `copied` is called when the memory of the GPU is needed no more;
  /// it is not called, and the result is false, if there is nothing to be written.
  bool store(std::span<const KvBlockId> ids, std::uint32_t gpu, SlotsOf slots, KvTransport::Done copied);

  /// Called when a store or load has ended, so that a block which was pending may be read, or one may leave.
  void on_change(std::function<void()> listener) { changed_ = std::move(listener); }

  /// A request uses these blocks of the tiers, and stores none of them.
  void touch(std::span<const KvBlockId> ids);

  const TiersUse& use() const { return use_; }
  /// Bytes of K and V that have entered or left the memory of a GPU: copied from or to host memory, and directly.
  struct GpuTraffic {
    Bytes copied, direct;
  };
  GpuTraffic gpu_traffic(std::uint32_t gpu) const { return gpu < traffic_.size() ? traffic_[gpu] : GpuTraffic{}; }
  const KvBlockManager* host() const { return host_.get(); }
  const KvBlockManager* drives() const { return drives_.get(); }
  bool has_files() const { return config_.files.has_value(); }
  /// What the files cost, if there are any.
  FileUse files() const { return storage_ ? storage_->files() : FileUse{}; }
  /// Whether the drives have all that they will get, unless more is stored, and what writes that.
  bool settled() const { return !storage_ || storage_->settled(); }
  void sync(KvTransport::Done done) { storage_ ? storage_->sync(std::move(done)) : done(); }
  Bytes whole_block() const { return config_.whole_block(); }

 private:
  struct Loading;
  struct Promoting;
  struct Storing;
  /// A block on its way. Empty where nothing is carried.
  using Buffer = std::shared_ptr<std::vector<std::byte>>;
  Buffer buffer(Bytes size) const;
  Buffer take(const Storing& store, std::size_t block) const;
  /// What a slot of host memory holds of a part. Empty where nothing is carried.
  std::span<std::byte> host_part(KvBlockSlot slot, std::uint32_t part);
  void fill_host(KvBlockSlot slot, const Buffer& bytes);

  void load_part(const std::shared_ptr<Loading>& load, std::size_t block, std::uint32_t part);
  void load_staged(const std::shared_ptr<Loading>& load, std::size_t block, std::uint32_t part, const Buffer& bytes);
  void part_arrived(const std::shared_ptr<Loading>& load, std::size_t block, std::uint32_t part,
                    std::span<const std::byte> bytes);
  void part_lost(const std::shared_ptr<Loading>& load, std::size_t block, std::uint32_t part);
  void part_ended(const std::shared_ptr<Loading>& load, std::size_t block, std::uint32_t part);
  /// A block that is read from a drive gets a place in host memory, if there is one.
  void promote(Loading& load, std::size_t block);
  void part_in_host(Loading& load, std::size_t block, std::uint32_t part, const Buffer& bytes, bool read);
  void block_promoted(const std::shared_ptr<Promoting>& promotion, std::size_t block, bool read);
  std::shared_ptr<Storing> plan_store(std::span<const KvBlockId> ids, std::uint32_t gpu);
  void copy_block(const std::shared_ptr<Storing>& store, std::size_t block);
  void write_block(const std::shared_ptr<Storing>& store, std::size_t block, Place from, const Buffer& bytes);
  void block_in_host(const std::shared_ptr<Storing>& store, std::size_t block);
  void block_copied(const std::shared_ptr<Storing>& store);
  void block_written(const std::shared_ptr<Storing>& store, std::size_t block);
  void end_store(Storing& store);
  /// Blocks that host memory has given up go to the drives.
  void demote(const KvBlockManager::Store& room);
  void demote(KvBlockId id, KvBlockSlot slot);
  GpuTraffic& traffic(std::uint32_t gpu);

  KvTiersConfig config_;
  std::unique_ptr<KvBlockManager> host_, drives_;
  KvTransport& transport_;
  std::unique_ptr<KvStorage> storage_;  ///< storage on the drives; null without drives
  KvContents* contents_;
  std::vector<std::vector<std::byte>> host_contents_;  ///< [slot]
  Staging staging_;
  std::optional<BackPressure> back_pressure_;
  Bytes part_;  ///< bytes of a part, whole logical blocks
  std::function<void()> changed_ = [] {};
  std::unordered_set<std::uint64_t> unread_;  ///< ids of blocks that were promoted and not loaded since
  TiersUse use_;
  std::vector<GpuTraffic> traffic_;  ///< [gpu]
};

}  // namespace csdsim::host

namespace csdsim {

template <>
struct EnumValues<host::DrivePath> {
  static constexpr EnumValue<host::DrivePath> values[] = {
      {host::DrivePath::staged, "staged", "Through a bounded buffer in host memory."},
      {host::DrivePath::direct, "direct", "The drive reads and writes the memory of the GPU (GPUDirect Storage)."}};
};

}  // namespace csdsim
