#include "base/plugin.h"

#include <dlfcn.h>
#include <elf.h>
#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "base/error.h"

namespace csdsim {

namespace {

/// How long the file has to be by its ELF headers; 0 if it is no ELF file of 64 bits, which the loader says better.
std::uintmax_t elf_size(const std::filesystem::path& library) {
  std::ifstream file(library, std::ios::binary);
  Elf64_Ehdr header{};
  file.read(reinterpret_cast<char*>(&header), sizeof header);
  if (!file || !std::equal(ELFMAG, ELFMAG + SELFMAG, header.e_ident) || header.e_ident[EI_CLASS] != ELFCLASS64)
    return 0;
  std::uintmax_t size = header.e_shoff + std::uintmax_t{header.e_shnum} * header.e_shentsize;
  file.seekg(static_cast<std::streamoff>(header.e_phoff));
  for (int i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment{};
    file.read(reinterpret_cast<char*>(&segment), sizeof segment);
    if (!file) return std::max<std::uintmax_t>(size, header.e_phoff + std::uintmax_t{header.e_phnum} * sizeof segment);
    size = std::max<std::uintmax_t>(size, segment.p_offset + segment.p_filesz);
  }
  return size;
}

}  // namespace

void* plugin_symbol(const std::filesystem::path& library, const char* symbol, std::string_view what,
                    std::string_view macro) {
  const std::string shown = library.string();
  std::error_code code;
  if (!std::filesystem::exists(library, code)) throw UserError(fmt::format("{} does not exist", shown));
  // The loader maps a file that was cut off, and the program dies when it reads the missing part.
  const std::uintmax_t needed = elf_size(library), size = std::filesystem::file_size(library, code);
  if (!code && size < needed)
    throw UserError(fmt::format("{} is truncated: it has {} bytes, by its headers {}", shown, size, needed));
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
