// Keeps two programs from writing results into one folder.
#pragma once

#include <filesystem>

namespace csdsim::launch {

/// Locks an existing directory until the end of its life. Waits two seconds: the points of a sweep that was killed end
/// a moment later. UserError if another program has the lock.
class DirectoryLock {
 public:
  explicit DirectoryLock(const std::filesystem::path& directory);
  ~DirectoryLock();
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;

 private:
  int descriptor_;
};

}  // namespace csdsim::launch
