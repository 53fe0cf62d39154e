// The share of prompts that a tier of KV blocks has, without time: transfers take none and never fail.
#pragma once

#include <cstdint>
#include <span>

#include "host_runtime/core/serving/kv_block_manager.h"

namespace csdsim::host {

struct PrefixRequest {
  std::uint64_t input_tokens = 0;
  std::span<const KvBlockId> blocks;  ///< blocks of the prompt; the last one may be partly filled
};

struct PrefixHits {
  std::uint64_t requests = 0, blocks = 0, tokens = 0;  ///< asked for
  std::uint64_t hit_blocks = 0, hit_tokens = 0;        ///< leading blocks that the tier had, and their tokens
  std::uint64_t stored_blocks = 0;                     ///< written to the tier
  bool operator==(const PrefixHits&) const = default;
};

/// Looks up a request, then stores what it has and the tier has not, and adds to the hits. Tokens of a request that
/// hits are min(block_tokens x hit blocks, input tokens).
void replay_request(const PrefixRequest& request, std::uint32_t block_tokens, KvBlockManager& tier, PrefixHits& hits);

/// Replays requests in their order.
PrefixHits replay(std::span<const PrefixRequest> requests, std::uint32_t block_tokens, KvBlockManager& tier);

}  // namespace csdsim::host
