// Tokenizer files that stand beside the one that is read.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace csdsim::host {

/// Whether a file consists of lines with base64 and a number: a tiktoken vocabulary, which has the name of
/// sentencepiece's file (tokenizer.model) in Llama 3. The first line decides.
bool is_tiktoken(const std::filesystem::path& path);

/// A file of a folder with a tokenizer in a form that is not read: tekken, a file of tiktoken, sentencepiece under
/// another name than tokenizer.model. Empty without one.
std::filesystem::path unread_tokenizer(const std::filesystem::path& directory);

/// Notes about the files beside a byte-level tokenizer.json that say other things than it: tokenizer.model (tiktoken or
/// sentencepiece), vocab.json, merges.txt. As in transformers, tokenizer.json counts.
std::vector<std::string> other_tokenizers(const std::filesystem::path& fast);

}  // namespace csdsim::host
