#include "host_runtime/checkpoint/checkpoint_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "base/error.h"
#include "host_runtime/checkpoint/mapped_file.h"

namespace csdsim::host {
namespace {

/// The first file of a folder, in the order of their names, that ends with `extension`; empty without one.
std::string file_with(const std::filesystem::path& directory, std::string_view extension) {
  std::string first;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(extension) && (first.empty() || name < first)) first = name;
  }
  return first;
}

constexpr std::string_view kWhatWorks =
    "csdsim reads a folder with config.json and safetensors, as save_pretrained() "
    "of transformers writes it";

/// Why a path that is no folder is no checkpoint.
std::string why_no_folder(const std::filesystem::path& path) {
  if (!is_present(path)) {
    const std::string name = path.lexically_normal().string();
    const bool hub = std::ranges::count(name, '/') == 1 && !path.is_absolute() && !name.starts_with('.') &&
                     !std::filesystem::exists(path.parent_path());
    if (!hub) return "there is no such model directory";
    return fmt::format(
        "there is no such folder; if it is the name of a model on a hub, download it first: hf download "
        "{} --local-dir FOLDER",
        name);
  }
  const std::string extension = path.extension().string();
  if (extension == ".gguf") return fmt::format("is a GGUF file, which csdsim does not read; {}", kWhatWorks);
  return fmt::format("is a file, not a folder; {}", kWhatWorks);
}

}  // namespace

void require_checkpoint(const std::filesystem::path& directory) {
  const auto fail = [&](const std::string& why) { throw UserError(fmt::format("{}: {}", directory.string(), why)); };
  if (!is_present(directory) || !std::filesystem::is_directory(directory)) fail(why_no_folder(directory));
  if (is_present(directory / "config.json")) return;
  if (is_present(directory / "adapter_config.json"))
    fail(
        fmt::format("is a LoRA adapter without its model; merge it (peft: merge_and_unload(), then save_pretrained()); "
                    "{}",
                    kWhatWorks));
  if (const std::string gguf = file_with(directory, ".gguf"); !gguf.empty())
    fail(fmt::format("holds {}, a GGUF file, which csdsim does not read; {}", gguf, kWhatWorks));
  if (std::filesystem::is_empty(directory)) fail(fmt::format("is an empty folder; {}", kWhatWorks));
}

}  // namespace csdsim::host
