// Files of byte-level tokenizers.
#pragma once

#include <filesystem>

#include "base/units.h"
#include "host_runtime/checkpoint/added_tokens.h"
#include "host_runtime/checkpoint/tokenizer.h"

namespace csdsim::host {

/// The largest published tokenizer.json (256,000 tokens) take some 30 MiB.
inline constexpr Bytes kTokenizerLimit = Bytes::mib(128);

/// Opens a `tokenizer.json` of Hugging Face tokenizers: a BPE model, words by `ByteLevel` or by `Split` and
/// `ByteLevel`, NFC or no normalisation, added tokens, also those of
/// the files beside it (read_tokenizer_settings()). UserError naming file, field, expected and found for everything
/// else.
Tokenizer open_tokenizer_json(const std::filesystem::path& path);

/// The added tokens of a tokenizer.json of any kind.
std::vector<AddedToken> read_added_tokens(const std::filesystem::path& path);

/// Opens the older form of GPT-2 and OPT: `vocab.json` (token -> id) and `merges.txt` (one pair per line), with the
/// added tokens of the files beside it (read_tokenizer_settings()). UserError naming file and line or field.
Tokenizer open_vocabulary_and_merges(const std::filesystem::path& vocabulary, const std::filesystem::path& merges);

}  // namespace csdsim::host
