#include "launch/input_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <span>
#include <system_error>

#include "base/crc32.h"
#include "base/error.h"
#include "base/rng.h"

namespace csdsim::launch {
namespace {

std::uint32_t crc32_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<char> block(std::size_t{1} << 20);
  std::uint32_t crc = 0;
  while (file) {
    file.read(block.data(), static_cast<std::streamsize>(block.size()));
    crc = crc32(std::as_bytes(std::span(block).first(static_cast<std::size_t>(file.gcount()))), crc);
  }
  if (!file.eof()) throw UserError(fmt::format("{}: cannot be read", path.string()));
  return crc;
}

}  // namespace

InputFiles::Paths InputFiles::files_of(const Paths& paths) {
  Paths files;
  std::error_code error;
  for (const std::filesystem::path& path : paths) {
    if (!std::filesystem::is_directory(path, error)) {
      // A device may have no end, and a FIFO gives what it has only once.
      if (std::filesystem::exists(path, error) && !std::filesystem::is_regular_file(path, error))
        throw UserError(fmt::format("{}: is a FIFO or a device; a sweep reads files", path.string()));
      files.push_back(path);
      continue;
    }
    for (const auto& entry : std::filesystem::directory_iterator(path, error))
      if (entry.is_regular_file(error)) files.push_back(entry.path());
  }
  std::ranges::sort(files);
  return files;
}

std::uint64_t InputFiles::digest(const Paths& paths) {
  std::string text;
  for (const std::filesystem::path& path : files_of(paths)) {
    const auto [entry, is_new] = files_.try_emplace(path);
    State& state = entry->second;
    if (is_new) {
      std::error_code error;
      state.size = std::filesystem::file_size(path, error);
      state.written = std::filesystem::last_write_time(path, error);
      state.crc32 = crc32_of(path);
    }
    text += fmt::format("{} {} {:08x}\n", path.filename().string(), state.size, state.crc32);
  }
  return fnv1a64(text);
}

void InputFiles::check_unchanged(const Paths& paths) const {
  for (const std::filesystem::path& path : files_of(paths)) {
    std::error_code error;
    const auto read = files_.find(path);
    if (read != files_.end() && std::filesystem::file_size(path, error) == read->second.size && !error &&
        std::filesystem::last_write_time(path, error) == read->second.written && !error)
      continue;
    throw UserError(fmt::format("{}: has changed since the sweep started; sweep again with --resume", path.string()));
  }
}

}  // namespace csdsim::launch
