// Reads and writes whole files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace csdsim::report {

/// Creates a directory and those around it. UserError if that fails, such as for the name of a file.
void make_directory(const std::filesystem::path& path);

/// True if a file survives a loss of power once it is written. That takes milliseconds; points of a sweep are written
/// `later`, because the database of the sweep keeps their results.
enum class Durable : std::uint8_t { now, later };

/// Writes a whole file and creates its directory. What was there stays until all is written. A link in place of the
/// temporary file ("PATH.part") is never followed. Throws UserError when that fails.
void write_file(const std::filesystem::path& path, std::string_view text, Durable durable = Durable::now);

/// Throws UserError for a file that cannot be read.
std::string read_file(const std::filesystem::path& path);

}  // namespace csdsim::report
