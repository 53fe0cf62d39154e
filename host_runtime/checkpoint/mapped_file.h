// A file mapped into memory, read-only.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace csdsim::host {

/// Whether there is anything at a path. UserError where that cannot be told: a loop of symbolic links, a directory that
/// must not be read.
bool is_present(const std::filesystem::path& path);

class MappedFile {
 public:
  /// UserError naming the file if it cannot be opened or is not a regular file.
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }
  /// Drops the whole pages inside `part` from memory. They are read from the file again when they are used.
  void release(std::span<const std::byte> part) const;

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace csdsim::host
