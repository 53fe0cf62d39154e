// File operations: threads of the host read and write files on a drive.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "host_runtime/core/carried/operation_data.h"
#include "host_runtime/core/machine/file_config.h"
#include "host_runtime/core/machine/file_table.h"
#include "host_runtime/core/machine/file_totals.h"
#include "host_runtime/core/machine/page_cache.h"
#include "host_runtime/core/plan/operation_backend.h"
#include "host_runtime/core/plan/planner.h"
#include "host_runtime/sysc/drive_commands.h"
#include "simulation/event_loop.h"

namespace csdsim::host {

/// Models threads that read and write files on the block namespace of a drive.
///
/// A file operation is cut into I/Os of at most io_size (FileTable::cut). `threads` threads serve the I/Os of all
/// operations in order of arrival; each takes the next I/O when it has ended one.
///
/// FileAccess::direct and FileAccess::bounce: for each I/O a thread spends io_overhead, then waits for the drive. With
/// direct, the drive's DMA accesses the memory of the operation. With bounce, it accesses an I/O buffer in host memory,
/// and the thread copies the bytes: after the drive's read, or before its write. One thread thus takes
/// n x (io_overhead + time of the drive + bytes / copy_bandwidth) for n I/Os.
///
/// FileAccess::cached: all data passes through the page cache, in aligned chunks of io_size. A thread copies from and
/// to chunks that are there. A chunk that is not there is read first, unless it is written as a whole or nobody has
/// written it before (files have holes); a thread that needs a chunk that another one is reading waits for it. Changed
/// chunks are written to the drive in the background; a thread that would leave more than dirty_limit unwritten waits.
///
/// The time of the NVMe driver (platform.host.io_overhead) is part of the time of the drive.
class FileBackend final : public OperationBackend {
 public:
  /// I/Os that the kernel's write-back keeps in flight. Source: assumed; enough to keep a drive's write path busy.
  static constexpr std::uint32_t kWriteBackDepth = 32;

  /// `files` has one table per drive, by drive index. `data` is null in timing runs. All references must outlive this.
  FileBackend(DriveCommands& commands, const std::vector<FileTable>& files, const FileIoParams& params,
              OperationData* data);

  /// InternalError for an operation that is not on a file, or that copies to or from GPU memory (use a transfer for
  /// that). Also throws what FileTable::cut throws.
  std::optional<SimTime> start(const Operation& op, SimTime now) override;

  /// Sets the capacity of the page cache, and most bytes that wait to be written back, from now on.
  void set_page_cache(Bytes capacity, Bytes dirty_limit) {
    cache_.set_capacity(capacity);
    params_.dirty_limit = dirty_limit;
  }
  /// Chunks outside of what has been written of these files leave the page cache: the layers that they belong to are
  /// simulated no more. They take no time.
  void drop_others(const std::vector<PlannedFile>& files);
  /// What writing this range, or reading what was written, leaves in the page cache, in no time. For ranges that
  /// a sampled run skips, in the order of their use; timing runs only.
  void materialise(std::uint32_t drive, const std::string& file, FileRange range);

  /// Calls `done` when nothing waits to be written back: at once, or when the last write has ended.
  void when_written_back(std::function<void()> done);

  const FileTotals& totals() const { return totals_; }

 private:
  struct Request {
    const Operation* op = nullptr;
    std::shared_ptr<DriveCommands::Running> running;
    FileIo io;
  };
  struct Active : Request {
    DriveCommands::Buffer buffer;
  };
  using ActivePtr = std::shared_ptr<Active>;
  struct Chunk {
    bool valid = false;
    bool dirty = false;
    bool queued = false;   ///< to be written back,
    bool writing = false;  ///< and on its way to the drive
    bool leaving = false;  ///< leaves the cache when it is written back,
    bool wanted = false;   ///< unless it has been used since
    Extent extent = {};
    std::vector<std::byte> bytes = {};  ///< in carried runs
    std::vector<ActivePtr> waiting = {};
  };
  using Cache = PageCache<Chunk>;

  bool throttles() const { return unwritten_ > params_.dirty_limit; }
  bool cached() const { return params_.access == FileAccess::cached; }
  static bool writes(const Request& r) { return r.op->kind == OpKind::write_file; }
  static const FileWork& work_of(const Request& r) { return std::get<FileWork>(r.op->work); }
  static ChunkKey key_of(const Request& r) { return {r.op->resource.index, r.io.extent.first}; }
  SimTime copy_time(const FileIo& io) const;
  void start_ios();
  void thread_free();
  void start_uncached(const ActivePtr& a);
  /// Calls `then` after `duration` of a thread's time.
  void spend(SimTime duration, Callback<void()> then);
  void on_due();
  void ask_drive(const ActivePtr& a);
  void arrived(const ActivePtr& a);
  void end(const ActivePtr& a);

  // With the page cache.
  void start_cached(const ActivePtr& a);
  bool needs_contents(const Active& a) const;
  void fetch(const ActivePtr& a);
  void fetched(const ActivePtr& a);
  void use(const ActivePtr& a);
  void changed(const ActivePtr& a);
  void make_room(std::optional<ChunkKey> keep);
  void queue_write_back(ChunkKey key, Cache::Entry& entry);
  void start_write_backs();
  bool waits_for_write_back(ChunkKey key);
  /// `first` and the chunks behind it that are written with it.
  std::vector<ChunkKey> write_back_run(ChunkKey first);
  void write_back(const std::vector<ChunkKey>& run);
  void written_back(const std::vector<ChunkKey>& run, const DriveCommands::Buffer& buffer);
  void written_back(ChunkKey key);
  void resume_throttled();

  DriveCommands& commands_;
  const std::vector<FileTable>& files_;
  FileIoParams params_;
  OperationData* data_;
  FileTotals totals_;
  std::deque<Request> waiting_;
  std::uint32_t busy_ = 0;  ///< threads with an I/O
  bool starting_ = false;   ///< start_ios() is running
  std::map<std::pair<SimTime, std::uint64_t>, Callback<void()>> due_;
  std::uint64_t next_due_ = 0;
  Alarm alarm_{AlarmRank::host, [this] { on_due(); }};

  Cache cache_;
  std::unordered_set<ChunkKey, ChunkKey::Hash> written_;  ///< chunks that have been written, wholly or in part
  std::deque<ChunkKey> write_backs_;              ///< in the order of their queuing; some have been written since
  std::uint32_t writing_back_ = 0;                ///< I/Os
  Bytes unwritten_;                               ///< queued or being written back
  Bytes leaving_;                                 ///< bytes of the chunks that leave the cache
  std::vector<std::function<void()>> throttled_;  ///< threads that wait for write-back
  std::function<void()> when_written_back_;
};

}  // namespace csdsim::host
