// Tensors in several files.
#include <string>

#include "host_runtime/checkpoint/safetensors.h"
#include "tests/fuzz/fuzz.h"

namespace fuzz_safetensors_index {

using namespace csdsim;

namespace {

const fuzz::Target kTarget("safetensors_index", [](std::string_view input) {
  // A shard with one tensor, "a": two values of 16 bits.
  static constexpr std::string_view kShard(
      "\x38\0\0\0\0\0\0\0{\"a\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[0,4]}}   abcd", 68);
  fuzz::as_file(kShard, "s.safetensors");
  const host::ShardedSafetensors tensors(fuzz::as_file(input, "model.safetensors.index.json"));
  for (const std::string& name : tensors.names()) tensors.tensor(name);
});

}  // namespace

}  // namespace fuzz_safetensors_index
