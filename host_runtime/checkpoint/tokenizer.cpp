#include "host_runtime/checkpoint/tokenizer.h"

#include <fmt/format.h>
#include <sentencepiece_processor.h>

#include "base/error.h"
#include "host_runtime/checkpoint/mapped_file.h"

namespace csdsim::host {

struct Tokenizer::Impl {
  sentencepiece::SentencePieceProcessor processor;
};

Tokenizer::Tokenizer(const std::filesystem::path& path) : impl_(std::make_unique<Impl>()) {
  if (!std::filesystem::exists(path)) {
    throw UserError(
        fmt::format("{}: there is no tokenizer; give token ids instead of text, or add the checkpoint's "
                    "sentencepiece model",
                    path.string()));
  }
  const MappedFile file(path);
  const auto status = impl_->processor.LoadFromSerializedProto(
      {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()});
  if (!status.ok()) {
    throw UserError(fmt::format("{}: not a valid sentencepiece model: {}", path.string(), status.ToString()));
  }
}

Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;

std::uint32_t Tokenizer::vocabulary() const { return static_cast<std::uint32_t>(impl_->processor.GetPieceSize()); }

std::vector<TokenId> Tokenizer::encode(std::string_view text) const {
  std::vector<int> ids;
  const auto status = impl_->processor.Encode({text.data(), text.size()}, &ids);
  if (!status.ok()) throw UserError(fmt::format("text cannot be tokenised: {}", status.ToString()));
  std::vector<TokenId> tokens;
  for (const int id : ids) tokens.push_back(TokenId{static_cast<std::uint32_t>(id)});
  return tokens;
}

std::string Tokenizer::decode(std::span<const TokenId> tokens) const {
  std::vector<int> ids;
  for (const TokenId token : tokens) {
    if (token.value >= vocabulary()) {
      throw UserError(
          fmt::format("token id {} is outside the tokenizer's vocabulary of {}", token.value, vocabulary()));
    }
    ids.push_back(static_cast<int>(token.value));
  }
  std::string text;
  const auto status = impl_->processor.Decode(ids, &text);
  if (!status.ok()) throw UserError(fmt::format("token ids cannot be turned into text: {}", status.ToString()));
  return text;
}

}  // namespace csdsim::host
