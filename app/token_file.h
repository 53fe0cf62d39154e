// Texts and token ids in files.
#pragma once

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "host_runtime/core/model_config.h"

namespace csdsim::app {

/// More than any text that a run could read; a device has no end.
inline constexpr std::size_t kMostTextBytes = std::size_t{256} << 20;

/// The bytes of a file. Throws UserError for one that cannot be read or is too large.
inline std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text, block(std::size_t{1} << 20, '\0');
  while (file && text.size() <= kMostTextBytes) {
    file.read(block.data(), static_cast<std::streamsize>(block.size()));
    text.append(block, 0, static_cast<std::size_t>(file.gcount()));
  }
  if (text.size() > kMostTextBytes)
    throw UserError(fmt::format("{}: larger than the limit of {} MiB", path.string(), kMostTextBytes >> 20));
  if (!file.eof()) throw UserError(fmt::format("{}: cannot be read", path.string()));
  return text;
}

/// The ids of `text`, a part of the file `path`. Throws UserError for a word that is not an id.
inline std::vector<host::TokenId> token_ids(const std::string& text, const std::filesystem::path& path) {
  std::istringstream words(text);
  std::vector<host::TokenId> tokens;
  std::string word;
  while (words >> word) {
    if (word.find_first_not_of("0123456789") != std::string::npos || word.size() > 9)
      throw UserError(fmt::format("{}: '{}' is not a token id; write ids separated by blanks", path.string(), word));
    tokens.emplace_back(static_cast<std::uint32_t>(std::stoul(word)));
  }
  return tokens;
}

/// Reads ids separated by blanks. Throws UserError as token_ids(), and for a file without ids.
inline std::vector<host::TokenId> read_token_ids(const std::filesystem::path& path) {
  std::vector<host::TokenId> tokens = token_ids(read_text(path), path);
  if (tokens.empty()) throw UserError(fmt::format("{}: holds no token id", path.string()));
  return tokens;
}

/// Reads prompts: one per line that is not blank, as ids. Throws UserError as read_token_ids().
inline std::vector<std::vector<host::TokenId>> read_prompts_of_ids(const std::filesystem::path& path) {
  std::istringstream lines(read_text(path));
  std::vector<std::vector<host::TokenId>> prompts;
  std::string line;
  while (std::getline(lines, line))
    if (std::vector<host::TokenId> prompt = token_ids(line, path); !prompt.empty())
      prompts.push_back(std::move(prompt));
  if (prompts.empty()) throw UserError(fmt::format("{}: holds no token id", path.string()));
  return prompts;
}

}  // namespace csdsim::app
