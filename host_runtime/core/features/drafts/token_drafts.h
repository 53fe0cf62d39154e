// The drafts of a run that carries data: which tokens a step verifies, and which of them were accepted.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "host_runtime/core/carried/carried_feature.h"

namespace csdsim::host {

/// Drafts by lookup_draft(). A sequence never generates more than its output: a draft has fewer tokens than are left.
class TokenDrafts final : public CarriedFeature {
 public:
  /// `outputs`: tokens that each sequence generates.
  TokenDrafts(std::uint32_t most, std::vector<std::uint32_t> outputs);

  bool serves(const Operation&) const override { return false; }
  void perform(const Operation&) override {}
  bool proposes() const override { return true; }
  std::span<const TokenId> proposed(SequenceId sequence) const override { return sequences_.at(sequence.value).draft; }
  void chose(SequenceId sequence, std::uint32_t chosen, std::span<const TokenId> tokens) override;

  /// Draft tokens that were verified and accepted so far, over all sequences.
  std::uint64_t all_verified() const { return verified_; }
  std::uint64_t all_accepted() const { return accepted_; }

 private:
  struct Sequence {
    std::uint32_t output = 0;
    std::uint32_t generated = 0;
    std::vector<TokenId> draft = {};
  };

  std::uint32_t most_;
  std::vector<Sequence> sequences_;
  std::uint64_t verified_ = 0, accepted_ = 0;
};

}  // namespace csdsim::host
