#include "host_runtime/checkpoint/sentencepiece_tokenizer.h"

#include <fmt/format.h>
#include <sentencepiece_processor.h>

#include "base/error.h"
#include "host_runtime/checkpoint/mapped_file.h"

namespace csdsim::host {
namespace {

class Sentencepiece final : public Tokenizer::Kind {
 public:
  explicit Sentencepiece(const std::filesystem::path& path) {
    const MappedFile file(path);
    const auto status =
        processor_.LoadFromSerializedProto({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()});
    if (!status.ok()) {
      throw UserError(fmt::format("{}: not a valid sentencepiece model: {}", path.string(), status.ToString()));
    }
  }

  std::uint32_t vocabulary() const override { return static_cast<std::uint32_t>(processor_.GetPieceSize()); }

  std::vector<TokenId> encode(std::string_view text) const override {
    std::vector<int> ids;
    const auto status = processor_.Encode({text.data(), text.size()}, &ids);
    if (!status.ok()) throw UserError(fmt::format("text cannot be tokenised: {}", status.ToString()));
    std::vector<TokenId> tokens;
    for (const int id : ids) tokens.push_back(TokenId{static_cast<std::uint32_t>(id)});
    return tokens;
  }

  std::string decode(std::span<const TokenId> tokens) const override {
    std::vector<int> ids;
    for (const TokenId token : tokens) ids.push_back(static_cast<int>(token.value));
    std::string text;
    const auto status = processor_.Decode(ids, &text);
    if (!status.ok()) throw UserError(fmt::format("token ids cannot be turned into text: {}", status.ToString()));
    return text;
  }

 private:
  sentencepiece::SentencePieceProcessor processor_;
};

}  // namespace

Tokenizer open_sentencepiece(const std::filesystem::path& path) {
  return Tokenizer(std::make_unique<Sentencepiece>(path));
}

}  // namespace csdsim::host
