// Token ids in text files.
#pragma once

#include <fmt/format.h>

#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "host_runtime/core/model_config.h"
#include "report/files.h"

namespace csdsim::app {

/// Reads ids separated by blanks. Throws UserError for a word that is not an id, and for a file without ids.
inline std::vector<host::TokenId> read_token_ids(const std::filesystem::path& path) {
  std::istringstream words(report::read_file(path));
  std::vector<host::TokenId> tokens;
  std::string word;
  while (words >> word) {
    if (word.find_first_not_of("0123456789") != std::string::npos || word.size() > 9)
      throw UserError(fmt::format("{}: '{}' is not a token id; write ids separated by blanks", path.string(), word));
    tokens.emplace_back(static_cast<std::uint32_t>(std::stoul(word)));
  }
  if (tokens.empty()) throw UserError(fmt::format("{}: holds no token id", path.string()));
  return tokens;
}

}  // namespace csdsim::app
