#include <fmt/format.h>
#include <unistd.h>

#include <fstream>
#include <system_error>

#include "tests/fuzz/fuzz.h"

namespace csdsim::fuzz {
namespace {

/// A folder for the files of this program.
struct Folder {
  std::filesystem::path path = std::filesystem::temp_directory_path() / fmt::format("csdsim-fuzz-{}", getpid());
  Folder() { std::filesystem::create_directories(path); }
  ~Folder() {
    std::error_code none;
    std::filesystem::remove_all(path, none);
  }
};

}  // namespace

std::vector<const Target*>& Target::all() {
  static std::vector<const Target*> targets;
  return targets;
}

std::filesystem::path as_file(std::string_view input, const std::string& name) {
  static const Folder folder;
  const std::filesystem::path path = folder.path / name;
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(input.data(), static_cast<std::streamsize>(input.size()));
  if (!file.flush()) throw InternalError("the input cannot be written");
  return path;
}

}  // namespace csdsim::fuzz
