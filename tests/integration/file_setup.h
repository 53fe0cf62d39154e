// Runs that carry data with K and V in files, and prompts for any small checkpoint.
#pragma once

#include <string>

#include "tests/integration/small_model.h"

namespace csdsim::test {

/// A drive for files, with a page cache that holds a part of them.
inline experiment::GenerationSetup file_setup(const Prompts& prompts, std::uint32_t new_tokens,
                                              const std::string& system, const SmallModel& model) {
  experiment::GenerationSetup setup = small_setup(small_drive(), prompts, new_tokens, system, model);
  setup.platform.drive.kv_share = 0;
  setup.host = {.cores = 8, .core_flops = 100'000'000'000, .memory = Bandwidth{100'000'000'000}};
  setup.file = host::FileIoParams{.access = host::FileAccess::cached,
                                  .io_size = Bytes::kib(4),
                                  .threads = 4,
                                  .page_cache = Bytes::kib(256),
                                  .dirty_limit = Bytes::kib(64)};
  return setup;
}

/// Prompts whose tokens are in the vocabulary of the model.
inline Prompts within(const SmallModel& model, Prompts prompts) {
  for (auto& prompt : prompts)
    for (host::TokenId& token : prompt) token.value %= model.checkpoint.config.vocab;
  return prompts;
}

}  // namespace csdsim::test
