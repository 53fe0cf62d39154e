// Text to token ids and back.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "host_runtime/core/model_config.h"

namespace csdsim::host {

/// A tokenizer of either kind. No start or end token is added.
class Tokenizer {
 public:
  /// Implementation of one kind of tokenizer; see the functions of Tokenizer.
  class Kind {
   public:
    virtual ~Kind() = default;
    virtual std::uint32_t vocabulary() const = 0;
    virtual std::vector<TokenId> encode(std::string_view text) const = 0;
    /// Ids are inside the vocabulary.
    virtual std::string decode(std::span<const TokenId> tokens) const = 0;
  };

  explicit Tokenizer(std::unique_ptr<const Kind> kind) : kind_(std::move(kind)) {}

  /// Largest id plus one.
  std::uint32_t vocabulary() const { return kind_->vocabulary(); }
  /// UserError for text that is not UTF-8.
  std::vector<TokenId> encode(std::string_view text) const;
  /// Valid UTF-8: bytes that form no character become U+FFFD. UserError for an id outside the vocabulary.
  std::string decode(std::span<const TokenId> tokens) const;

 private:
  std::unique_ptr<const Kind> kind_;
};

}  // namespace csdsim::host
