// Byte-level tokenizers against Hugging Face tokenizers (tests/data/golden), and broken files.
#include <catch2/catch.hpp>
#include <chrono>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>

#include "base/error.h"
#include "host_runtime/checkpoint/byte_pair_encoder.h"
#include "host_runtime/checkpoint/checkpoint.h"
#include "host_runtime/checkpoint/config_json.h"
#include "host_runtime/checkpoint/sentencepiece_tokenizer.h"
#include "host_runtime/checkpoint/tokenizer_json.h"
#include "host_runtime/checkpoint/unicode.h"
#include "tests/host_runtime/tiny_checkpoint.h"

namespace test_tokenizer {

using namespace csdsim;
using namespace csdsim::host;
using namespace csdsim::test;
using Catch::Matchers::Contains;
using nlohmann::json;

namespace {

const std::filesystem::path kGolden = std::filesystem::path(CSDSIM_SOURCE_DIR) / "tests/data/golden";

std::vector<TokenId> ids_of(const json& array) {
  std::vector<TokenId> ids;
  for (const json& id : array) ids.emplace_back(id.get<std::uint32_t>());
  return ids;
}

Tokenizer golden_tokenizer(const std::string& name) { return open_tokenizer(kGolden / name); }

}  // namespace

TEST_CASE("tokenizers of every form give the ids and the text of Hugging Face tokenizers") {
  // Llama 3, Qwen2 and OPT; mistral has digits one by one, as SmolLM, and qwen3 several splits, as DeepSeek.
  for (const char* name : {"llama3", "qwen2", "opt", "mistral", "qwen3"}) {
    const Tokenizer tokenizer = golden_tokenizer(name);
    const json golden = json::parse(std::ifstream(kGolden / name / "tokens.json"));
    for (const json& item : golden["cases"]) {
      INFO(name << ": " << item["text"]);
      const auto ids = tokenizer.encode(item["text"].get<std::string>());
      CHECK(ids == ids_of(item["ids"]));
      CHECK(tokenizer.decode(ids) == item["decoded"].get<std::string>());
    }
    for (const json& item : golden["cut"]) {
      INFO(name << ": " << item["ids"]);
      CHECK(tokenizer.decode(ids_of(item["ids"])) == item["decoded"].get<std::string>());
    }
  }
}

namespace {

void check_cases(const Tokenizer& tokenizer, const json& golden) {
  REQUIRE(golden["cases"].size() >= 30);
  for (const json& item : golden["cases"]) {
    INFO(item["text"]);
    CHECK(tokenizer.encode(item["text"].get<std::string>()) == ids_of(item["ids"]));
  }
}

}  // namespace

TEST_CASE("special and added tokens in text get their ids, as in Hugging Face transformers") {
  const json golden = json::parse(std::ifstream(kGolden / "special_tokens.json"));
  SECTION("of a sentencepiece model that puts a blank before text") {
    std::ifstream file(CSDSIM_SOURCE_DIR "/models/llama-gqa-6m/tokenizer.model", std::ios::binary);
    const std::string model(std::istreambuf_iterator<char>(file), {});
    for (const char* form : {"sentencepiece", "legacy"}) {
      const TemporaryDirectory directory;
      write_file(directory / "tokenizer.model", model + std::string("\x1A\x02\x18\x01", 4));
      write_file(directory / "tokenizer_config.json", golden[form]["config"].dump());
      const Tokenizer tokenizer = open_sentencepiece(directory / "tokenizer.model");
      CHECK(tokenizer.vocabulary() == 4098);
      check_cases(tokenizer, golden[form]);
      // Ids of other tokens: transformers 5.24 (LlamaTokenizer) gives these.
      std::filesystem::remove(directory / "tokenizer_config.json");
      write_file(directory / "added_tokens.json", R"({"<a>": 300, "<b>": 5, "<c>": 5000})");
      CHECK(open_tokenizer(directory.path()).encode("<a><b><c>") == ids_of(json{4097, 4096, 4098}));
      const std::string text = "int x;<|im_end|>int y;";
      CHECK(tokenizer.decode(tokenizer.encode(text)) ==
            (form == std::string("legacy") ? "int x;<|im_end|>int y;" : text));
    }
  }
  SECTION("that take the white space beside them") {
    const TemporaryDirectory directory;
    json fast = json::parse(std::ifstream(kGolden / "qwen2" / "tokenizer.json"));
    fast["added_tokens"] = golden["stripping"]["added_tokens"];
    write_file(directory / "tokenizer.json", fast.dump());
    check_cases(open_tokenizer(directory.path()), golden["stripping"]);
    // The same, stated beside the tokenizer.
    json decoder = json::object(), own = json::array();
    for (const json& token : fast["added_tokens"]) {
      const bool listed = token["id"] < 512;
      if (listed) own.push_back(token);
      if (listed) continue;
      json of_id = token;
      of_id.erase("id");
      decoder[std::to_string(token["id"].get<int>())] = of_id;
    }
    fast["added_tokens"] = own;
    write_file(directory / "tokenizer.json", fast.dump());
    write_file(directory / "tokenizer_config.json", json{{"added_tokens_decoder", decoder}}.dump());
    check_cases(open_tokenizer(directory.path()), golden["stripping"]);
  }
  SECTION("of a vocabulary and its merges") {
    const TemporaryDirectory directory;
    for (const char* name : {"vocab.json", "merges.txt"})
      std::filesystem::copy_file(kGolden / "opt" / name, directory / name);
    const json& of_gpt2 = golden["vocabulary_and_merges"];
    write_file(directory / "special_tokens_map.json", of_gpt2["special_tokens_map"].dump());
    write_file(directory / "added_tokens.json", of_gpt2["added_tokens"].dump());
    check_cases(open_vocabulary_and_merges(directory / "vocab.json", directory / "merges.txt"), of_gpt2);
    // Ids of other tokens, and one that leaves a gap: transformers 5.24 (GPT2Tokenizer) gives these.
    write_file(directory / "added_tokens.json", R"({"<a>": 300, "<b>": 5, "<c>": 5000})");
    std::filesystem::remove(directory / "special_tokens_map.json");
    const Tokenizer renumbered = open_vocabulary_and_merges(directory / "vocab.json", directory / "merges.txt");
    CHECK(renumbered.encode("x<a>y<b>z<c>") == ids_of(json{87, 511, 88, 510, 89, 512}));
    CHECK(renumbered.notes().size() == 3);
  }
}

TEST_CASE("the special tokens of the shipped models, without any file that names them") {
  const Tokenizer tokenizer = open_sentencepiece(CSDSIM_SOURCE_DIR "/models/opt-6m/tokenizer.model");
  std::vector<TokenId> expected{TokenId{1}};
  for (const TokenId id : tokenizer.encode("static int")) expected.push_back(id);
  expected.push_back(TokenId{2});
  CHECK(tokenizer.encode("<s>static int</s>") == expected);
}

TEST_CASE("files that name added tokens are refused with file and field") {
  const auto refused = [&](const char* name, const std::string& text, const std::string& reason) {
    const TemporaryDirectory directory;
    for (const char* copied : {"vocab.json", "merges.txt"})
      std::filesystem::copy_file(kGolden / "opt" / copied, directory / copied);
    write_file(directory / name, text);
    CHECK_THROWS_WITH(open_vocabulary_and_merges(directory / "vocab.json", directory / "merges.txt"),
                      Contains((directory / name).string() + ": " + reason));
  };
  refused("added_tokens.json", R"({"<x>": -1})", "<x>: expected a token id, found '-1'");
  refused("added_tokens.json", R"(["<x>"])", "expected a JSON object");
  refused("tokenizer_config.json", R"({"added_tokens_decoder": {"one": {"content": "<x>"}}})",
          "added_tokens_decoder.one: expected a token id, found 'one'");
  refused("tokenizer_config.json", R"({"added_tokens_decoder": {"600": {"contents": "<x>"}}})",
          "added_tokens_decoder.600: expected the text of a token");
  refused("special_tokens_map.json", R"({"mask_token": {"content": "<m>", "single_word": true}})",
          "mask_token: single_word: expected false, found true: not implemented");
  refused("special_tokens_map.json", R"({"mask_token": {"content": "<m>", "lstrip": 1}})",
          "mask_token: lstrip: expected true or false, found 1");
  refused("special_tokens_map.json", R"({"mask_token": {"content": "<m>", "lstripp": false}})",
          "mask_token: lstripp: csdsim does not read this key (did you mean lstrip?)");
  refused("special_tokens_map.json", R"({"mask": "<m>"})", "mask: csdsim does not read this key");
  refused("tokenizer_config.json", R"({"add_prefix_spaces": true})",
          "add_prefix_spaces: csdsim does not read this key (did you mean add_prefix_space?)");
  refused("tokenizer_config.json", R"({"split_special_tokens": true})", "split_special_tokens: expected false");
}

namespace {

/// A folder with a tokenizer.json and files beside it.
struct Folder {
  TemporaryDirectory directory;
  json fast = json::parse(std::ifstream(kGolden / "qwen2" / "tokenizer.json"));

  Folder() { write_file(directory / "tokenizer.json", fast.dump()); }
  Tokenizer open() const { return open_tokenizer(directory.path()); }
  std::string notes() const {
    std::string all;
    const Tokenizer tokenizer = open();
    for (const std::string& note : tokenizer.notes()) all += note + "\n";
    return all;
  }
  /// The last token of a text.
  std::uint32_t last(const std::string& text) const { return open().encode(text).back().value; }
};

}  // namespace

TEST_CASE("files beside a tokenizer.json add tokens, and where they disagree a note says which counts") {
  const Folder folder;
  CHECK(folder.notes().empty());
  write_file(folder.directory / "added_tokens.json", R"({"<|new|>": 600})");
  // tokenizers numbers new tokens, whatever id a file says.
  CHECK(folder.last("a<|new|>") == 512);
  CHECK(folder.open().vocabulary() == 513);
  CHECK_THAT(folder.notes(), Contains("note: a file says that '<|new|>' is token 600; it is token 512, as in "
                                      "transformers: new tokens follow the vocabulary"));
  write_file(folder.directory / "added_tokens.json", R"({"<|new|>": 512})");
  CHECK(folder.notes().empty());
  // As in transformers, added_tokens_decoder comes before added_tokens.json.
  write_file(folder.directory / "tokenizer_config.json",
             R"({"added_tokens_decoder": {"700": {"content": "<|newer|>"}}})");
  CHECK(folder.last("a<|newer|>") == 512);
  CHECK(folder.last("a<|new|>") != 512);
  CHECK_THAT(folder.notes(),
             Contains("tokenizer_config.json: note: added_tokens_decoder lacks tokens of added_tokens"));
  const json& known = folder.fast["added_tokens"][0];
  const std::string content = known["content"];
  write_file(folder.directory / "added_tokens.json", "{}");
  write_file(folder.directory / "tokenizer_config.json",
             json{{"added_tokens_decoder", {{"700", {{"content", content}}}}}}.dump());
  CHECK(folder.last("a" + content) == known["id"]);
  CHECK_THAT(folder.notes(), Contains("a file beside it says 700, which is not read"));
  write_file(folder.directory / "tokenizer_config.json", R"({"add_prefix_space": true})");
  CHECK_THROWS_WITH(folder.open(), Contains("add_prefix_space: contradicts pre_tokenizer of tokenizer.json"));
  write_file(folder.directory / "tokenizer_config.json", "{}");

  json vocabulary = folder.fast["model"]["vocab"];
  write_file(folder.directory / "vocab.json", vocabulary.dump());
  CHECK(folder.notes().empty());
  vocabulary["!"] = 9;
  write_file(folder.directory / "vocab.json", vocabulary.dump());
  CHECK_THAT(folder.notes(),
             Contains("vocab.json: note: is not read: tokenizer.json counts") && Contains("differs: '!' is 9 there"));
  std::filesystem::remove(folder.directory / "vocab.json");
  std::string merges = "#version: 0.2\n";
  for (const json& merge : folder.fast["model"]["merges"])
    merges += merge.is_string() ? merge.get<std::string>() + "\n"
                                : merge[0].get<std::string>() + " " + merge[1].get<std::string>() + "\n";
  write_file(folder.directory / "merges.txt", merges);
  CHECK(folder.notes().empty());
  write_file(folder.directory / "merges.txt", merges + "h e\n");
  CHECK_THAT(folder.notes(), Contains("merges.txt: note: is not read") && Contains("is one merge more"));
  write_file(folder.directory / "merges.txt", "#version: 0.2\nh e\n");
  CHECK_THAT(folder.notes(), Contains("differs: line 2 merges 'h e'"));
  std::filesystem::remove(folder.directory / "merges.txt");
  write_file(folder.directory / "tokenizer.model", "IQ== 0\r\nIg== 1\r\n");  // "!" and "\""
  CHECK(folder.notes().empty());
  write_file(folder.directory / "tokenizer.model", "IQ== 1\nIg== 0\n");
  CHECK_THAT(folder.notes(), Contains("differs: token 1 is '!' there"));
  std::filesystem::copy_file(CSDSIM_SOURCE_DIR "/models/opt-6m/tokenizer.model", folder.directory / "tokenizer.model",
                             std::filesystem::copy_options::overwrite_existing);
  CHECK_THAT(folder.notes(), Contains("differs: it is byte-level, and this file is not"));
}

namespace {

/// Texts and scores of a sentencepiece model, by id: field 1 of the ModelProto, whose fields 1 and 2 they are.
std::vector<std::pair<std::string, float>> pieces_of(const std::string& model) {
  std::vector<std::pair<std::string, float>> pieces;
  for (std::size_t at = 0; at + 2 < model.size() && model[at] == 0x0A;) {
    const auto length = static_cast<std::size_t>(model[at + 1]), text = static_cast<std::size_t>(model[at + 3]);
    float score = 0;
    if (text + 2 < length) std::memcpy(&score, model.data() + at + 5 + text, sizeof score);
    pieces.emplace_back(model.substr(at + 4, text), score);
    at += 2 + length;
  }
  return pieces;
}

}  // namespace

TEST_CASE("a tokenizer.model has to say the same as a tokenizer.json beside it that is not byte-level") {
  const TemporaryDirectory directory;
  std::ifstream file(CSDSIM_SOURCE_DIR "/models/opt-6m/tokenizer.model", std::ios::binary);
  const std::string model(std::istreambuf_iterator<char>(file), {});
  write_file(directory / "tokenizer.model", model);
  const auto pieces = pieces_of(model);
  REQUIRE(pieces.size() == 4096);
  json fast = {{"model", {{"type", "BPE"}, {"vocab", json::object()}, {"merges", json::array()}}},
               {"pre_tokenizer", nullptr},
               {"added_tokens", {{{"id", 4096}, {"content", "<|new|>"}}}}};
  for (std::size_t id = 0; id < pieces.size(); ++id) fast["model"]["vocab"][pieces[id].first] = id;
  const auto open = [&](const json& tokenizer) {
    write_file(directory / "tokenizer.json", tokenizer.dump());
    return open_tokenizer(directory.path());
  };
  CHECK(open(fast).encode("int<|new|>").back() == TokenId{4096});
  CHECK(open(fast).file().filename() == "tokenizer.model");
  json changed = fast;
  changed["model"]["vocab"][pieces[300].first] = 301;
  CHECK_THROWS_WITH(open(changed), Contains("tokenizer.model: disagrees with tokenizer.json, which transformers reads: "
                                            "token 300 is '"));
  changed = fast;
  changed["model"]["vocab"] = json::array();
  for (const auto& [piece, score] : pieces) changed["model"]["vocab"].push_back({piece, score});
  open(changed);
  changed["model"]["vocab"].erase(4095);
  CHECK_THROWS_WITH(open(changed), Contains("token 4095 is"));
  // Two pieces of two letters, the likelier one second.
  std::vector<std::pair<float, std::string>> pairs;
  for (const auto& [piece, score] : pieces)
    if (piece.size() == 2 && std::isalpha(piece[0]) && std::isalpha(piece[1])) pairs.emplace_back(score, piece);
  std::ranges::sort(pairs);
  REQUIRE(pairs.front().first < pairs.back().first);
  const auto merge = [](const std::string& piece) { return piece.substr(0, 1) + " " + piece.substr(1); };
  fast["model"]["merges"] = {merge(pairs.back().second), merge(pairs.front().second)};
  open(fast);
  std::swap(fast["model"]["merges"][0], fast["model"]["merges"][1]);
  CHECK_THROWS_WITH(open(fast), Contains("'" + pairs.back().second + "' is merged earlier in tokenizer.model"));
}

TEST_CASE("merging with a queue equals merging the best pair again and again") {
  const unsigned seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937 rng(seed);
  for (int round = 0; round < 50; ++round) {
    BytePairEncoder encoder;
    std::vector<std::string> tokens;
    for (unsigned byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
    for (std::uint32_t i = 0; i < 256; ++i) REQUIRE(encoder.add_token(tokens[i], TokenId{i}));
    // Merges over three letters, so that many of them compete.
    std::vector<std::string> used{"a", "b", "c"};
    std::vector<std::pair<std::string, std::string>> merges;
    for (int i = 0; i < 40; ++i) {
      const std::string left = used[rng() % used.size()], right = used[rng() % used.size()];
      if (encoder.add_token(left + right, TokenId{static_cast<std::uint32_t>(256 + i)})) used.push_back(left + right);
      if (encoder.add_merge(left, right)) merges.emplace_back(left, right);
    }
    std::string word;
    for (auto i = rng() % 60; i > 0; --i) word.push_back("abc"[rng() % 3]);
    std::vector<std::string> symbols;
    for (const char c : word) symbols.emplace_back(1, c);
    for (bool merged = true; merged;) {
      merged = false;
      for (const auto& [left, right] : merges) {
        for (std::size_t i = 0; !merged && i + 1 < symbols.size(); ++i) {
          if (symbols[i] != left || symbols[i + 1] != right) continue;
          symbols[i] += right;
          symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(i) + 1);
          merged = true;
        }
        if (merged) break;
      }
    }
    std::vector<TokenId> found;
    encoder.encode(word, found);
    std::vector<std::string> text;
    for (const TokenId id : found) text.push_back(*encoder.bytes(id));
    INFO(word);
    CHECK(text == symbols);
  }
}

TEST_CASE("a word that is a token stays whole where merges are ignored for it") {
  const TemporaryDirectory directory;
  const auto path = directory / "tokenizer.json";
  json file = json::parse(std::ifstream(kGolden / "llama3" / "tokenizer.json"));
  file["model"]["vocab"]["qzx"] = 600;  // no merge makes it
  for (const bool ignore : {true, false}) {
    file["model"]["ignore_merges"] = ignore;
    write_file(path, file.dump());
    const Tokenizer tokenizer = open_tokenizer_json(path);
    CHECK(tokenizer.encode("qzx").size() == (ignore ? 1 : 3));
    CHECK(tokenizer.encode("qzxq").size() == 4);
    CHECK(tokenizer.vocabulary() == 601);
    // Ids between the tokens of the file and 600 stand for nothing.
    const TokenId unused{550};
    CHECK(tokenizer.decode({&unused, 1}).empty());
  }
}

TEST_CASE("words of a million bytes come back: neither the stack nor quadratic time is in the way") {
  for (const char* name : {"llama3", "qwen2", "opt"}) {
    const Tokenizer tokenizer = golden_tokenizer(name);
    for (const std::string part : {"a", " ", "\n", "1", "!", "ab", " \n", "é"}) {
      std::string text;
      while (text.size() < 1'000'000) text += part;
      CHECK(tokenizer.decode(tokenizer.encode(text)) == text);
    }
  }
}

TEST_CASE("text that is not UTF-8, and ids that are no tokens, are refused") {
  const Tokenizer tokenizer = golden_tokenizer("qwen2");
  CHECK_THROWS_WITH(tokenizer.encode("ab\xC3("), "text cannot be tokenised: byte 2 is not valid UTF-8");
  const TokenId outside{512};
  CHECK_THROWS_WITH(tokenizer.decode({&outside, 1}), "token id 512 is outside the tokenizer's vocabulary of 512");
}

TEST_CASE("a regular expression that tries ever more ways to match ends with an error, long text does not") {
  const TemporaryDirectory directory;
  const auto path = directory / "tokenizer.json";
  json tokenizer = json::parse(std::ifstream(kGolden / "qwen2" / "tokenizer.json"));
  json& pattern = tokenizer["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"];
  const std::string good = pattern;
  const std::string text(200, 'a');
  for (const char* const explodes : {"(a+)+$b", "(a|aa)+b", "(?:a*)*b", "(a?){200}a{200}"}) {
    pattern = explodes;
    write_file(path, tokenizer.dump());
    const Tokenizer opened = open_tokenizer_json(path);
    const auto start = std::chrono::steady_clock::now();
    CHECK_THROWS_WITH(opened.encode(text), Contains(path.string() + ": pre_tokenizer: text cannot be tokenised") &&
                                               Contains(explodes) && Contains("tries too many ways"));
    CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(5));
  }
  pattern = good;
  write_file(path, tokenizer.dump());
  const Tokenizer opened = open_tokenizer_json(path);
  std::string words;
  for (int i = 0; i < 100'000; ++i) words += i % 7 == 0 ? "  \n  word123 " : "word, don't ";
  CHECK(opened.decode(opened.encode(words)) == words);
  for (const char c : {'a', ' ', '7', '!', '\n'}) {
    const std::string run(300'000, c);
    CHECK(opened.decode(opened.encode(run)) == run);
  }
}

TEST_CASE("a split at a given text takes it literally") {
  const TextSplitter splitter(literal_pattern("a.b*[é]"), "here");
  CHECK(splitter.split("xa.b*[é]ya.b*[é]aXb") == std::vector<std::string>{"x", "a.b*[é]", "y", "a.b*[é]", "aXb"});
}

TEST_CASE("empty texts, characters that become longer, and bytes that are none") {
  CHECK(TextSplitter("", "here").split("aé") == std::vector<std::string>{"a", "é"});
  CHECK(TextSplitter("a", "here").split("").empty());
  // Characters that become longer: three of three code points each.
  CHECK(normalize_nfc("\uFB2C\uFB2C\uFB2C") == "\u05E9\u05BC\u05C1\u05E9\u05BC\u05C1\u05E9\u05BC\u05C1");
  CHECK(repair_utf8("a\xE2\x82z\xF0\x9F\x98\x80") == "a\uFFFDz\U0001F600");
}

TEST_CASE("a key of tokenizer.json that nothing reads does not pass, wherever it is") {
  const TemporaryDirectory directory;
  const auto path = directory / "tokenizer.json";
  const json good = json::parse(std::ifstream(kGolden / "qwen2" / "tokenizer.json"));
  using Pointer = json::json_pointer;
  for (const auto& [object, key] : {std::pair<std::string, std::string>{"", "dropuot"},
                                    {"/model", "dropuot"},
                                    {"/added_tokens/0", "lstrp"},
                                    {"/pre_tokenizer/pretokenizers/0", "inverted"},
                                    {"/pre_tokenizer/pretokenizers/1", "use_regx"}}) {
    json changed = good;
    changed[Pointer(object)][key] = true;
    write_file(path, changed.dump());
    CHECK_THROWS_WITH(open_tokenizer_json(path), Contains(key + ": csdsim does not read this key"));
  }
}

TEST_CASE("broken tokenizer.json is refused with file and field") {
  const TemporaryDirectory directory;
  const auto path = directory / "tokenizer.json";
  const json good = json::parse(std::ifstream(kGolden / "qwen2" / "tokenizer.json"));
  const auto refused = [&](const std::string& reason, const std::function<void(json&)>& change) {
    json broken = good;
    change(broken);
    write_file(path, broken.dump());
    CHECK_THROWS_WITH(open_tokenizer_json(path), Contains(path.string() + ": " + reason));
  };
  refused("model.type: expected BPE (byte-level), found none", [](json& t) { t.erase("model"); });
  refused("model.type: expected BPE (byte-level), found Unigram", [](json& t) { t["model"]["type"] = "Unigram"; });
  refused("model.byte_fallback: a tokenizer of sentencepiece's kind is read from tokenizer.model",
          [](json& t) { t["model"]["byte_fallback"] = true; });
  refused("model.end_of_word_suffix: \"</w>\"", [](json& t) { t["model"]["end_of_word_suffix"] = "</w>"; });
  refused("model.vocab: expected an object of token ids, found null", [](json& t) { t["model"].erase("vocab"); });
  refused("model.vocab: byte 0x21 has no token", [](json& t) {
    t["model"]["vocab"].erase("!");
    t["model"]["merges"] = json::array();
  });
  refused("model.vocab: 'x y': is not byte-level text", [](json& t) { t["model"]["vocab"]["x y"] = 5; });
  refused("model.vocab: '!': expected a token id, found -1", [](json& t) { t["model"]["vocab"]["!"] = -1; });
  refused("model.vocab: '!': expected a token id, found 4000000000",
          [](json& t) { t["model"]["vocab"]["!"] = 4'000'000'000u; });
  refused("model.vocab: '\"': token id 0 is there already", [](json& t) { t["model"]["vocab"]["\""] = 0; });
  refused("model.merges: expected an array, found null", [](json& t) { t["model"].erase("merges"); });
  refused("model.merges[0]: expected two tokens", [](json& t) { t["model"]["merges"][0] = 3; });
  refused("model.merges[0]: expected two tokens with a blank", [](json& t) { t["model"]["merges"][0] = "abc"; });
  refused("model.merges[1]: 'zzz' and 'q'", [](json& t) { t["model"]["merges"][1] = json{"zzz", "q"}; });
  refused("model.merges[1]: ", [](json& t) { t["model"]["merges"][1] = t["model"]["merges"][0]; });
  refused("added_tokens: expected an array", [](json& t) { t["added_tokens"] = 1; });
  refused("added_tokens[1]: content is missing", [](json& t) { t["added_tokens"][1]["content"] = ""; });
  refused("added_tokens[1].id: expected a token id", [](json& t) { t["added_tokens"][1]["id"] = "x"; });
  refused("added_tokens[1].single_word: true is not implemented",
          [](json& t) { t["added_tokens"][1]["single_word"] = true; });
  refused("normalizer: expected none, NFC or a Sequence of them, found NFKC",
          [](json& t) { t["normalizer"]["type"] = "NFKC"; });
  refused("pre_tokenizer: expected ByteLevel", [](json& t) { t["pre_tokenizer"] = {{"type", "Whitespace"}}; });
  refused("pre_tokenizer: expected ByteLevel", [](json& t) { t.erase("pre_tokenizer"); });
  refused("normalizer: expected none, NFC or a Sequence of them, found Lowercase", [](json& t) {
    t["normalizer"] = {{"type", "Sequence"}, {"normalizers", {{{"type", "NFC"}}, {{"type", "Lowercase"}}}}};
  });
  const auto steps = [](json& t) -> json& { return t["pre_tokenizer"]["pretokenizers"]; };
  refused("pre_tokenizer: expected ByteLevel, alone or after others, found Split", [&](json& t) { steps(t).erase(1); });
  refused("pre_tokenizer.pretokenizers: expected a list of steps", [&](json& t) { steps(t) = json::array(); });
  refused("pre_tokenizer.pretokenizers[1]: ByteLevel must be the last step",
          [&](json& t) { steps(t).push_back(steps(t)[1]); });
  refused("pre_tokenizer.pretokenizers[0]: expected Split, Digits or ByteLevel, found Punctuation",
          [&](json& t) { steps(t)[0]["type"] = "Punctuation"; });
  refused("pre_tokenizer.pretokenizers[0].pattern: expected {\"Regex\": ...} or",
          [&](json& t) { steps(t)[0]["pattern"] = json::object(); });
  refused("pre_tokenizer: add_prefix_space after other steps",
          [&](json& t) { steps(t)[1]["add_prefix_space"] = true; });
  refused("pre_tokenizer: nothing splits text into words", [&](json& t) {
    t["pre_tokenizer"] = {{"type", "ByteLevel"}, {"use_regex", false}};
  });
  refused("pre_tokenizer: '(' is not a regular expression",
          [](json& t) { t["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "("; });
  refused("pre_tokenizer.pretokenizers[0]: expected behavior Isolated",
          [](json& t) { t["pre_tokenizer"]["pretokenizers"][0]["behavior"] = "Removed"; });
  write_file(path, good.dump().substr(0, 1000));
  CHECK_THROWS_WITH(open_tokenizer_json(path), Contains(path.string() + ": not valid JSON"));
  write_file(path, good.dump());
  CHECK(open_tokenizer(directory.path()).vocabulary() == 512);
  // A tiktoken file beside it has the name of sentencepiece's and is left alone; so is a sentencepiece model.
  write_file(directory / "tokenizer.model", "aGVsbG8= 0\n");
  CHECK(open_tokenizer(directory.path()).vocabulary() == 512);
  std::filesystem::remove(directory / "tokenizer.model");
}

TEST_CASE("a broken vocab.json or merges.txt is refused with file and line") {
  const TemporaryDirectory directory;
  const json good = json::parse(std::ifstream(kGolden / "qwen2" / "tokenizer.json"));
  const auto vocabulary = directory / "vocab.json", merges = directory / "merges.txt";
  write_file(vocabulary, good["model"]["vocab"].dump());
  write_file(merges, "#version: 0.2\nh e\nhe he q\n");
  CHECK_THROWS_WITH(open_vocabulary_and_merges(vocabulary, merges),
                    Contains(merges.string() + ": line 2: 'h' and 'e'") ||
                        Contains(merges.string() + ": line 3: expected two tokens"));
  write_file(merges, "#version: 0.2\rh e\r");
  CHECK_THROWS_WITH(open_vocabulary_and_merges(vocabulary, merges),
                    Contains(merges.string() + ":1:14: error: a carriage return inside a line"));
  write_file(vocabulary, "[]");
  CHECK_THROWS_WITH(open_vocabulary_and_merges(vocabulary, merges), Contains("expected a JSON object"));
}

}  // namespace test_tokenizer
