// Tells a folder with a checkpoint from other files and folders.
#pragma once

#include <filesystem>
#include <string>

namespace csdsim::host {

/// "if it is the name of a model on a hub, download it first: ..." of a path that is not there and looks like one;
/// empty for all others.
std::string hub_hint(const std::filesystem::path& path);

/// UserError for a path that is no folder, which says what it is and what would work.
void require_folder(const std::filesystem::path& directory);

/// UserError for a path that is no checkpoint directory, which says what it is (a GGUF file or folder, a LoRA adapter,
/// an empty folder, the name of a model on a hub, a file) and what would work.
void require_checkpoint(const std::filesystem::path& directory);

/// UserError for a folder without safetensors, which says what it holds instead and what would work.
[[noreturn]] void no_weights(const std::filesystem::path& directory);

}  // namespace csdsim::host
