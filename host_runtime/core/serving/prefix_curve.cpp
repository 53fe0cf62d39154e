#include "host_runtime/core/serving/prefix_curve.h"

#include <algorithm>

namespace csdsim::host {

void replay_request(const PrefixRequest& request, std::uint32_t block_tokens, KvBlockManager& tier, PrefixHits& hits) {
  tier.sight(request.blocks);
  const std::uint64_t hit = tier.lookup(request.blocks).blocks;
  ++hits.requests;
  hits.blocks += request.blocks.size();
  hits.tokens += request.input_tokens;
  hits.hit_blocks += hit;
  hits.hit_tokens += std::min(hit * block_tokens, request.input_tokens);
  const auto store = tier.prepare_store(request.blocks, SimTime{});
  if (!store) {
    tier.touch(request.blocks);
  } else if (!store->stored.empty()) {
    hits.stored_blocks += store->stored.size();
    tier.complete_store(store->job, true);
  }
}

PrefixHits replay(std::span<const PrefixRequest> requests, std::uint32_t block_tokens, KvBlockManager& tier) {
  PrefixHits hits;
  for (const PrefixRequest& request : requests) replay_request(request, block_tokens, tier, hits);
  return hits;
}

}  // namespace csdsim::host
