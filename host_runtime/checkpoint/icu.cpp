#include "host_runtime/checkpoint/icu.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "base/error.h"

// The headers add the version to the names of functions, and libraries have it in theirs.
#define CSDSIM_ICU_TEXT_OF(name) #name
#define CSDSIM_ICU_TEXT(name) CSDSIM_ICU_TEXT_OF(name)
#define CSDSIM_ICU(name) function<decltype(&name)>(handle, CSDSIM_ICU_TEXT(name))

namespace csdsim::host {
namespace {

/// It brings along libicuuc, whose functions are found through it.
constexpr const char* kFile = "libicui18n.so." CSDSIM_ICU_TEXT(U_ICU_VERSION_MAJOR_NUM);

template <class Function>
Function function(void* handle, const char* name) {
  void* const found = dlsym(handle, name);
  if (found == nullptr) throw UserError(fmt::format("{}: has no function {}", kFile, name));
  return reinterpret_cast<Function>(found);
}

Icu load() {
  void* const handle = dlopen(kFile, RTLD_NOW | RTLD_LOCAL);  // never closed: it caches what it reads
  if (handle == nullptr)
    throw UserError(
        fmt::format("ICU cannot be loaded: {} (Debian: apt-get install libicu{})", dlerror(), U_ICU_VERSION_MAJOR_NUM));
  return {CSDSIM_ICU(u_errorName),        CSDSIM_ICU(u_isUWhiteSpace),       CSDSIM_ICU(u_strFromUTF8WithSub),
          CSDSIM_ICU(u_strToUTF8WithSub), CSDSIM_ICU(unorm2_getNFCInstance), CSDSIM_ICU(unorm2_normalize),
          CSDSIM_ICU(uregex_open),        CSDSIM_ICU(uregex_clone),          CSDSIM_ICU(uregex_close),
          CSDSIM_ICU(uregex_setText),     CSDSIM_ICU(uregex_setStackLimit),  CSDSIM_ICU(uregex_setTimeLimit),
          CSDSIM_ICU(uregex_findNext),    CSDSIM_ICU(uregex_start),          CSDSIM_ICU(uregex_end)};
}

}  // namespace

const Icu& icu() {
  static const Icu loaded = load();
  return loaded;
}

}  // namespace csdsim::host
