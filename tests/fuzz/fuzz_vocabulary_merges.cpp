// vocab.json and merges.txt.
#include <algorithm>

#include "host_runtime/checkpoint/tokenizer_json.h"
#include "tests/fuzz/fuzz.h"

namespace fuzz_vocabulary_merges {

using namespace csdsim;

namespace {

/// A line with `=` alone divides the input into vocab.json and merges.txt.
const fuzz::Target kTarget("vocabulary_merges", [](std::string_view input) {
  const std::size_t end = std::min(input.find("\n=\n"), input.size());
  const auto vocabulary = fuzz::as_file(input.substr(0, end), "vocab.json");
  const auto merges = fuzz::as_file(input.substr(std::min(end + 3, input.size())), "merges.txt");
  const host::Tokenizer tokenizer = host::open_vocabulary_and_merges(vocabulary, merges);
  tokenizer.decode(tokenizer.encode("static int x = 1;"));
});

}  // namespace

}  // namespace fuzz_vocabulary_merges
