// Shared libraries that add kinds to csdsim: what such a library says of the build that it was made for, and how it is
// opened. ftl/plugin/mapping_plugin.h and scenario/plugin.h build on it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

#define CSDSIM_PLUGIN_TEXT_OF(x) #x
#define CSDSIM_PLUGIN_TEXT(x) CSDSIM_PLUGIN_TEXT_OF(x)
#ifdef __clang__
#define CSDSIM_PLUGIN_COMPILER "clang " CSDSIM_PLUGIN_TEXT(__clang_major__)
#else
#define CSDSIM_PLUGIN_COMPILER "gcc " CSDSIM_PLUGIN_TEXT(__GNUC__)
#endif
/// What the compilers of csdsim and of a plugin must have in common: compiler, language version and layout of the
/// standard library.
#define CSDSIM_PLUGIN_ABI \
  CSDSIM_PLUGIN_COMPILER  \
  ", C++ " CSDSIM_PLUGIN_TEXT(__cplusplus) ", strings " CSDSIM_PLUGIN_TEXT(_GLIBCXX_USE_CXX11_ABI)

namespace csdsim {

/// The build that a plugin was made for.
struct PluginBuild {
  std::uint32_t interface;  ///< version of the interface that it implements
  const char* version;      ///< of csdsim
  const char* abi;          ///< CSDSIM_PLUGIN_ABI
};

/// Loads a shared library and returns the address of `symbol` in it. The library stays loaded until the program ends,
/// so that its objects and exceptions outlive every registry. UserError, which names the library, if it does not exist,
/// is no shared library, or does not export the symbol; `what` says what it would be ("mapping plugin"), `macro` what
/// exports it.
void* plugin_symbol(const std::filesystem::path& library, const char* symbol, std::string_view what,
                    std::string_view macro);

/// UserError, which names the library and both builds, if they differ. `what` names the interface.
void check_plugin_build(const std::filesystem::path& library, std::string_view what, const PluginBuild& theirs,
                        const PluginBuild& ours);

}  // namespace csdsim
