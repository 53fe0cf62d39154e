// A KV block: the keys and values of `block_tokens` consecutive tokens in all layers.
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <vector>

namespace csdsim::host {

/// Names the contents of a KV block and of everything before it. Equal ids mean equal prefixes. With n blocks the
/// chance that two different ones have the same id of 64 bits is about n^2 / 2^65: 3e-6 for 10 million.
struct KvBlockId {
  std::uint64_t value = 0;
  constexpr auto operator<=>(const KvBlockId&) const = default;
};

/// Where a tier keeps a block: an index from 0 on, used again after the block has left.
using KvBlockSlot = std::uint32_t;

/// The id of a block of these tokens after a block `parent` (vLLM: the chained hash over parent and tokens).
KvBlockId chained_id(KvBlockId parent, std::span<const std::uint32_t> tokens);

/// The parent of first blocks. `salt` separates prompts that must not share blocks: other models, adapters or tenants.
KvBlockId chain_root(std::uint64_t salt);

/// The ids of the whole blocks of a prompt. Tokens behind the last whole block have no id.
std::vector<KvBlockId> chained_ids(std::span<const std::uint32_t> tokens, std::uint32_t block_tokens,
                                   std::uint64_t salt = 0);

/// The ids of the whole blocks of a tier whose blocks are `factor` blocks of a GPU: every factor-th id, since an id
/// stands for all tokens before it. Throws UserError if the factor is 0.
std::vector<KvBlockId> whole_tier_blocks(std::span<const KvBlockId> blocks, std::uint32_t factor);

}  // namespace csdsim::host
