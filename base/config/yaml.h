// Parses YAML text into a Node tree. Only this file and yaml.cpp depend on yaml-cpp.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/config/diagnostics.h"
#include "base/config/node.h"

namespace csdsim::config {

/// Limits of the input, far above the size of scenarios that people write.
inline constexpr std::size_t kMaxFileBytes = std::size_t{1} << 20;
inline constexpr std::size_t kMaxDepth = 32;
inline constexpr std::size_t kMaxNodes = 100'000;

/// Parses one document whose root is a map. Every origin is `base` with its line and column. Duplicate keys, empty keys
/// and tags are recorded in `diagnostics` and the tree stays usable. Text that cannot be read at all (not UTF-8, not
/// YAML, empty, not a map, nested deeper than kMaxDepth, more than kMaxNodes nodes after alias expansion, larger than
/// kMaxFileBytes, more than one document) is recorded there too, and the result is an empty map.
Node parse_document(std::string_view text, const Origin& base, Diagnostics& diagnostics);

/// Parses the value of `--set PATH=VALUE` and merges it into `root`; `{}` empties a map. Errors are located as "--set
/// PATH=VALUE".
void apply_set(Node& root, const std::string& assignment, Diagnostics& diagnostics);

/// Returns the text of a file of at most kMaxFileBytes. Throws as read_text_file().
std::string read_file(const std::filesystem::path& path);

}  // namespace csdsim::config
