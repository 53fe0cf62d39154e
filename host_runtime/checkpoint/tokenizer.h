// Text to token ids and back.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "host_runtime/core/model/model_config.h"

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

  Tokenizer(std::unique_ptr<const Kind> kind, const std::filesystem::path& file, std::vector<std::string> notes)
      : kind_(std::move(kind)), file_(file), notes_(std::move(notes)) {}

  /// The file with the vocabulary.
  const std::filesystem::path& file() const { return file_; }
  /// What the user should know about the files, such as another tokenizer beside this one: "FILE: note: ...".
  const std::vector<std::string>& notes() const { return notes_; }

  /// Largest id plus one.
  std::uint32_t vocabulary() const { return kind_->vocabulary(); }
  /// UserError for text that is not UTF-8.
  std::vector<TokenId> encode(std::string_view text) const;
  /// Valid UTF-8: bytes that form no character become U+FFFD. UserError for an id outside the vocabulary.
  std::string decode(std::span<const TokenId> tokens) const;

 private:
  std::unique_ptr<const Kind> kind_;
  std::filesystem::path file_;
  std::vector<std::string> notes_;
};

}  // namespace csdsim::host
