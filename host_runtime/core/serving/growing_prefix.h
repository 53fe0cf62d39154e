// The KV blocks of a context that grows: a chat, an agent, a prompt in parts.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "host_runtime/core/serving/kv_block.h"

namespace csdsim::host {

class GrowingPrefix {
 public:
  /// Contexts with the same salt share the blocks of equal beginnings. Precondition: block_tokens is not 0.
  GrowingPrefix(std::uint32_t block_tokens, std::uint64_t salt)
      : block_tokens_(block_tokens), last_(chain_root(salt)) {}

  std::uint64_t tokens() const { return whole_.size() * block_tokens_ + tail_.size(); }

  void add(std::span<const std::uint32_t> tokens) {
    for (const std::uint32_t token : tokens) add_token(token);
  }
  /// Adds `tokens` times the same one: a text of which only the length is known, named by `token`.
  void add(std::uint64_t tokens, std::uint32_t token) {
    for (; tokens > 0; --tokens) add_token(token);
  }

  /// The ids of all blocks; the last one may be partly filled, and has another id when it is fuller.
  std::vector<KvBlockId> blocks() const {
    std::vector<KvBlockId> ids = whole_;
    if (!tail_.empty()) ids.push_back(chained_id(last_, tail_));
    return ids;
  }

 private:
  void add_token(std::uint32_t token) {
    tail_.push_back(token);
    if (tail_.size() < block_tokens_) return;
    last_ = chained_id(last_, tail_);
    whole_.push_back(last_);
    tail_.clear();
  }

  std::uint32_t block_tokens_;
  KvBlockId last_;
  std::vector<KvBlockId> whole_;
  std::vector<std::uint32_t> tail_;
};

}  // namespace csdsim::host
