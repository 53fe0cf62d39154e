// Divides the KV cache over the drives of an array: by KV heads or by tokens.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/ratio.h"
#include "host_runtime/core/plan/planner.h"

namespace csdsim::host {

/// The dimension that an array of drives divides. `token` is split-K attention: partial outputs over disjoint tokens
/// are merged by their log-sum-exp, as in FlashDecoding.
enum class ShardBy : std::uint8_t { head, token };

/// The path of a token's K and V to attention, where the drives do not hold all of them.
enum class TokenPart : std::uint8_t {
  recomputed,  ///< their activations are kept, and the GPU computes K and V from them in every step
  kept,        ///< K and V in GPU memory
  copied,      ///< K and V in host memory, copied to the GPU in every step
  drives       ///< K and V in the drives, which attend to them
};
inline constexpr std::size_t kTokenParts = 4;

/// Shares of the tokens of a sequence by part, and how new tokens reach them: the newest ones are in no part; as soon
/// as there are `group` of them, all of these go to one part together.
struct TokenShares {
  std::array<Ratio, kTokenParts> share{{{0, 1}, {0, 1}, {0, 1}, {1, 1}}};  ///< by TokenPart; together 1
  std::uint32_t group = 1;

  const Ratio& operator[](TokenPart part) const { return share[static_cast<std::size_t>(part)]; }
  Ratio& operator[](TokenPart part) { return share[static_cast<std::size_t>(part)]; }
};

/// The part of the KV cache that each drive holds. Planner, drive commands, capacity checks and sampling share it.
///
/// head: a drive holds all tokens of its KV heads. token: a drive holds all KV heads of its tokens. A prompt is divided
/// into contiguous parts whose lengths differ by at most one, longer ones first. The new tokens of decode steps go to
/// the drives in turn, from the last drive to the first. So the parts of a sequence differ by at most one token in
/// every step, and all sequences of a step give their new token to the same drive: k and v of a step cross one link
/// only. A drive numbers its tokens from 0; attention does not depend on their order. With one drive, both are the
/// same.
///
/// With TokenShares, the drives hold a part of the tokens only. A prompt is then divided in the order of TokenPart, and
/// the part of the drives among them as above. A group of new tokens goes to the part that lacks most of its share so
/// far; those of the drives go to the drives in turn. All sequences of a step
/// give their group to the same part. Tokens never change their part.
class KvDivision {
 public:
  /// One drive, which holds all tokens. It does not know the heads.
  KvDivision() = default;
  /// Throws UserError for no drive and, with `head`, for more drives than heads.
  KvDivision(ShardBy by, std::uint32_t kv_heads, std::uint32_t drives);
  /// Drives that hold a part of the tokens of all heads. Throws UserError for no drive, for shares that are not the
  /// whole together, and for groups of no token.
  KvDivision(const TokenShares& shares, std::uint32_t kv_heads, std::uint32_t drives);

  /// True if several drives, or a drive and a processor, hold tokens of the same head, so that attention has to be
  /// merged.
  bool by_tokens() const { return token_parts_ > 1 || groups_ != nullptr; }
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
  /// True if a drive gets the new tokens of decode step `step`; with TokenShares, those of the steps before it as well.
  bool appends(DriveIndex drive, std::uint32_t step) const;
  /// Tokens of a sequence in a drive after the prefill and `steps` decode steps.
  std::uint32_t tokens(DriveIndex drive, std::uint32_t prompt_tokens, std::uint32_t steps) const;
  /// Tokens of a sequence of `context` tokens in the drive with most of them.
  std::uint32_t most_tokens(std::uint32_t context) const;

  /// True if TokenShares say where the tokens are.
  bool by_shares() const { return groups_ != nullptr; }
  /// The target of a group of new tokens.
  struct Target {
    TokenPart part = TokenPart::drives;
    DriveIndex drive = {};  ///< if it goes to the drives
  };
  /// With TokenShares: new tokens that go to their part together. Otherwise 1.
  std::uint32_t group() const { return group_; }
  /// The target of the new tokens of decode step `step` and of those before them. With TokenShares only.
  Target target(std::uint32_t step) const { return groups_->at(step / group_ % groups_->size()); }
  /// True if the newest tokens leave for their target after decode step `step`.
  bool writes_back(std::uint32_t step) const { return (step + 1) % group_ == 0; }
  /// Tokens that are in no part after `steps` decode steps.
  std::uint32_t newest(std::uint32_t steps) const { return groups_ ? steps % group_ : 0; }
  /// The tokens of a prompt in a part, and the tokens in it after `steps` decode steps. With TokenShares only.
  Share prompt(TokenPart part, std::uint32_t prompt_tokens) const;
  std::uint32_t tokens(TokenPart part, std::uint32_t prompt_tokens, std::uint32_t steps) const;
  /// The parts in which K and V of a prompt leave the GPU or stay there, as planners number them: the drives, then
  /// tokens in TokenPart::kept and TokenPart::copied.
  Share prompt_piece(std::uint32_t piece, std::uint32_t prompt_tokens) const;
  std::uint32_t piece_of(TokenPart part) const { return drives_ + (part == TokenPart::copied ? 1 : 0); }

 private:
  /// Groups of the first `steps` decode steps for which `is` holds.
  template <class Is>
  std::uint32_t groups_until(std::uint32_t steps, const Is& is) const;

  std::uint32_t drives_ = 1;
  std::uint32_t token_parts_ = 1;
  std::vector<HeadRange> shards_;
  std::uint32_t group_ = 1;
  std::array<double, kTokenParts> end_{};  ///< share of a prompt up to the end of each part
  double most_in_drives_ = 0;              ///< share of the drives in a prompt, or in the groups of any first steps
  std::shared_ptr<const std::vector<Target>> groups_;  ///< one period of groups, which repeat; null without shares
};

}  // namespace csdsim::host
