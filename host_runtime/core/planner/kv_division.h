// How the drives of an array divide the KV cache: by KV heads or by tokens.
#pragma once

#include <cstdint>
#include <vector>

#include "host_runtime/core/planner/planner.h"

namespace csdsim::host {

/// What an array of drives divides. `token` is split-K attention: partial outputs over disjoint tokens are merged by
/// their log-sum-exp, as in FlashDecoding.
enum class ShardBy : std::uint8_t { head, token };

/// The part of the KV cache that each drive holds. Planner, drive commands, capacity checks and sampling share it.
///
/// head: a drive holds all tokens of its KV heads. token: a drive holds all KV heads of its tokens. A prompt is divided
/// into contiguous parts whose lengths differ by at most one, longer ones first. The new tokens of decode steps go to
/// the drives in turn, from the last drive to the first. So the parts of a sequence differ by at most one token in
/// every step, and all sequences of a step give their new token to the same drive: k and v of a step cross one link
/// only. A drive numbers its tokens from 0; attention does not depend on their order. With one drive, both are the
/// same.
class KvDivision {
 public:
  /// One drive, which holds all tokens. It does not know the heads.
  KvDivision() = default;
  /// Throws UserError for no drive and, with `head`, for more drives than heads.
  KvDivision(ShardBy by, std::uint32_t kv_heads, std::uint32_t drives);

  /// Whether several drives hold tokens of the same head, so that attention has to be merged.
  bool by_tokens() const { return token_parts_ > 1; }
  /// Parts into which the tokens of a head are divided: the drives with `token`, 1 with `head`.
  std::uint32_t token_parts() const { return token_parts_; }
  std::uint32_t drives() const { return drives_; }

  /// Different ranges of KV heads, in order: one per drive with `head`, one with all heads with `token`.
  const std::vector<HeadRange>& shards() const { return shards_; }
  /// KV heads of a drive.
  HeadRange heads(DriveIndex drive) const { return shards_.at(by_tokens() ? 0 : drive.value); }
  /// KV heads of the drive with most of them.
  std::uint32_t most_heads() const { return shards_.at(0).count; }

  /// The tokens of a prompt that a drive holds: the first one's position, and their number, which may be 0.
  Share prompt(DriveIndex drive, std::uint32_t prompt_tokens) const;
  /// Whether a drive gets the new tokens of decode step `step`.
  bool appends(DriveIndex drive, std::uint32_t step) const;
  /// Tokens of a sequence in a drive after the prefill and `steps` decode steps.
  std::uint32_t tokens(DriveIndex drive, std::uint32_t prompt_tokens, std::uint32_t steps) const;
  /// Tokens of a sequence of `context` tokens in the drive with most of them.
  std::uint32_t most_tokens(std::uint32_t context) const { return (context + token_parts_ - 1) / token_parts_; }

 private:
  std::uint32_t drives_ = 1;
  std::uint32_t token_parts_ = 1;
  std::vector<HeadRange> shards_;
};

}  // namespace csdsim::host
