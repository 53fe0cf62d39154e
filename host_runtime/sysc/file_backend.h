// Files of a drive, read and written by threads of the host.
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

/// The path of pread() and pwrite() over a drive's block namespace, without a page cache: every read reaches the drive.
/// (A page cache is not modelled yet.)
///
/// A file operation is cut into I/Os of io_size (FileTable::cut). `threads` threads serve the I/Os of all operations
/// and files in the order in which they came. A thread spends io_overhead on each of its I/Os, and waits for the drive
/// before it takes the next one. With a copy_bandwidth the drive's DMA ends in an I/O buffer in host memory, and the
/// thread copies the wanted bytes from there (a write: to there, before the drive is asked); without, it goes directly
/// to the memory of the operation. So one thread takes n x (io_overhead + time of the drive + bytes / copy_bandwidth).
///
/// The time of the driver itself (platform.host.io_overhead) is part of the drive's.
class FileBackend final : public OperationBackend {
 public:
  struct Totals {
    std::uint64_t ios = 0;
    Bytes wanted;         ///< what operations asked for
    Bytes transferred;    ///< whole blocks, to and from drives
    Bytes copied;         ///< between I/O buffers and memory
    SimTime thread_time;  ///< in overheads and copies, over all threads
  };

  /// `files` has a table per drive, by its index. `data` is null in timing runs. All references must outlive this.
  FileBackend(DriveCommands& commands, const std::vector<FileTable>& files, const FileIoConfig& config,
              OperationData* data);

  /// InternalError for work that is not of a file, an operation that copies to GPU memory (a transfer does that), and
  /// as FileTable::cut says.
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
  /// Spends a thread's time, then goes on.
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
