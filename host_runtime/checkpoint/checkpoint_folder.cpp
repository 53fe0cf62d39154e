#include "host_runtime/checkpoint/checkpoint_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <string>
#include <string_view>

#include "base/error.h"
#include "host_runtime/checkpoint/mapped_file.h"

namespace csdsim::host {
namespace {

constexpr std::string_view kWhatWorks =
    "csdsim reads a folder with config.json and safetensors, as save_pretrained() of transformers writes it";

/// Weights in other forms, by the end of a file's name.
struct OtherForm {
  std::string_view ending;
  std::string_view what;
  std::string_view way;  ///< to a folder that csdsim reads
};

constexpr std::string_view kPickled = "a pickled checkpoint",
                           kSave = "save the model with save_pretrained(..., safe_serialization=True)";
constexpr OtherForm kOtherForms[] = {{".gguf", "a GGUF file", "take the model from which it was made"},
                                     {".safetensors", "safetensors under another name",
                                      "it has to be model.safetensors or model.safetensors.index.json with its shards"},
                                     {".bin", kPickled, kSave},
                                     {".pt", kPickled, kSave},
                                     {".pth", kPickled, kSave},
                                     {".ckpt", kPickled, kSave},
                                     {".npz", "weights of MLX", "take the model from which they were made"},
                                     {".onnx", "an ONNX model", "take the model from which it was made"},
                                     {".h5", "a TensorFlow checkpoint", kSave},
                                     {".msgpack", "a Flax checkpoint", kSave}};

/// Whether a name ends so, in small or capital letters.
bool has_ending(std::string_view name, std::string_view ending) {
  const auto small = [](unsigned char c) { return std::tolower(c); };
  return name.size() >= ending.size() &&
         std::ranges::equal(name.substr(name.size() - ending.size()), ending, {}, small, small);
}

/// "FILE is ..., which csdsim does not read: ..." of the first file of a folder, in the order of forms and names, that
/// has weights in another form; empty without one.
std::string other_weights(const std::filesystem::path& directory) {
  for (const OtherForm& form : kOtherForms) {
    std::string first;
    for (const auto& entry : std::filesystem::directory_iterator(directory)) {
      const std::string name = entry.path().filename().string();
      const bool adapter = name.starts_with("adapter_model");
      if (has_ending(name, form.ending) && !adapter && (first.empty() || name < first)) first = name;
    }
    if (!first.empty()) return fmt::format("{} is {}, which csdsim does not read: {}", first, form.what, form.way);
  }
  return "";
}

/// A folder inside another that has a config.json, as in the cache of a hub (hub/models--.../snapshots/...); empty
/// without one.
std::filesystem::path folder_inside(const std::filesystem::path& directory) {
  std::filesystem::path first;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (!entry.is_directory()) continue;
    const std::string name = entry.path().filename().string();
    std::filesystem::path found = is_present(entry.path() / "config.json") ? entry.path() : "";
    if (found.empty() && (name == "hub" || name == "snapshots" || name.starts_with("models--")))
      found = folder_inside(entry.path());
    if (!found.empty() && (first.empty() || found < first)) first = found;
  }
  return first;
}

/// The name of a model on a hub that a path looks like; empty if it is none.
std::string name_on_hub(const std::filesystem::path& path) {
  std::string name = path.lexically_normal().string();
  for (const std::string_view hub : {"huggingface.co/", "hf.co/", "hf:/"})
    if (const std::size_t at = name.find(hub); at != std::string::npos) {
      name.erase(0, at + hub.size());
      const std::size_t owner = name.find('/');
      if (owner != std::string::npos) name.resize(std::min(name.find('/', owner + 1), name.size()));
    }
  if (name.ends_with('/')) name.pop_back();
  // Models of the first years have no owner: gpt2.
  const bool shape = std::ranges::count(name, '/') <= 1 && !name.starts_with('/') && !name.starts_with('.');
  const std::filesystem::path owner = std::filesystem::path(name).parent_path();
  return shape && (owner.empty() || !std::filesystem::exists(owner)) ? name : "";
}

}  // namespace

std::string hub_hint(const std::filesystem::path& path) {
  const std::string name = name_on_hub(path);
  if (name.empty()) return "";
  return fmt::format("if it is the name of a model on a hub, download it first: hf download {} --local-dir FOLDER",
                     name);
}

namespace {

bool is_gguf(const std::filesystem::path& path) {
  if (has_ending(path.string(), ".gguf")) return true;
  if (!std::filesystem::is_regular_file(path)) return false;
  constexpr std::string_view kMagic = "GGUF";
  std::ifstream file(path, std::ios::binary);
  std::string beginning(kMagic.size(), '\0');
  file.read(beginning.data(), static_cast<std::streamsize>(beginning.size()));
  return beginning == kMagic;
}

/// Why a path that is no folder is no checkpoint.
std::string why_no_folder(const std::filesystem::path& path) {
  if (!is_present(path)) {
    const std::string hint = hub_hint(path);
    return hint.empty() ? "there is no such model directory" : "there is no such folder; " + hint;
  }
  if (is_gguf(path)) return fmt::format("is a GGUF file, which csdsim does not read; {}", kWhatWorks);
  const auto folder = std::filesystem::absolute(path).parent_path();
  if (is_present(folder / "config.json")) return fmt::format("is a file; give its folder, {}", folder.string());
  return fmt::format("is a file, not a folder; {}", kWhatWorks);
}

}  // namespace

void require_folder(const std::filesystem::path& directory) {
  if (!is_present(directory) || !std::filesystem::is_directory(directory))
    throw UserError(fmt::format("{}: {}", directory.string(), why_no_folder(directory)));
}

void require_checkpoint(const std::filesystem::path& directory) {
  const auto fail = [&](const std::string& why) { throw UserError(fmt::format("{}: {}", directory.string(), why)); };
  require_folder(directory);
  for (const char* const adapter : {"adapter_config.json", "adapter_model.safetensors", "adapter_model.bin"})
    if (is_present(directory / adapter))
      fail(
          fmt::format("holds a LoRA adapter ({}); merge it with its model (peft: merge_and_unload(), "
                      "then save_pretrained()); {}",
                      adapter, kWhatWorks));
  if (is_present(directory / "config.json")) return;
  if (std::filesystem::is_empty(directory)) fail(fmt::format("is an empty folder; {}", kWhatWorks));
  if (const auto inside = folder_inside(directory); !inside.empty())
    fail(fmt::format("has no config.json; the checkpoint lies in {}", inside.string()));
  if (is_present(directory / "params.json"))
    fail(fmt::format("has no config.json, but params.json: weights in Meta's own form; {}", kWhatWorks));
  if (is_present(directory / "model.safetensors") || is_present(directory / "model.safetensors.index.json"))
    fail("has weights, but no config.json: take the file from where the weights are from");
  const std::string other = other_weights(directory);
  fail(fmt::format("has no config.json; {}{}{}", other, other.empty() ? "" : "; ", kWhatWorks));
}

void no_weights(const std::filesystem::path& directory) {
  const std::string other = other_weights(directory);
  throw UserError(fmt::format("{}: no weights: neither model.safetensors nor model.safetensors.index.json is there{}",
                              directory.string(), other.empty() ? "" : "; " + other));
}

}  // namespace csdsim::host
