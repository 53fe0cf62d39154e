#include "host_runtime/core/features/drafts/token_drafts.h"

#include <algorithm>

#include "base/error.h"
#include "host_runtime/core/features/drafts/draft_lookup.h"

namespace csdsim::host {

TokenDrafts::TokenDrafts(std::uint32_t most, std::vector<std::uint32_t> outputs) : most_(most) {
  for (const std::uint32_t output : outputs) sequences_.push_back({.output = output});
}

void TokenDrafts::chose(SequenceId sequence, std::uint32_t chosen, std::span<const TokenId> tokens) {
  Sequence& s = sequences_.at(sequence.value);
  if (chosen == 0 || chosen > 1 + s.draft.size() || s.generated + chosen > s.output)
    throw InternalError("a step has chosen more tokens than it verified, or than the sequence generates");
  verified_ += s.draft.size();
  accepted_ += chosen - 1;
  s.generated += chosen;
  const std::uint32_t left = s.output - s.generated;
  s.draft = left > 1 ? lookup_draft(tokens, std::min(most_, left - 1)) : std::vector<TokenId>{};
}

}  // namespace csdsim::host
