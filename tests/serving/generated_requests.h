// Prompts that look like those of a chat service: for tests and benches without a trace.
#pragma once

#include <vector>

#include "base/rng.h"
#include "host_runtime/core/serving/prefix_curve.h"

namespace csdsim::host::test {

constexpr std::uint32_t kBlockTokens = 16;

/// A fifth of the prompts come once, the others are turns of chats: all blocks of the turn before, then mostly a few
/// more.
/// Chats of one of eight applications begin with the same blocks. The last block of a prompt may be partly
/// filled. A prompt has 30 blocks on average.
class GeneratedRequests {
 public:
  GeneratedRequests(std::uint64_t seed, std::size_t count) : rng_(seed, "requests"), chats_(kChats) {
    for (std::size_t i = 0; i < count; ++i) add(rng_.below(5) == 0 ? fresh(24) : turn());
    for (std::size_t i = 0; i < count; ++i)
      requests_.push_back({tokens_[i], std::span(blocks_).subspan(ends_[i], ends_[i + 1] - ends_[i])});
  }
  GeneratedRequests(const GeneratedRequests&) = delete;

  std::span<const PrefixRequest> requests() const { return requests_; }
  std::size_t blocks() const { return blocks_.size(); }
  std::size_t distinct_blocks() const { return next_id_; }
  std::size_t longest() const { return longest_; }

 private:
  static constexpr std::size_t kChats = 2000, kApplications = 8;
  using Prompt = std::vector<KvBlockId>;

  Prompt fresh(std::uint64_t most) {
    Prompt prompt;
    for (std::uint64_t i = 1 + rng_.below(2 * most); i-- > 0;) prompt.push_back({next_id_++});
    return prompt;
  }
  /// The next turn of a chat. Those of low numbers come often.
  const Prompt& turn() {
    const std::uint64_t number = rng_.below(1 + rng_.below(kChats));
    Prompt& chat = chats_[number];
    Prompt& application = applications_[number % kApplications];
    if (application.empty()) application = fresh(8);
    if (!chat.empty() && rng_.below(10) == 0) return chat;
    if (chat.empty() || chat.size() > 48) chat = application;
    const Prompt more = fresh(8);
    chat.insert(chat.end(), more.begin(), more.end());
    return chat;
  }
  void add(const Prompt& prompt) {
    blocks_.insert(blocks_.end(), prompt.begin(), prompt.end());
    ends_.push_back(blocks_.size());
    tokens_.push_back(prompt.size() * kBlockTokens - rng_.below(kBlockTokens));
    longest_ = std::max(longest_, prompt.size());
  }

  Rng rng_;
  std::vector<Prompt> chats_;
  Prompt applications_[kApplications];
  std::uint64_t next_id_ = 0;
  std::size_t longest_ = 0;
  Prompt blocks_;
  std::vector<std::size_t> ends_{0};
  std::vector<std::uint64_t> tokens_;
  std::vector<PrefixRequest> requests_;
};

}  // namespace csdsim::host::test
