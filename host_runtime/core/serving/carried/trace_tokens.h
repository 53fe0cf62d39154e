// The tokens of a trace's requests. A trace names blocks, not tokens.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "host_runtime/core/model/model_config.h"
#include "host_runtime/core/serving/engine/request_blocks.h"

namespace csdsim::host {

/// Tokens are drawn from the ids of blocks, so that equal ids mean equal tokens. Where a later turn of a session names
/// the blocks that an answer fills, the answer is the one of the recording; other answers are those of the model.
class TraceTokens {
 public:
  /// The trace must outlive this.
  TraceTokens(const ServingTrace& trace, std::uint32_t vocabulary);

  /// Tokens of a prompt and its answer, without the last token of the answer. None: the model says which.
  std::vector<std::optional<TokenId>> of(std::size_t request) const;

 private:
  struct Prefix {
    KvBlockId block;
    std::uint32_t tokens = 0;
  };
  void add_prefix(KvBlockId block, const Prefix& prefix);
  TokenId token(KvBlockId block, std::uint32_t offset) const;

  const ServingTrace& trace_;
  std::uint32_t vocabulary_;
  RequestBlocks blocks_;
  /// By the id of a block: the block, not full, with which an earlier turn ended.
  std::unordered_map<std::uint64_t, Prefix> prefixes_;
};

}  // namespace csdsim::host
