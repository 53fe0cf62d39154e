#include "host_runtime/checkpoint/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace csdsim::host {
namespace {

[[noreturn]] void fail(const std::filesystem::path& path, int error) {
  throw UserError(fmt::format("{}: cannot be read: {}", path.string(), std::generic_category().message(error)));
}

}  // namespace

bool is_present(const std::filesystem::path& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::none) fail(path, error.value());
  return std::filesystem::exists(status);
}

MappedFile::MappedFile(const std::filesystem::path& path) {
  // Opening a FIFO would wait for a writer otherwise.
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) fail(path, errno);
  struct stat status {};
  const int error = ::fstat(file, &status) != 0 ? errno : S_ISDIR(status.st_mode) ? EISDIR : 0;
  if (error != 0 || !S_ISREG(status.st_mode)) {
    ::close(file);
    if (error != 0) fail(path, error);
    throw UserError(fmt::format("{}: cannot be read: it is a FIFO or a device, not a file", path.string()));
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
  constexpr std::string_view kPointer = "version https://git-lfs.github.com/spec/";
  if (std::string_view(reinterpret_cast<const char*>(bytes_.data()), bytes_.size()).starts_with(kPointer)) {
    ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
    throw UserError(
        fmt::format("{}: is a git-lfs pointer, not the file that it stands for: run git lfs pull", path.string()));
  }
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

void MappedFile::release(std::span<const std::byte> part) const {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto first = reinterpret_cast<std::uintptr_t>(part.data());
  const std::uintptr_t begin = (first + page - 1) / page * page, end = (first + part.size()) / page * page;
  // Advice: where it fails, the pages stay.
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

}  // namespace csdsim::host
