#include "report/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <sstream>
#include <system_error>

#include "base/error.h"

namespace csdsim::report {
namespace {

std::error_code last_error() { return {errno, std::generic_category()}; }

/// A file descriptor that is closed on every path.
class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  ~Descriptor() {
    if (value_ != -1) ::close(value_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int value() const { return value_; }

 private:
  int value_;
};

/// Opens a file that does not exist yet. One that a program left when it was killed goes first.
int create(const std::filesystem::path& path) {
  constexpr int kNew = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  const int file = ::open(path.c_str(), kNew, 0666);
  if (file != -1 || errno != EEXIST || ::unlink(path.c_str()) != 0) return file;
  return ::open(path.c_str(), kNew, 0666);
}

std::error_code write_all(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(file, text.data(), text.size());
    if (written == -1 && errno == EINTR) continue;
    if (written == -1) return last_error();
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return {};
}

std::error_code write_to(const std::filesystem::path& path, std::string_view text, bool is_new, bool sync) {
  const Descriptor file(is_new ? create(path) : ::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (file.value() == -1) return last_error();
  if (const std::error_code error = write_all(file.value(), text)) return error;
  return sync && ::fsync(file.value()) != 0 ? last_error() : std::error_code();
}

}  // namespace

void make_directory(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) throw UserError(fmt::format("{}: {}", path.string(), error.message()));
}

void write_file(const std::filesystem::path& path, std::string_view text, Durable durable) {
  if (path.has_parent_path()) make_directory(path.parent_path());
  // A device or a pipe cannot be replaced.
  const bool replaces = !std::filesystem::exists(path) || std::filesystem::is_regular_file(path);
  std::filesystem::path written = path;
  if (replaces) written += ".part";
  std::error_code error = write_to(written, text, replaces, replaces && durable == Durable::now);
  if (!error && replaces) std::filesystem::rename(written, path, error);
  if (!error) return;
  if (std::error_code none; replaces) std::filesystem::remove(written, none);
  throw UserError(fmt::format("{}: cannot be written: {}", path.string(), error.message()));
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) throw UserError(fmt::format("{}: cannot be read", path.string()));
  return text.str();
}

}  // namespace csdsim::report
