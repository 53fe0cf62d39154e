#include "host_runtime/core/serving/kv_block.h"

#include "base/error.h"
#include "base/rng.h"

namespace csdsim::host {

KvBlockId chained_id(KvBlockId parent, std::span<const std::uint32_t> tokens) {
  std::uint64_t hash = splitmix64(parent.value ^ tokens.size());
  for (const std::uint32_t token : tokens) hash = splitmix64(hash ^ token);
  return {hash};
}

KvBlockId chain_root(std::uint64_t salt) { return {splitmix64(~salt)}; }

std::vector<KvBlockId> chained_ids(std::span<const std::uint32_t> tokens, std::uint32_t block_tokens,
                                   std::uint64_t salt) {
  if (block_tokens == 0) throw UserError("a KV block of 0 tokens");
  std::vector<KvBlockId> ids;
  ids.reserve(tokens.size() / block_tokens);
  KvBlockId parent = chain_root(salt);
  for (; tokens.size() >= block_tokens; tokens = tokens.subspan(block_tokens)) {
    parent = chained_id(parent, tokens.first(block_tokens));
    ids.push_back(parent);
  }
  return ids;
}

std::vector<KvBlockId> whole_tier_blocks(std::span<const KvBlockId> blocks, std::uint32_t factor) {
  if (factor == 0) throw UserError("a tier block of 0 GPU blocks");
  std::vector<KvBlockId> ids;
  ids.reserve(blocks.size() / factor);
  for (std::size_t last = factor - 1; last < blocks.size(); last += factor) ids.push_back(blocks[last]);
  return ids;
}

}  // namespace csdsim::host
