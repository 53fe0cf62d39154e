// A journalling file system on a drive: what creating, opening, renaming and deleting files makes the drive read and
// write beside the files (ext4 with its defaults).
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <set>
#include <vector>

#include "host_runtime/core/machine/page_cache.h"
#include "host_runtime/core/serving/engine/kv_files_config.h"
#include "host_runtime/core/serving/engine/kv_storage.h"
#include "host_runtime/core/serving/engine/kv_transport.h"

namespace csdsim::host {

/// Where the parts of a file system for files of one size lie, in blocks of 4 KiB from the beginning of its range: the
/// journal, group descriptors, bitmaps, tables of inodes, directories, files. Sizes are those of mke2fs: groups of
/// 128 MiB, an inode of 256 bytes per 16 KiB.
struct FileSystemLayout {
  static constexpr std::uint64_t kBlock = 4096;

  FileSystemLayout(const KvFilesConfig& config, Bytes capacity, Bytes file);

  std::uint64_t journal = 0;       ///< blocks of it
  std::uint64_t groups = 0;        ///< groups of blocks and inodes
  std::uint64_t group_inodes = 0;  ///< inodes per group
  std::uint64_t directory = 0;     ///< blocks of each directory
  std::uint64_t descriptors = 0, block_bitmaps = 0, inode_bitmaps = 0, inodes = 0, entries = 0;  ///< first blocks
  Bytes data;                ///< where the places for files begin
  std::uint64_t places = 0;  ///< places for files
  std::uint64_t files = 0;   ///< that a tier may have at a time
};

/// Threads wait for their own work and for metadata that has to be read first. Changed blocks of metadata go to the
/// journal together, one block for each however often it has changed, and to their places later. Blocks of a deleted
/// file are used again once that is in the journal; the next file takes the next free place after the last one.
class FileSystem {
 public:
  using Done = KvTransport::Done;
  struct File {
    std::uint64_t place = 0;
    std::uint64_t group = 0, inode = 0;  ///< the inode's number in its group
    std::uint64_t entry = 0;             ///< block of its directory
  };

  /// The transport must outlive this.
  FileSystem(const KvFilesConfig& config, Bytes capacity, Bytes file, DriveIndex drive, KvTransport& transport);

  /// Calls `opened` when the file can be read, or with false if the drive cannot read its metadata back.
  void open(const File& file, std::function<void(bool)> opened);
  /// Creates a file under a temporary name. Waits for a place if there is none.
  void create(std::function<void(const File&)> created);
  void rename(const File& file, Done done);
  void unlink(const File& file, Done done);
  DriveRange range(const File& file) const;

  /// Nothing is to be written.
  bool clean() const { return transaction_.empty() && !committing_ && checkpoint_.empty() && writing_back_ == 0; }
  void sync(Done done);
  const FileUse& use() const { return use_; }

 private:
  struct Metadata {};
  using Blocks = std::vector<std::uint64_t>;
  using Cache = PageCache<Metadata>;

  /// Calls `then` after `time` of a thread.
  void spend(SimTime time, Done then);
  /// Reads those blocks of metadata that are not in memory, one after the other, and changes all if `changes`.
  void access(Blocks blocks, bool changes, std::function<void(bool)> then);
  void keep(std::uint64_t block, bool changes);
  Blocks inode_blocks(const File& file, bool bitmap) const;
  void add_place_blocks(std::uint64_t place, Blocks& blocks) const;
  std::uint64_t take_inode(std::uint64_t& group);
  void take_place(std::function<void(std::uint64_t)> then);
  void place_free(std::uint64_t place);
  void changed();
  void commit();
  void committed();
  void write_back();
  void written_back(const Blocks& blocks);
  /// Writes blocks that follow one another, in requests of at most 1 MiB, and calls `written` with each that has ended.
  std::uint64_t write_run(std::uint64_t first, std::uint64_t blocks, const Done& written);
  void go_on();

  KvFilesConfig config_;
  FileSystemLayout layout_;
  Bytes file_;
  DriveIndex drive_;
  KvTransport& transport_;
  FileUse use_;

  std::uint64_t files_created_ = 0;
  std::vector<bool> directory_made_, on_drive_;           ///< [directory], [block of metadata]
  std::vector<std::uint32_t> inodes_used_;                ///< [group]
  std::vector<std::vector<std::uint32_t>> inodes_freed_;  ///< [group]
  std::uint64_t places_used_ = 0, last_place_ = 0;
  std::set<std::uint64_t> free_places_;
  std::vector<std::uint64_t> freed_, freeing_;  ///< places: by the transaction that runs, and by the one before
  std::deque<std::function<void(std::uint64_t)>> wait_for_place_;

  Cache cache_;
  std::set<std::uint64_t> transaction_, in_journal_, checkpoint_;  ///< blocks that have changed; that are written to
                                                                   ///< the journal; that are in it
  std::uint64_t journal_at_ = 0;
  bool committing_ = false, commit_again_ = false, write_back_due_ = false;
  std::uint64_t transactions_ = 0;
  std::uint64_t journal_writes_ = 0, writing_back_ = 0;
  Done synced_;
};

}  // namespace csdsim::host
