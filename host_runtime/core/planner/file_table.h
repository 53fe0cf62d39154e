// Named files on the blocks of a drive, and how operations on them become I/Os.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "host_runtime/core/planner/operation.h"

namespace csdsim::host {

/// One I/O of a file operation: whole blocks next to each other on the drive, and the bytes of them that are wanted.
struct FileIo {
  std::size_t range = 0;  ///< in FileWork::ranges
  Bytes at;               ///< first wanted byte, from the start of the range
  Bytes size;             ///< wanted bytes
  Extent extent;
  Bytes skip;  ///< bytes of the extent before the first wanted one
};

/// Where the files of a drive lie. Files do not grow: a file has the size of its extents.
class FileTable {
 public:
  /// `block` is the logical block of the drive.
  explicit FileTable(Bytes block) : block_(block) {}

  /// Places a file; its bytes follow the extents in their order. UserError if the name is taken, an extent is empty, or
  /// one overlaps another extent.
  void add(const std::string& name, std::vector<Extent> extents);
  /// UserError that lists the files if there is none of this name.
  Bytes size(const std::string& name) const;
  Bytes block() const { return block_; }

  /// The I/Os of an operation in the order of its ranges, at most `io_size` each: cut there, and where an extent ends.
  /// A read takes the whole blocks in which its bytes lie. InternalError for an empty range, one beyond the file, or a
  /// write of something else than whole blocks; UserError if `io_size` is not a multiple of the block.
  std::vector<FileIo> cut(const Operation& op, Bytes io_size) const;

 private:
  struct File {
    std::vector<Extent> extents;
    Bytes size;
  };
  const File& file(const std::string& name) const;
  /// Blocks of a file from block `first` on, at most `most`, that are next to each other.
  static Extent run_of(const File& file, std::uint64_t first, std::uint64_t most);

  Bytes block_;
  std::map<std::string, File> files_;
};

}  // namespace csdsim::host
