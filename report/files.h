// Reads and writes whole files.
#pragma once

#include <fmt/format.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <system_error>

#include "base/error.h"

namespace csdsim::report {

/// Creates a directory and those around it. UserError if that fails, such as for the name of a file.
inline void make_directory(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) throw UserError(fmt::format("{}: {}", path.string(), error.message()));
}

/// Writes a whole file and creates its directory. What was there stays until all is written. Throws UserError when that
/// fails.
inline void write_file(const std::filesystem::path& path, const std::string& text) {
  if (path.has_parent_path()) make_directory(path.parent_path());
  // A device or a pipe cannot be replaced.
  const bool replaces = !std::filesystem::exists(path) || std::filesystem::is_regular_file(path);
  std::filesystem::path written = path;
  if (replaces) written += ".part";
  errno = 0;
  std::ofstream file(written, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  std::error_code error(file ? 0 : errno, std::generic_category());
  if (file && replaces) std::filesystem::rename(written, path, error);
  if (file && !error) return;
  if (std::error_code none; replaces) std::filesystem::remove(written, none);
  throw UserError(fmt::format("{}: cannot be written{}", path.string(), error ? ": " + error.message() : ""));
}

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) throw UserError(fmt::format("{}: cannot be read", path.string()));
  return text.str();
}

}  // namespace csdsim::report
