// JSON as checkpoints use it, parsed strictly.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/units.h"
#include "host_runtime/checkpoint/mapped_file.h"

namespace csdsim::host {

/// Parses a whole JSON object. UserError starting with `where` (a path) for text that is not JSON, is not an object,
/// or has a key twice in one object.
nlohmann::json parse_json_object(std::string_view text, const std::string& where);

/// The text of a file of a checkpoint, as decode_text() makes it.
std::string text_of(const MappedFile& file, const std::filesystem::path& path);

/// Reads and parses a file of at most `limit` bytes.
nlohmann::json read_json_object(const std::filesystem::path& path, Bytes limit = Bytes::mib(16));

}  // namespace csdsim::host
