// The entry of libFuzzer, for the one target of its program.
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/fuzz.h"

/// The library of SystemC calls this function, so that it must exist. main() is libFuzzer's.
extern "C" int sc_main(int, char**) { return 0; }

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  csdsim::fuzz::Target::all().front()->run({reinterpret_cast<const char*>(data), size});
  return 0;
}
