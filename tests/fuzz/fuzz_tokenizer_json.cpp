// tokenizer.json.
#include "host_runtime/checkpoint/tokenizer_json.h"
#include "tests/fuzz/fuzz.h"

namespace fuzz_tokenizer_json {

using namespace csdsim;

namespace {

const fuzz::Target kTarget("tokenizer_json", [](std::string_view input) {
  const host::Tokenizer tokenizer = host::open_tokenizer_json(fuzz::as_file(input, "tokenizer.json"));
  tokenizer.decode(tokenizer.encode("static int x = 1; <s>"));
});

}  // namespace

}  // namespace fuzz_tokenizer_json
