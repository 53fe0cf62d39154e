// Texts and token ids in files.
#pragma once

#include <fmt/format.h>

#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "base/text_file.h"
#include "host_runtime/core/model/model_config.h"

namespace csdsim::app {

/// More than any text that a run could read; a device has no end.
inline constexpr Bytes kMostTextBytes = Bytes::mib(256);

/// The text of a file. Throws UserError as read_text_file().
inline std::string read_text(const std::filesystem::path& path) { return read_text_file(path, kMostTextBytes); }

/// The ids of `text`, a part of the file `path`. Throws UserError for a word that is not an id.
inline std::vector<host::TokenId> token_ids(const std::string& text, const std::filesystem::path& path) {
  std::istringstream words(text);
  std::vector<host::TokenId> tokens;
  std::string word;
  while (words >> word) {
    if (word.find_first_not_of("0123456789") != std::string::npos || word.size() > 9)
      throw UserError(
          fmt::format("{}: '{}' is not a token id; write ids separated by blanks", path.string(), printable(word)));
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
  const std::string text = read_text(path);
  refuse_lone_returns(text, path.string());
  std::istringstream lines(text);
  std::vector<std::vector<host::TokenId>> prompts;
  std::string line;
  while (std::getline(lines, line))
    if (std::vector<host::TokenId> prompt = token_ids(line, path); !prompt.empty())
      prompts.push_back(std::move(prompt));
  if (prompts.empty()) throw UserError(fmt::format("{}: holds no token id", path.string()));
  return prompts;
}

}  // namespace csdsim::app
