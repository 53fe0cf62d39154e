#include "host_runtime/checkpoint/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace csdsim::host {
namespace {

[[noreturn]] void fail(const std::filesystem::path& path, int error) {
  throw UserError(fmt::format("{}: cannot be read: {}", path.string(), std::generic_category().message(error)));
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) fail(path, errno);
  struct stat status {};
  const int error = ::fstat(file, &status) != 0 ? errno : S_ISDIR(status.st_mode) ? EISDIR : 0;
  if (error != 0 || !S_ISREG(status.st_mode)) {
    ::close(file);
    fail(path, error != 0 ? error : EINVAL);
  }
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size > 0) {
    void* const address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0);
    const int map_error = errno;
    ::close(file);
    if (address == MAP_FAILED) fail(path, map_error);
    bytes_ = {static_cast<const std::byte*>(address), size};
  } else {
    ::close(file);
  }
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

}  // namespace csdsim::host
