#include "base/plugin.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "base/error.h"

namespace csdsim {

void* plugin_symbol(const std::filesystem::path& library, const char* symbol, std::string_view what,
                    std::string_view macro) {
  const std::string shown = library.string();
  std::error_code code;
  if (!std::filesystem::exists(library, code)) throw UserError(fmt::format("{} does not exist", shown));
  // With a bare name the loader would look in the system's directories only.
  void* handle = dlopen(std::filesystem::absolute(library).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* why = dlerror();
    throw UserError(fmt::format("{} cannot be loaded: {}", shown, why != nullptr ? why : "no reason given"));
  }
  void* const found = dlsym(handle, symbol);
  if (found == nullptr)
    throw UserError(fmt::format("{} is no {}: it does not export {} ({} does)", shown, what, symbol, macro));
  return found;
}

void check_plugin_build(const std::filesystem::path& library, std::string_view what, const PluginBuild& theirs,
                        const PluginBuild& ours) {
  const auto same = [&](std::string_view part, const auto& their, const auto& our) {
    if (their == our) return;
    throw UserError(fmt::format("{} was built for {} {}, this is {} {}: build it again against this csdsim",
                                library.string(), part, their, part, our));
  };
  same(what, theirs.interface, ours.interface);
  same("csdsim", std::string_view(theirs.version), std::string_view(ours.version));
  same("compiler", std::string_view(theirs.abi), std::string_view(ours.abi));
}

}  // namespace csdsim
