// The entry of libFuzzer: runs the target of the program, or that of CSDSIM_FUZZ_TARGET where it has several.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "tests/fuzz/fuzz.h"

namespace {

const csdsim::fuzz::Target& chosen_target() {
  using csdsim::fuzz::Target;
  const std::vector<const Target*>& all = Target::all();
  const char* const name = std::getenv("CSDSIM_FUZZ_TARGET");
  if (all.size() == 1 || name == nullptr) return *all.front();
  const auto found = std::ranges::find_if(all, [&](const Target* target) { return target->name == name; });
  if (found == all.end()) std::abort();
  return **found;
}

}  // namespace

/// The library of SystemC calls this function, so that it must exist. main() is libFuzzer's.
extern "C" int sc_main(int, char**) { return 0; }

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const csdsim::fuzz::Target& target = chosen_target();
  target.run({reinterpret_cast<const char*>(data), size});
  return 0;
}
