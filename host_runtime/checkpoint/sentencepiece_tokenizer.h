// Tokenizers of Llama 1 and 2, and of opt-6m: a sentencepiece model.
#pragma once

#include <filesystem>

#include "host_runtime/checkpoint/tokenizer.h"

namespace csdsim::host {

/// Opens a `tokenizer.model`. UserError naming the file if it is not a sentencepiece model.
Tokenizer open_sentencepiece(const std::filesystem::path& path);

}  // namespace csdsim::host
