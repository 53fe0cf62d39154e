#include "host_runtime/checkpoint/tokenizer.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/text.h"

namespace csdsim::host {

std::vector<TokenId> Tokenizer::encode(std::string_view text) const {
  if (const std::size_t at = invalid_utf8(text); at != std::string_view::npos) {
    throw UserError(fmt::format("text cannot be tokenised: byte {} is not valid UTF-8", at));
  }
  return kind_->encode(text);
}

std::string Tokenizer::decode(std::span<const TokenId> tokens) const {
  for (const TokenId token : tokens) {
    if (token.value >= vocabulary()) {
      throw UserError(
          fmt::format("token id {} is outside the tokenizer's vocabulary of {}", token.value, vocabulary()));
    }
  }
  return kind_->decode(tokens);
}

}  // namespace csdsim::host
