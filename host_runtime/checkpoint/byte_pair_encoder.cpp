#include "host_runtime/checkpoint/byte_pair_encoder.h"

#include <algorithm>
#include <queue>
#include <tuple>

namespace csdsim::host {
namespace {

constexpr std::uint64_t pair_key(TokenId left, TokenId right) { return std::uint64_t{left.value} << 32 | right.value; }

// A token of the word so far, with the indices of its neighbours. A merge extends the left token and removes the right
// one.
struct Symbol {
  TokenId token;
  std::int64_t previous = -1;
  std::int64_t next = -1;
  bool alive = true;
};

// A queued merge; later merges may have made it impossible.
struct Candidate {
  std::uint32_t rank = 0;
  std::int64_t left = 0;
  TokenId merged;
  bool operator>(const Candidate& other) const { return std::tie(rank, left) > std::tie(other.rank, other.left); }
};

}  // namespace

bool BytePairEncoder::add_token(std::string bytes, TokenId id) {
  largest_id_ = std::max(largest_id_, id.value);
  const auto [it, fresh] = ids_.try_emplace(std::move(bytes), id);
  return fresh && bytes_.try_emplace(id.value, &it->first).second;
}

bool BytePairEncoder::add_merge(std::string_view left, std::string_view right) {
  const TokenId *const l = find(left), *const r = find(right), *const merged = find(std::string(left).append(right));
  if (l == nullptr || r == nullptr || merged == nullptr) return false;
  return merges_.try_emplace(pair_key(*l, *r), Merge{static_cast<std::uint32_t>(merges_.size()), *merged}).second;
}

std::optional<std::uint8_t> BytePairEncoder::missing_byte() const {
  for (unsigned byte = 0; byte < 256; ++byte) {
    const char text = static_cast<char>(byte);
    if (find({&text, 1}) == nullptr) return static_cast<std::uint8_t>(byte);
  }
  return {};
}

const TokenId* BytePairEncoder::find(std::string_view bytes) const {
  const auto it = ids_.find(bytes);
  return it == ids_.end() ? nullptr : &it->second;
}

const std::string* BytePairEncoder::bytes(TokenId id) const {
  const auto it = bytes_.find(id.value);
  return it == bytes_.end() ? nullptr : it->second;
}

const BytePairEncoder::Merge* BytePairEncoder::merge_of(TokenId left, TokenId right) const {
  const auto it = merges_.find(pair_key(left, right));
  return it == merges_.end() ? nullptr : &it->second;
}

void BytePairEncoder::encode(std::string_view word, std::vector<TokenId>& tokens) const {
  if (word.empty()) return;
  if (whole_words_) {
    if (const TokenId* const whole = find(word)) return tokens.push_back(*whole);
  }
  std::vector<Symbol> symbols(word.size());
  for (std::size_t i = 0; i < word.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    symbols[i] = {*find(word.substr(i, 1)), at - 1, i + 1 < word.size() ? at + 1 : -1};
  }
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> candidates;
  const auto consider = [&](std::int64_t left) {
    if (left < 0 || symbols[left].next < 0) return;
    if (const Merge* const merge = merge_of(symbols[left].token, symbols[symbols[left].next].token)) {
      candidates.push({merge->rank, left, merge->merged});
    }
  };
  for (std::size_t i = 0; i < word.size(); ++i) consider(static_cast<std::int64_t>(i));
  while (!candidates.empty()) {
    const Candidate best = candidates.top();
    candidates.pop();
    Symbol& left = symbols[best.left];
    if (!left.alive || left.next < 0) continue;
    Symbol& right = symbols[left.next];
    const Merge* const merge = merge_of(left.token, right.token);
    // Out of date: one of the two has been merged since.
    if (merge == nullptr || merge->merged != best.merged) continue;
    left.token = best.merged;
    left.next = right.next;
    right.alive = false;
    if (left.next >= 0) symbols[left.next].previous = best.left;
    consider(left.previous);
    consider(best.left);
  }
  for (std::int64_t i = 0; i >= 0; i = symbols[i].next) tokens.push_back(symbols[i].token);
}

}  // namespace csdsim::host
