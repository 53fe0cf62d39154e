#include "host_runtime/checkpoint/tokenizer_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "base/text_file.h"
#include "host_runtime/checkpoint/byte_level_tokenizer.h"
#include "host_runtime/checkpoint/config_fields.h"
#include "host_runtime/checkpoint/json_file.h"
#include "host_runtime/checkpoint/mapped_file.h"
#include "host_runtime/checkpoint/other_tokenizers.h"

namespace csdsim::host {
namespace {

using nlohmann::json;

// Messages about one file.
class Reader {
 public:
  explicit Reader(std::string path) : path_(std::move(path)) {}

  [[noreturn]] void fail(std::string_view field, const std::string& what) const {
    throw UserError(fmt::format("{}: {}: {}", path_, field, what));
  }
  // The member `name` of an object; null where it is absent.
  const json& member(const json& object, const char* name) const {
    static const json null;
    const auto it = object.is_object() ? object.find(name) : object.end();
    return it == object.end() ? null : *it;
  }
  // A member that may be absent, false, null or "", which all mean that it has no effect.
  void unused(const json& object, const char* name, std::string_view field) const {
    const json& value = member(object, name);
    if (!value.is_null() && value != false && value != "") {
      fail(fmt::format("{}.{}", field, name), fmt::format("{} is not implemented", printable(value.dump())));
    }
  }
  // Refuses members that nothing here reads.
  void only(const json& object, const std::vector<std::string>& known, const std::string& field) const {
    if (!object.is_object()) return;
    for (const auto& [name, value] : object.items())
      if (std::ranges::find(known, name) == known.end())
        fail(field + printable(name), fmt::format("csdsim does not read this key{}; take it out if it has no effect",
                                                  did_you_mean(name, known)));
  }
  std::string type(const json& object) const {
    const json& value = member(object, "type");
    return value.is_string() ? value.get<std::string>() : object.is_null() ? "none" : "?";
  }

 private:
  std::string path_;
};

TokenId read_id(const Reader& reader, const std::string& field, const json& id) {
  if (!id.is_number_unsigned() || id > kMaxCount) {
    reader.fail(field, fmt::format("expected a token id, found {}", printable(id.dump())));
  }
  return TokenId{id.get<std::uint32_t>()};
}

// Tokens in `added` are text, not byte-level text.
void read_vocabulary(const Reader& reader, const std::string& field, const json& vocabulary,
                     const std::vector<AddedToken>& added, BytePairEncoder& encoder) {
  if (!vocabulary.is_object()) {
    reader.fail(field, fmt::format("expected an object of token ids, found {}", vocabulary.type_name()));
  }
  for (const auto& [token, id] : vocabulary.items()) {
    const std::string where = fmt::format("{}: '{}'", field, printable(token));
    const TokenId value = read_id(reader, where, id);
    const std::optional<std::string> bytes = bytes_of_byte_level(token);
    if (!bytes) {
      if (std::ranges::find(added, token, &AddedToken::content) != added.end()) continue;
      reader.fail(where, "is not byte-level text");
    }
    if (!encoder.add_token(*bytes, value)) reader.fail(where, fmt::format("token id {} is there already", value.value));
  }
  if (const auto byte = encoder.missing_byte()) {
    reader.fail(field, fmt::format("byte 0x{:02X} has no token: not a byte-level vocabulary", *byte));
  }
}

void add_merge(const Reader& reader, const std::string& where, std::string_view left, std::string_view right,
               BytePairEncoder& encoder) {
  const auto l = bytes_of_byte_level(left), r = bytes_of_byte_level(right);
  if (!l || !r || l->empty() || r->empty() || !encoder.add_merge(*l, *r)) {
    reader.fail(where, fmt::format("'{}' and '{}': both and what they make must be tokens, and no pair may come twice",
                                   printable(left), printable(right)));
  }
}

// "a b"
void add_merge(const Reader& reader, const std::string& where, std::string_view line, BytePairEncoder& encoder) {
  const std::size_t blank = line.find(' ');
  if (blank == std::string_view::npos || line.find(' ', blank + 1) != std::string_view::npos) {
    reader.fail(where, fmt::format("expected two tokens with a blank between, found '{}'", printable(line)));
  }
  add_merge(reader, where, line.substr(0, blank), line.substr(blank + 1), encoder);
}

void read_merges(const Reader& reader, const json& merges, BytePairEncoder& encoder) {
  if (!merges.is_array()) {
    reader.fail("model.merges", fmt::format("expected an array, found {}", merges.type_name()));
  }
  for (std::size_t i = 0; i < merges.size(); ++i) {
    const json& merge = merges[i];
    const std::string where = fmt::format("model.merges[{}]", i);
    if (merge.is_string()) {
      add_merge(reader, where, merge.get_ref<const std::string&>(), encoder);
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      add_merge(reader, where, merge[0].get_ref<const std::string&>(), merge[1].get_ref<const std::string&>(), encoder);
    } else {
      reader.fail(where, fmt::format("expected two tokens, found {}", printable(merge.dump())));
    }
  }
}

std::vector<AddedToken> read_added(const Reader& reader, const json& tokens) {
  std::vector<AddedToken> added;
  if (tokens.is_null()) return added;
  if (!tokens.is_array()) {
    reader.fail("added_tokens", fmt::format("expected an array, found {}", tokens.type_name()));
  }
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const std::string where = fmt::format("added_tokens[{}]", i);
    const json& content = reader.member(tokens[i], "content");
    if (!content.is_string() || content.get_ref<const std::string&>().empty()) {
      reader.fail(where, "content is missing or not text");
    }
    reader.unused(tokens[i], "single_word", where);
    reader.only(tokens[i], {"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"}, where + ".");
    added.push_back({content.get<std::string>(), read_id(reader, where + ".id", reader.member(tokens[i], "id")),
                     reader.member(tokens[i], "normalized") == true, reader.member(tokens[i], "lstrip") == true,
                     reader.member(tokens[i], "rstrip") == true});
  }
  return added;
}

/// Keys of parts of a tokenizer.json that change no ids, by the part's type: what adds tokens around a text
/// (post_processor), makes text of tokens (decoder), and makes batches (truncation, padding).
const std::map<std::string, std::vector<std::string>, std::less<>> kComponents{
    {"post_processor/Sequence", {"type", "processors"}},
    {"post_processor/ByteLevel", {"type", "add_prefix_space", "trim_offsets", "use_regex"}},
    {"post_processor/TemplateProcessing", {"type", "single", "pair", "special_tokens"}},
    {"post_processor/RobertaProcessing", {"type", "sep", "cls", "trim_offsets", "add_prefix_space"}},
    {"post_processor/BertProcessing", {"type", "sep", "cls"}},
    {"decoder/Sequence", {"type", "decoders"}},
    {"decoder/ByteLevel", {"type", "add_prefix_space", "trim_offsets", "use_regex"}},
    {"decoder/ByteFallback", {"type"}},
    {"decoder/Fuse", {"type"}},
    {"decoder/Replace", {"type", "pattern", "content"}},
    {"decoder/Strip", {"type", "content", "start", "stop"}},
    {"truncation/none", {"direction", "max_length", "strategy", "stride"}},
    {"padding/none", {"strategy", "direction", "pad_to_multiple_of", "pad_id", "pad_type_id", "pad_token"}}};

/// Checks the keys of a part of which nothing is read.
void check_component(const Reader& reader, const std::string& part, const json& component, const std::string& where) {
  if (component.is_null()) return;
  const auto type = component.is_object() ? component.value("type", json("none")) : json();
  const auto known = kComponents.find(fmt::format("{}/{}", part, type.is_string() ? type.get<std::string>() : "?"));
  if (known == kComponents.end())
    reader.fail(where, fmt::format("csdsim does not know {}", printable(component.dump())));
  reader.only(component, known->second, where + ".");
  for (const char* const steps : {"processors", "decoders"})
    for (const auto& [index, step] : reader.member(component, steps).items())
      check_component(reader, part, step, fmt::format("{}.{}[{}]", where, steps, index));
  for (const char* const side : {"single", "pair"})
    for (const auto& [index, piece] : reader.member(component, side).items()) {
      const std::string at = fmt::format("{}.{}[{}].", where, side, index);
      reader.only(piece, {"SpecialToken", "Sequence"}, at);
      for (const auto& [kind, content] : piece.items()) reader.only(content, {"id", "type_id"}, at + kind + ".");
    }
  if (component.contains("special_tokens"))
    for (const auto& [name, token] : component["special_tokens"].items())
      reader.only(token, {"id", "ids", "tokens"}, fmt::format("{}.special_tokens.{}.", where, printable(name)));
  reader.only(reader.member(component, "pattern"), {"Regex", "String"}, where + ".pattern.");
}

const std::vector<std::string> kTopKeys{"version",       "truncation",     "padding", "added_tokens", "normalizer",
                                        "pre_tokenizer", "post_processor", "decoder", "model"};

struct Words {
  std::vector<std::string> patterns;  ///< each cuts the parts that the one before it has made
  bool prefix_space = false;
};

/// The pattern of a step that cuts text and keeps all of it; nothing for ByteLevel.
std::optional<std::string> read_split(const Reader& reader, const json& step, const std::string& where) {
  const std::string type = reader.type(step);
  if (type == "Digits") reader.only(step, {"type", "individual_digits"}, where + ".");
  if (type == "Digits") return reader.member(step, "individual_digits") == true ? R"(\p{N})" : R"(\p{N}+)";
  if (type == "ByteLevel") return {};
  if (type != "Split") {
    reader.fail(where, fmt::format("expected Split, Digits or ByteLevel, found {}; others are not implemented",
                                   printable(type)));
  }
  reader.only(step, {"type", "pattern", "behavior", "invert"}, where + ".");
  if (reader.member(step, "behavior") != "Isolated" || reader.member(step, "invert") == true) {
    reader.fail(where, "expected behavior Isolated, not inverted");
  }
  const json& pattern = reader.member(step, "pattern");
  reader.only(pattern, {"Regex", "String"}, where + ".pattern.");
  if (const json& regex = reader.member(pattern, "Regex"); regex.is_string()) return regex.get<std::string>();
  const json& literal = reader.member(pattern, "String");
  if (!literal.is_string() || literal.get_ref<const std::string&>().empty()) {
    reader.fail(where + ".pattern", "expected {\"Regex\": ...} or {\"String\": ...}");
  }
  return literal_pattern(literal.get<std::string>());
}

/// ByteLevel, alone or at the end of a sequence of steps that cut.
Words read_words(const Reader& reader, const json& words) {
  Words result;
  const json* level = &words;
  if (reader.type(words) == "Sequence") {
    reader.only(words, {"type", "pretokenizers"}, "pre_tokenizer.");
    const json& steps = reader.member(words, "pretokenizers");
    if (!steps.is_array() || steps.empty()) reader.fail("pre_tokenizer.pretokenizers", "expected a list of steps");
    for (std::size_t i = 0; i + 1 < steps.size(); ++i) {
      const std::string where = fmt::format("pre_tokenizer.pretokenizers[{}]", i);
      const std::optional<std::string> pattern = read_split(reader, steps[i], where);
      if (!pattern) reader.fail(where, "ByteLevel must be the last step");
      result.patterns.push_back(*pattern);
    }
    level = &steps.back();
  }
  if (reader.type(*level) != "ByteLevel") {
    reader.fail("pre_tokenizer",
                fmt::format("expected ByteLevel, alone or after others, found {}", printable(reader.type(*level))));
  }
  reader.only(*level, {"type", "add_prefix_space", "trim_offsets", "use_regex"}, "pre_tokenizer.");
  result.prefix_space = reader.member(*level, "add_prefix_space") == true;
  if (result.prefix_space && !result.patterns.empty()) {
    reader.fail("pre_tokenizer", "add_prefix_space after other steps is not implemented");
  }
  if (reader.member(*level, "use_regex") != false) result.patterns.emplace_back(kGpt2Pattern);
  if (result.patterns.empty()) reader.fail("pre_tokenizer", "nothing splits text into words");
  return result;
}

/// Whether text is normalised to NFC: none, NFC, or a sequence of these.
bool read_nfc(const Reader& reader, const json& normalizer) {
  const std::string type = reader.type(normalizer);
  reader.only(normalizer, {"type", type == "Sequence" ? "normalizers" : "type"}, "normalizer.");
  if (type == "none" || type == "NFC") return type == "NFC";
  const json& steps = reader.member(normalizer, "normalizers");
  if (type != "Sequence" || !steps.is_array()) {
    reader.fail("normalizer", fmt::format("expected none, NFC or a Sequence of them, found {}", printable(type)));
  }
  return std::ranges::count_if(steps, [&](const json& step) { return read_nfc(reader, step); }) > 0;
}

/// Adds what the files beside a tokenizer.json say to its added tokens. Where they disagree, tokenizer.json counts.
std::vector<std::string> add_settings(const std::filesystem::path& path, const json& vocabulary, const Words& words,
                                      std::vector<AddedToken>& added) {
  const auto known_id = [&](const std::string& token) -> std::optional<TokenId> {
    if (!vocabulary.is_object() || !vocabulary.contains(token)) return {};
    return read_id(Reader(path.string()), "model.vocab", vocabulary[token]);
  };
  const auto id_of = [&](const std::string& token) {
    const auto known = std::ranges::find(added, token, &AddedToken::content);
    return known != added.end() ? known->id : known_id(token);
  };
  TokenizerSettings settings = read_tokenizer_settings(path.parent_path(), id_of);
  if (settings.prefix_space.value_or(words.prefix_space) != words.prefix_space)
    throw UserError(fmt::format("{}: add_prefix_space: contradicts pre_tokenizer of tokenizer.json",
                                (path.parent_path() / "tokenizer_config.json").string()));
  for (const AddedToken& token : settings.tokens) {
    const std::optional<TokenId> known = id_of(token.content);
    if (known && *known != token.id)
      settings.notes.push_back(fmt::format("{}: note: '{}' is token {}; a file beside it says {}, which is not read",
                                           path.string(), printable(token.content), known->value, token.id.value));
    if (known && std::ranges::find(added, token.content, &AddedToken::content) != added.end()) continue;
    added.push_back(token);
    added.back().id = known.value_or(token.id);
  }
  std::ranges::move(number_tokens(added, vocabulary.size(), known_id, path.parent_path()),
                    std::back_inserter(settings.notes));
  return std::move(settings.notes);
}

std::vector<TextSplitter> splitters(const std::vector<std::string>& patterns, const std::string& where) {
  std::vector<TextSplitter> all;
  for (const std::string& pattern : patterns) all.emplace_back(pattern, where);
  return all;
}

}  // namespace

Tokenizer open_tokenizer_json(const std::filesystem::path& path) {
  const json file = read_json_object(path, kTokenizerLimit);
  const Reader reader(path.string());
  reader.only(file, kTopKeys, "");
  for (const char* const part : {"truncation", "padding", "post_processor", "decoder"})
    check_component(reader, part, reader.member(file, part), part);
  const json& model = reader.member(file, "model");
  if (reader.type(model) != "BPE") {
    reader.fail("model.type", fmt::format("expected BPE (byte-level), found {}; a sentencepiece tokenizer is read from "
                                          "tokenizer.model",
                                          printable(reader.type(model))));
  }
  if (reader.member(model, "byte_fallback") == true)
    reader.fail("model.byte_fallback",
                "a tokenizer of sentencepiece's kind is read from tokenizer.model; put that of the "
                "model beside this file");
  for (const char* field : {"dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback"}) {
    reader.unused(model, field, "model");
  }
  // unk_token and fuse_unk have no effect where every byte has a token.
  reader.only(model,
              {"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
               "byte_fallback", "ignore_merges", "vocab", "merges"},
              "model.");
  const Words words = read_words(reader, reader.member(file, "pre_tokenizer"));
  ByteLevelTokenizer::Parts parts{.encoder = {},
                                  .words = splitters(words.patterns, path.string() + ": pre_tokenizer"),
                                  .added = read_added(reader, reader.member(file, "added_tokens")),
                                  .nfc = read_nfc(reader, reader.member(file, "normalizer")),
                                  .prefix_space = words.prefix_space};
  std::vector<std::string> notes = add_settings(path, reader.member(model, "vocab"), words, parts.added);
  read_vocabulary(reader, "model.vocab", reader.member(model, "vocab"), parts.added, parts.encoder);
  read_merges(reader, reader.member(model, "merges"), parts.encoder);
  parts.encoder.set_whole_words(reader.member(model, "ignore_merges") == true);
  std::ranges::move(other_tokenizers(path), std::back_inserter(notes));
  return {std::make_unique<ByteLevelTokenizer>(std::move(parts)), path, std::move(notes)};
}

Tokenizer open_vocabulary_and_merges(const std::filesystem::path& vocabulary, const std::filesystem::path& merges) {
  ByteLevelTokenizer::Parts parts{
      .encoder = {}, .words = splitters({kGpt2Pattern}, "GPT-2"), .added = {}, .nfc = false, .prefix_space = false};
  const json known = read_json_object(vocabulary, kTokenizerLimit);
  const Reader of_vocabulary(vocabulary.string());
  const auto id_of = [&](const std::string& token) -> std::optional<TokenId> {
    if (!known.contains(token)) return {};
    return read_id(of_vocabulary, fmt::format("vocabulary: '{}'", printable(token)), known[token]);
  };
  TokenizerSettings settings = read_tokenizer_settings(vocabulary.parent_path(), id_of);
  std::ranges::move(number_tokens(settings.tokens, known.size(), id_of, vocabulary.parent_path()),
                    std::back_inserter(settings.notes));
  parts.added = std::move(settings.tokens);
  parts.prefix_space = settings.prefix_space.value_or(false);
  read_vocabulary(of_vocabulary, "vocabulary", known, parts.added, parts.encoder);
  const MappedFile file(merges);
  const Reader reader(merges.string());
  const std::string text = text_of(file, merges);
  refuse_lone_returns(text, merges.string());
  std::string_view rest = text;
  for (std::size_t number = 1; !rest.empty(); ++number) {
    std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    const bool version = number == 1 && line.starts_with("#version");
    if (!line.empty() && !version) add_merge(reader, fmt::format("line {}", number), line, parts.encoder);
  }
  return {std::make_unique<ByteLevelTokenizer>(std::move(parts)), vocabulary, std::move(settings.notes)};
}

std::vector<AddedToken> read_added_tokens(const std::filesystem::path& path) {
  const json file = read_json_object(path, kTokenizerLimit);
  const Reader reader(path.string());
  reader.only(file, kTopKeys, "");
  return read_added(reader, reader.member(file, "added_tokens"));
}

}  // namespace csdsim::host
