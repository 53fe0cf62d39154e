// Prompts as ids of tokens.
#include "app/token_file.h"
#include "tests/fuzz/fuzz.h"

namespace fuzz_token_ids {

using namespace csdsim;

namespace {

const fuzz::Target kTarget("token_ids", [](std::string_view input) {
  app::read_prompts_of_ids(fuzz::as_file(input, "prompts.txt"));
});

}  // namespace

}  // namespace fuzz_token_ids
