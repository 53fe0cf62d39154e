// Named files on the blocks of a drive, and the I/Os of operations on them.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "host_runtime/core/plan/operation.h"

namespace csdsim::host {

/// One I/O of a file operation: consecutive blocks of the drive, and the wanted bytes in them.
struct FileIo {
  std::size_t range = 0;  ///< index in FileWork::ranges
  Bytes at;               ///< offset of the first wanted byte in the range
  Bytes size;             ///< wanted bytes
  Extent extent;
  Bytes skip;  ///< bytes of the extent before the first wanted one
};

/// The rule by which an operation is cut into I/Os.
enum class FileCut : std::uint8_t {
  blocks,  ///< only the blocks that hold wanted bytes; writes are whole blocks
  chunks   ///< whole chunks, aligned in the file to io_size; writes of any bytes, for a cache that completes the chunk
};

/// The blocks of each file of a drive. Files do not grow: a file has the size of its extents.
class FileTable {
 public:
  /// `block` is the logical block of the drive.
  explicit FileTable(Bytes block) : block_(block) {}

  /// Adds a file whose bytes are in the extents, in their order. UserError if the name is used already, an extent is
  /// empty, or extents overlap.
  void add(const std::string& name, std::vector<Extent> extents);
  /// UserError that lists the files if no file has this name.
  Bytes size(const std::string& name) const;
  Bytes block() const { return block_; }

  /// The I/Os of an operation in the order of its ranges. An I/O has at most `io_size` bytes and ends where an extent
  /// ends. Reads are extended to whole blocks, or to whole chunks. InternalError for an empty range, a range beyond the
  /// end of the file, or (FileCut::blocks) a write that is not of whole blocks; UserError if `io_size` is not a
  /// multiple of the block.
  std::vector<FileIo> cut(const Operation& op, Bytes io_size, FileCut how = FileCut::blocks) const;
  /// The same for a range of a file that is read.
  std::vector<FileIo> cut(const std::string& name, FileRange range, Bytes io_size, FileCut how) const;

 private:
  struct File {
    std::vector<Extent> extents;
    Bytes size;
  };
  const File& file(const std::string& name) const;
  /// Appends the I/Os of one range, which is in the file.
  void cut_range(const File& file, std::size_t index, FileRange range, Bytes io_size, FileCut how,
                 std::vector<FileIo>& ios) const;
  /// Consecutive blocks of the drive that hold block `at` of the file and others from `first` to before `end`, and the
  /// block of the file at which they begin.
  struct Run {
    Extent extent;
    std::uint64_t first;
  };
  static Run run_of(const File& file, std::uint64_t at, std::uint64_t first, std::uint64_t end);

  Bytes block_;
  std::map<std::string, File> files_;
};

}  // namespace csdsim::host
