// Tensors in one file.
#include <string>

#include "host_runtime/checkpoint/safetensors.h"
#include "tests/fuzz/fuzz.h"

namespace fuzz_safetensors {

using namespace csdsim;

namespace {

const fuzz::Target kTarget("safetensors", [](std::string_view input) {
  const host::SafetensorsFile file(fuzz::as_file(input, "model.safetensors"));
  for (const std::string& name : file.names()) {
    file.tensor(name);
    file.release(name);
  }
});

}  // namespace

}  // namespace fuzz_safetensors
