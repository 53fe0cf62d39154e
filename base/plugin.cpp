#include "base/plugin.h"

#include <dlfcn.h>
#include <elf.h>
#include <fmt/format.h>

#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <utility>

#include "base/error.h"

namespace csdsim {

namespace {

/// The file in memory. Empty if it cannot be read.
std::string contents_of(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  return std::move(text).str();
}

/// The machine that this program was made for; nothing if that cannot be read.
std::optional<Elf64_Half> own_machine() {
  std::ifstream program("/proc/self/exe", std::ios::binary);
  Elf64_Ehdr header;
  if (!program.read(reinterpret_cast<char*>(&header), sizeof header)) return {};
  return header.e_machine;
}

/// An entry of a table in an ELF file. Precondition: it lies inside the file.
template <class Entry>
Entry entry_at(const std::string& file, std::uint64_t offset) {
  Entry entry;
  std::memcpy(&entry, file.data() + offset, sizeof entry);
  return entry;
}

}  // namespace

// The loader maps a file without looking how long it is, and runs code of what it has loaded (ELF-64, System V ABI).
std::string why_no_library(const std::string& file) {
  const auto has = [&](std::uint64_t offset, std::uint64_t size) {
    return offset <= file.size() && size <= file.size() - offset;
  };
  if (!file.starts_with(ELFMAG)) return "it is no ELF file";
  if (!has(0, sizeof(Elf64_Ehdr))) return "it is truncated";
  const auto header = entry_at<Elf64_Ehdr>(file, 0);
  static const std::optional<Elf64_Half> kOwn = own_machine();
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || (kOwn && header.e_machine != *kOwn))
    return "it was made for another kind of machine";
  if (header.e_type != ET_DYN) return "it is no shared library";
  if (header.e_phentsize != sizeof(Elf64_Phdr) ||
      !has(header.e_phoff, std::uint64_t{header.e_phnum} * sizeof(Elf64_Phdr)) ||
      !has(header.e_shoff, std::uint64_t{header.e_shnum} * header.e_shentsize))
    return "it is truncated";
  for (std::uint64_t i = 0; i < header.e_phnum; ++i) {
    const auto segment = entry_at<Elf64_Phdr>(file, header.e_phoff + i * sizeof(Elf64_Phdr));
    if (segment.p_type == PT_LOAD && !has(segment.p_offset, segment.p_filesz)) return "it is truncated";
  }
  return "";
}

void* plugin_symbol(const std::filesystem::path& library, const char* symbol, std::string_view what,
                    std::string_view macro) {
  const std::string shown = library.string();
  std::error_code code;
  if (!std::filesystem::exists(library, code)) throw UserError(fmt::format("{} does not exist", shown));
  if (!std::filesystem::is_regular_file(library, code))
    throw UserError(fmt::format("{} cannot be loaded: it is no file", shown));
  const std::string file = contents_of(library);
  if (const std::string why = why_no_library(file); !why.empty())
    throw UserError(fmt::format("{} cannot be loaded: {}", shown, why));
  const auto no_plugin = [&] {
    return UserError(fmt::format("{} is no {}: it does not export {} ({} does)", shown, what, symbol, macro));
  };
  // To load a library is to run it: one that does not even name the symbol is not loaded.
  if (file.find(std::string("\0", 1) + symbol + '\0') == std::string::npos) throw no_plugin();
  // With a bare name the loader would look in the system's directories only.
  void* handle = dlopen(std::filesystem::absolute(library).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* why = dlerror();
    throw UserError(fmt::format("{} cannot be loaded: {}", shown, why != nullptr ? why : "no reason given"));
  }
  void* const found = dlsym(handle, symbol);
  if (found == nullptr) throw no_plugin();
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
