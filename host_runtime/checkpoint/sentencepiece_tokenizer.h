// Tokenizers of Llama 1 and 2, and of opt-6m: a sentencepiece model.
#pragma once

#include <filesystem>

#include "host_runtime/checkpoint/tokenizer.h"

namespace csdsim::host {

/// Opens a `tokenizer.model`. Its control tokens (<s>, </s>) and the unknown one (<unk>) are found in text, and so are
/// the added tokens of the files beside it (read_tokenizer_settings()) and of tokenizer.json. The text before the first
/// of them is tokenised as sentencepiece does. What follows one gets no blank put before it, as in Hugging Face
/// transformers, unless tokenizer_config.json has `legacy: true`. UserError naming the file if it is not a
/// sentencepiece model.
Tokenizer open_sentencepiece(const std::filesystem::path& path);

}  // namespace csdsim::host
