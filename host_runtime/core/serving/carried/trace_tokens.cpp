#include "host_runtime/core/serving/carried/trace_tokens.h"

#include <algorithm>

#include "base/rng.h"

namespace csdsim::host {

TraceTokens::TraceTokens(const ServingTrace& trace, std::uint32_t vocabulary)
    : trace_(trace), vocabulary_(vocabulary), blocks_(trace, trace.block_tokens.value_or(1)) {
  if (!trace.block_tokens) return;
  for (std::size_t i = 0; i < trace.requests.size(); ++i) {
    const auto next = blocks_.next_turn(i);
    const std::uint32_t whole = trace.requests[i].prompt / *trace.block_tokens;
    const std::uint32_t rest = trace.requests[i].prompt % *trace.block_tokens;
    if (!next || rest == 0) continue;
    const auto blocks = trace.blocks_of(trace.requests[i]), later = trace.blocks_of(trace.requests[*next]);
    if (blocks.size() <= whole || later.size() <= whole) continue;
    if (std::equal(blocks.begin(), blocks.begin() + whole, later.begin()))
      add_prefix(later[whole], {blocks[whole], rest});
  }
}

/// Where a block has two prefixes, the shorter one is a prefix of the longer one.
void TraceTokens::add_prefix(KvBlockId block, const Prefix& prefix) {
  if (block == prefix.block) return;
  const auto [at, first] = prefixes_.try_emplace(block.value, prefix);
  if (first || at->second.block == prefix.block) return;
  const Prefix other = at->second;
  if (other.tokens < prefix.tokens) at->second = prefix;
  const auto& [longer, shorter] = other.tokens < prefix.tokens ? std::pair{prefix, other} : std::pair{other, prefix};
  add_prefix(longer.block, shorter);
}

TokenId TraceTokens::token(KvBlockId block, std::uint32_t offset) const {
  for (auto at = prefixes_.find(block.value); at != prefixes_.end() && offset < at->second.tokens;
       at = prefixes_.find(block.value))
    block = at->second.block;
  return TokenId{static_cast<std::uint32_t>(counter_random(block.value, offset) % vocabulary_)};
}

std::vector<std::optional<TokenId>> TraceTokens::of(std::size_t request) const {
  const TracedRequest& r = trace_.requests[request];
  std::vector<std::optional<TokenId>> tokens(std::size_t{r.prompt} + r.output - 1);
  const std::uint32_t size = trace_.block_tokens.value_or(1);
  const std::vector<KvBlockId> named = blocks_.named_blocks(request, tokens.size() / size);
  const auto blocks = trace_.blocks_of(r);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const std::size_t block = i / size;
    const auto offset = static_cast<std::uint32_t>(i % size);
    if (block < named.size())
      tokens[i] = token(named[block], offset);
    else if (i < r.prompt && block < blocks.size())
      tokens[i] = token(blocks[block], offset);
    else if (i < r.prompt)
      tokens[i] = token(chain_root(request), static_cast<std::uint32_t>(i));
  }
  return tokens;
}

}  // namespace csdsim::host
