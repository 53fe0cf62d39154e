// Reads and writes whole files.
#pragma once

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "base/error.h"

namespace csdsim::report {

/// Writes a whole file and creates its directory. Throws UserError when that fails.
inline void write_file(const std::filesystem::path& path, const std::string& text) {
  std::error_code error;
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), error);
  if (error) throw UserError(fmt::format("{}: {}", path.parent_path().string(), error.message()));
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (!file) throw UserError(fmt::format("{}: cannot be written", path.string()));
}

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) throw UserError(fmt::format("{}: cannot be read", path.string()));
  return text.str();
}

}  // namespace csdsim::report
