// File operations: threads of the host read and write files on a drive.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "host_runtime/core/carried/operation_data.h"
#include "host_runtime/core/planner/file_config.h"
#include "host_runtime/core/planner/file_table.h"
#include "host_runtime/core/planner/operation_backend.h"
#include "host_runtime/sysc/drive_commands.h"
#include "simulation/event_loop.h"

namespace csdsim::host {

/// Models pread() and pwrite() on the block namespace of a drive. There is no page cache: every read reaches the drive.
///
/// A file operation is cut into I/Os of at most io_size (FileTable::cut). `threads` threads serve the I/Os of all
/// operations in order of arrival. For each I/O a thread spends io_overhead, then waits for the drive, then takes the
/// next I/O. If copy_bandwidth is 0, the drive's DMA accesses the memory of the operation directly. Otherwise it
/// accesses an I/O buffer in host memory, and the thread copies the bytes: after the drive's read, or before its write.
/// One thread thus takes n x (io_overhead + time of the drive + bytes / copy_bandwidth) for n I/Os.
///
/// The time of the NVMe driver (platform.host.io_overhead) is part of the time of the drive.
class FileBackend final : public OperationBackend {
 public:
  struct Totals {
    std::uint64_t ios = 0;
    Bytes wanted;         ///< requested by operations
    Bytes transferred;    ///< whole blocks, to and from drives
    Bytes copied;         ///< between I/O buffers and memory
    SimTime thread_time;  ///< spent on overheads and copies, summed over the threads
  };

  /// `files` has one table per drive, by drive index. `data` is null in timing runs. All references must outlive this.
  FileBackend(DriveCommands& commands, const std::vector<FileTable>& files, const FileIoConfig& config,
              OperationData* data);

  /// InternalError for an operation that is not on a file, or that copies to or from GPU memory (use a transfer for
  /// that). Also throws what FileTable::cut throws.
  std::optional<SimTime> start(const Operation& op, SimTime now) override;

  const Totals& totals() const { return totals_; }

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

  bool writes(const Request& r) const { return r.op->kind == OpKind::write_file; }
  SimTime copy_time(const FileIo& io) const;
  void start_ios();
  /// Calls `then` after `duration` of a thread's time.
  void spend(SimTime duration, Callback<void()> then);
  void on_due();
  void ask_drive(const ActivePtr& a);
  void arrived(const ActivePtr& a);
  void end(const ActivePtr& a);

  DriveCommands& commands_;
  const std::vector<FileTable>& files_;
  FileIoConfig config_;
  OperationData* data_;
  Totals totals_;
  std::deque<Request> waiting_;
  std::uint32_t busy_ = 0;  ///< threads with an I/O
  std::map<std::pair<SimTime, std::uint64_t>, Callback<void()>> due_;
  std::uint64_t next_due_ = 0;
  Alarm alarm_{AlarmRank::host, [this] { on_due(); }};
};

}  // namespace csdsim::host
