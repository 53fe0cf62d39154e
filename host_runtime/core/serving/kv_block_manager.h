// The blocks of one tier behind the GPU, and who reads and writes them (vLLM: OffloadingManager). The same object
// serves simulated time, carried runs and real files: it moves nothing, and is told what time it is.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/units.h"
#include "host_runtime/core/serving/admission/admission_policy.h"
#include "host_runtime/core/serving/kv_block_slots.h"

namespace csdsim::host {

/// A block is absent; writing, from prepare_store() to complete_store(); ready; or loading, with readers.
enum class KvBlockState : std::uint8_t { absent, writing, ready, loading };

struct KvBlockEvent {
  enum class Kind : std::uint8_t {
    stored,        ///< can be read from now on
    evicted,       ///< left for another block
    store_failed,  ///< its store failed or was too late
    load_failed,   ///< its load failed or was too late
    dropped        ///< by drop()
  };
  Kind kind;
  KvBlockId id;
};

/// Names a store or load that is under way. Never used twice.
struct KvJobId {
  std::uint64_t value = 0;
  constexpr auto operator<=>(const KvJobId&) const = default;
};

/// Blocks are whole blocks of the tier; whole_tier_blocks() makes their ids from those of GPU blocks.
class KvBlockManager {
 public:
  struct Config {
    std::optional<std::uint64_t> capacity;  ///< in blocks; none: unlimited
    /// A store or load that takes longer has failed; see expire().
    SimTime deadline = SimTime::max();
  };

  KvBlockManager(const Config& config, std::unique_ptr<EvictionPolicy> eviction,
                 std::unique_ptr<AdmissionPolicy> admission);

  /// Called with everything that changes what lookup() says.
  void on_event(std::function<void(const KvBlockEvent&)> listener) { listener_ = std::move(listener); }

  /// Counts the blocks of a request for admission. Call it once per request, however often that looks up.
  void sight(std::span<const KvBlockId> ids);

  struct Lookup {
    enum class End : std::uint8_t { all, miss, pending };
    std::uint64_t blocks = 0;  ///< the leading run of blocks that can be read
    End end = End::all;        ///< what ends it; pending: the next one is being written, so that asking again helps
  };
  /// Changes nothing.
  Lookup lookup(std::span<const KvBlockId> ids) const;
  KvBlockState state(KvBlockId id) const;

  struct Store {
    KvJobId job;
    std::vector<KvBlockId> stored;           ///< to be written, from the last to the first
    std::vector<KvBlockSlot> slots;          ///< where each of them goes
    std::vector<KvBlockId> evicted;          ///< what left for them
    std::vector<KvBlockSlot> evicted_slots;  ///< where each of those was: slots of blocks that are to be written
  };
  /// Makes room for those blocks of a request that are absent and that the admission policy admits, and uses those that
  /// are present. This goes from the last block to the first, so that a prefix outlives its tail. Returns nothing,
  /// having changed nothing, if the blocks that nobody reads or writes do not give room enough. Without blocks to be
  /// stored the result has none, and no job to be completed. A request that stores uses its blocks by that: it does not
  /// touch() them.
  std::optional<Store> prepare_store(std::span<const KvBlockId> ids, SimTime now);
  /// Blocks whose store has failed are absent. False if the job has expired before; then nothing changes.
  bool complete_store(KvJobId job, bool succeeded);

  struct Load {
    KvJobId job;
    std::vector<KvBlockSlot> slots;
  };
  /// Begins to read blocks, which stay until the load is complete. Throws InternalError if one of them cannot be read.
  Load prepare_load(std::span<const KvBlockId> ids, SimTime now);
  /// After a load that has failed its blocks are absent, for other requests too, until they are stored again; their
  /// slots are used again when the last reader has finished. False if the job has expired before.
  bool complete_load(KvJobId job, bool succeeded);

  /// A request uses blocks and stores none.
  void touch(std::span<const KvBlockId> ids);
  /// Drops a block, such as one whose file is gone. It is absent at once. Does nothing while the block is written.
  void drop(KvBlockId id);

  /// Ends jobs past their deadline as failed ones, and returns how many. A block is never pending for ever.
  std::size_t expire(SimTime now);
  /// The earliest deadline of a job, or SimTime::max().
  SimTime next_deadline() const;

  /// Counts of blocks by state. Only held blocks are in use: a full tier whose blocks have no readers still has room.
  struct Usage {
    std::uint64_t taken = 0;    ///< all that have a slot
    std::uint64_t writing = 0;  ///< cannot be read yet
    std::uint64_t reading = 0;  ///< have readers
    std::uint64_t idle = 0;     ///< may leave
  };
  Usage usage() const;
  std::optional<std::uint64_t> capacity() const { return slots_.capacity(); }
  std::uint64_t stored_blocks() const { return stored_blocks_; }  ///< since the beginning: what was written
  std::size_t memory() const { return slots_.memory() + writing_.capacity(); }

 private:
  struct Job {
    bool store = false;
    SimTime deadline;
    std::vector<KvBlockSlot> slots;
  };

  std::vector<KvBlockSlot> end_job(std::map<KvJobId, Job>::iterator job);
  void end_store(std::span<const KvBlockSlot> slots, bool succeeded);
  void end_load(std::span<const KvBlockSlot> slots, bool succeeded);
  KvJobId begin_job(bool store, std::span<const KvBlockSlot> slots, SimTime now);
  bool find_known(std::span<const KvBlockId> ids, std::uint64_t& missing);
  void tell(KvBlockEvent::Kind kind, KvBlockId id) const {
    if (listener_) listener_({kind, id});
  }

  SimTime deadline_;
  KvBlockSlots slots_;
  std::unique_ptr<AdmissionPolicy> admission_;
  std::function<void(const KvBlockEvent&)> listener_;
  std::vector<std::uint8_t> writing_;  ///< per slot
  std::uint64_t writing_blocks_ = 0;
  std::uint64_t stored_blocks_ = 0;
  std::map<KvJobId, Job> jobs_;
  std::multimap<SimTime, KvJobId> deadlines_;
  KvJobId last_job_;
  std::vector<KvBlockSlot> known_;  ///< slots of the blocks of the request that stores
};

}  // namespace csdsim::host
