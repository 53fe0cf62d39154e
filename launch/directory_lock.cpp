#include "launch/directory_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "base/error.h"

namespace csdsim::launch {

DirectoryLock::DirectoryLock(const std::filesystem::path& directory)
    : descriptor_(open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  constexpr int kTries = 20;  // 100 ms apart
  if (descriptor_ == -1) throw UserError(fmt::format("{}: cannot be opened", directory.string()));
  for (int tried = 1; flock(descriptor_, LOCK_EX | LOCK_NB) != 0; ++tried) {
    if (tried < kTries) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      continue;
    }
    close(descriptor_);
    throw UserError(fmt::format("{}: another csdsim writes its results here; wait for it, or give another --out",
                                directory.string()));
  }
}

DirectoryLock::~DirectoryLock() { close(descriptor_); }

}  // namespace csdsim::launch
