// A tier that keeps a file per block, as vLLM and SGLang do.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "host_runtime/core/machine/file_config.h"
#include "host_runtime/core/serving/engine/file_system.h"
#include "host_runtime/core/serving/engine/kv_storage.h"

namespace csdsim::host {

/// A file system on each drive, with threads that read and as many that write. A thread has one file at a time. To
/// write a block it deletes the file that the slot had, creates one under a temporary name, writes it and renames it.
/// To read one it opens the file. Between that it goes through the file in I/Os of io_size, one after the other: it
/// spends io_overhead and waits for the drive; with FileAccess::bounce it also copies the bytes.
class KvFiles final : public KvStorage {
 public:
  struct Config {
    KvFilesConfig files;
    FileIoParams io;
    Bytes capacity;             ///< capacity of each drive's file system
    std::uint32_t threads = 8;  ///< threads per drive
  };

  /// The transport must outlive this.
  KvFiles(const Config& config, KvTransport& transport, std::uint32_t drives, std::uint32_t parts, Bytes part);

  void read(KvBlockSlot slot, KvParts parts, Place to, std::span<std::byte> bytes, KvTransport::ReadDone done) override;
  void write(KvBlockSlot slot, Place from, std::span<const std::byte> bytes, KvTransport::Done done) override;
  bool settled() const override;
  void sync(KvTransport::Done done) override;
  FileUse files() const override;

 private:
  /// Threads for one direction, and what waits for one.
  struct Threads {
    std::uint32_t busy = 0;
    std::deque<std::function<void()>> waiting;
  };
  struct Mount {
    std::unique_ptr<FileSystem> system;
    std::vector<std::optional<FileSystem::File>> files;  ///< [slot / drives]
    Threads readers, writers;
  };
  /// A part of a file on its way.
  struct Transfer {
    DriveRange range;
    Place memory;
    std::span<std::byte> read = {};
    std::span<const std::byte> written = {};
    bool writes = false;
    std::function<void(bool)> done;
    Bytes at;
  };
  using TransferPtr = std::shared_ptr<Transfer>;

  Mount& mount(KvBlockSlot slot) { return mounts_[slot % mounts_.size()]; }
  std::optional<FileSystem::File>& file(KvBlockSlot slot);
  void run(Threads& threads, std::function<void()> work);
  void end(Threads& threads);
  void next_io(const TransferPtr& transfer);
  void move(const TransferPtr& transfer, Bytes size);
  void spend(SimTime time, KvTransport::Done then);
  void go_on();

  Config config_;
  KvTransport& transport_;
  std::uint32_t parts_;
  Bytes part_;
  std::vector<Mount> mounts_;  ///< [drive]
  KvTransport::Done synced_;
};

}  // namespace csdsim::host
