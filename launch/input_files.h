// The files that points of a sweep read: what they held when the sweep started.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <vector>

namespace csdsim::launch {

/// Contents of input files. A directory stands for the files in it, without those of its subdirectories. Every file is
/// read once.
class InputFiles {
 public:
  using Paths = std::vector<std::filesystem::path>;

  /// Digest of the contents (CRC-32 and size of each file). UserError for a file that cannot be read.
  std::uint64_t digest(const Paths& paths);
  /// UserError naming a file that digest() has read and that has been written or removed since.
  void check_unchanged(const Paths& paths) const;

 private:
  struct State {
    std::uintmax_t size = 0;
    std::filesystem::file_time_type written;
    std::uint32_t crc32 = 0;
  };
  static Paths files_of(const Paths& paths);

  std::map<std::filesystem::path, State> files_;
};

}  // namespace csdsim::launch
