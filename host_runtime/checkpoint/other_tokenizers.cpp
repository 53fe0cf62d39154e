#include "host_runtime/checkpoint/other_tokenizers.h"

#include <fmt/format.h>

#include <charconv>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "base/text.h"
#include "base/text_file.h"
#include "host_runtime/checkpoint/byte_level_tokenizer.h"
#include "host_runtime/checkpoint/json_file.h"
#include "host_runtime/checkpoint/mapped_file.h"
#include "host_runtime/checkpoint/tokenizer_json.h"

namespace csdsim::host {
namespace {

using nlohmann::json;

constexpr std::string_view kBase64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The bytes of base64; nothing where it is none.
std::optional<std::string> bytes_of_base64(std::string_view text) {
  while (text.ends_with('=')) text.remove_suffix(1);
  std::string bytes;
  std::uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const std::size_t value = kBase64.find(c);
    if (value == kBase64.npos) return {};
    bits = bits << 6 | static_cast<std::uint32_t>(value);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes.push_back(static_cast<char>(bits >> count & 0xFF));
  }
  return bytes;
}

struct TiktokenLine {
  std::string bytes;
  std::uint32_t id = 0;
};

std::optional<TiktokenLine> tiktoken_line(std::string_view line) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  const std::size_t blank = line.find(' ');
  if (blank == line.npos || blank == 0) return {};
  TiktokenLine result;
  const auto [end, error] = std::from_chars(line.data() + blank + 1, line.data() + line.size(), result.id);
  const std::optional<std::string> bytes = bytes_of_base64(line.substr(0, blank));
  if (error != std::errc{} || end != line.data() + line.size() || !bytes) return {};
  result.bytes = *bytes;
  return result;
}

std::string_view view_of(const MappedFile& file) {
  std::string_view text{reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);  // a byte-order mark
  return text;
}

/// Token ids by the text of a byte-level vocabulary.
std::map<std::string, json> ids_of(const json& vocabulary) {
  return vocabulary.is_object() ? vocabulary.get<std::map<std::string, json>>() : std::map<std::string, json>{};
}

/// The first token of which a tiktoken file says another thing; empty if there is none.
std::string tiktoken_difference(std::string_view text, const json& vocabulary) {
  std::map<std::string, json> ids;
  for (const auto& [token, id] : ids_of(vocabulary)) ids.emplace(bytes_of_byte_level(token).value_or(token), id);
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const std::optional<TiktokenLine> token = tiktoken_line(line);
    if (!token) return fmt::format("line {} is no tiktoken", number);
    const auto known = ids.find(token->bytes);
    if (known == ids.end() || known->second != token->id)
      return fmt::format("token {} is '{}' there", token->id, printable(token->bytes));
  }
  return "";
}

/// The first token of which vocab.json says another thing; empty if there is none.
std::string vocabulary_difference(const json& other, const json& fast) {
  std::map<std::string, json> ids = ids_of(fast["model"].value("vocab", json()));
  for (const json& added : fast.value("added_tokens", json::array()))
    ids.emplace(added.value("content", ""), added.value("id", json()));
  for (const auto& [token, id] : other.items()) {
    const auto known = ids.find(token);
    if (known == ids.end() || known->second != id) return fmt::format("'{}' is {} there", printable(token), id.dump());
  }
  return "";
}

/// The first merge of which merges.txt says another thing; empty if there is none.
std::string merges_difference(const std::filesystem::path& path, const json& merges) {
  TextLines lines(path);
  for (std::size_t at = 0; const std::optional<std::string_view> line = lines.next();) {
    if (lines.line() == 1 && line->starts_with("#version")) continue;
    if (at == merges.size()) return fmt::format("line {} is one merge more", lines.line());
    const json& merge = merges[at++];
    const bool pair = merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string();
    const std::string text = pair ? fmt::format("{} {}", merge[0].get<std::string>(), merge[1].get<std::string>())
                             : merge.is_string() ? merge.get<std::string>()
                                                 : "";
    if (*line != text) return fmt::format("line {} merges '{}'", lines.line(), printable(*line));
  }
  return "";
}

}  // namespace

bool is_tiktoken(const std::filesystem::path& path) {
  const MappedFile file(path);
  const std::string_view text = view_of(file);
  return tiktoken_line(text.substr(0, std::min(text.find('\n'), std::size_t{1024}))).has_value();
}

std::filesystem::path unread_tokenizer(const std::filesystem::path& directory) {
  std::filesystem::path first;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    const bool tokenizer = name == "tekken.json" || name.ends_with(".tiktoken") || name == "spiece.model" ||
                           name == "sentencepiece.bpe.model" || name.starts_with("tokenizer.model.");
    if (tokenizer && (first.empty() || entry.path() < first)) first = entry.path();
  }
  return first;
}

std::vector<std::string> other_tokenizers(const std::filesystem::path& fast) {
  const auto folder = fast.parent_path(), model = folder / "tokenizer.model", vocabulary = folder / "vocab.json",
             merges = folder / "merges.txt";
  if (!is_present(model) && !is_present(vocabulary) && !is_present(merges)) return {};
  const json file = read_json_object(fast, kTokenizerLimit);
  std::vector<std::string> notes;
  const auto note = [&](const std::filesystem::path& other, const std::string& difference) {
    if (!difference.empty())
      notes.push_back(fmt::format("{}: note: is not read: tokenizer.json counts, as in transformers, and differs: {}",
                                  other.string(), difference));
  };
  if (is_present(model)) {
    const MappedFile bytes(model);
    note(model, is_tiktoken(model) ? tiktoken_difference(view_of(bytes), file["model"].value("vocab", json()))
                                   : "it is byte-level, and this file is not");
  }
  if (is_present(vocabulary))
    note(vocabulary, vocabulary_difference(read_json_object(vocabulary, kTokenizerLimit), file));
  if (is_present(merges)) note(merges, merges_difference(merges, file["model"].value("merges", json::array())));
  return notes;
}

}  // namespace csdsim::host
