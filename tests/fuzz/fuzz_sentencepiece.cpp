// tokenizer.model.
#include "host_runtime/checkpoint/sentencepiece_tokenizer.h"
#include "tests/fuzz/fuzz.h"

namespace fuzz_sentencepiece {

using namespace csdsim;

namespace {

const fuzz::Target kTarget("sentencepiece", [](std::string_view input) {
  const host::Tokenizer tokenizer = host::open_sentencepiece(fuzz::as_file(input, "tokenizer.model"));
  tokenizer.decode(tokenizer.encode("static int x = 1; <s>"));
});

}  // namespace

}  // namespace fuzz_sentencepiece
