// The curve of a trace against a model of its rules, and what more memory does to it.
#include <algorithm>
#include <catch2/catch.hpp>
#include <list>
#include <map>

#include "generated_requests.h"
#include "serving_support.h"

namespace test_prefix_curve {

using namespace csdsim;
using namespace csdsim::host;
using namespace csdsim::host::test;

namespace {

/// LRU over whole prompts, rule by rule.
class NaiveTier {
 public:
  explicit NaiveTier(std::optional<std::uint64_t> capacity) : capacity_(capacity) {}

  void replay(const PrefixRequest& request, PrefixHits& hits) {
    std::uint64_t hit = 0;
    while (hit < request.blocks.size() && has(request.blocks[hit])) ++hit;
    ++hits.requests;
    hits.blocks += request.blocks.size();
    hits.tokens += request.input_tokens;
    hits.hit_blocks += hit;
    hits.hit_tokens += std::min<std::uint64_t>(hit * kBlockTokens, request.input_tokens);
    use_known(request);
    if (capacity_ && request.blocks.size() > *capacity_) return;
    std::uint64_t missing = 0;
    for (const KvBlockId id : request.blocks) missing += has(id) ? 0 : 1;
    while (capacity_ && order_.size() + missing > *capacity_) evict_one(request);
    for (std::size_t i = request.blocks.size(); i-- > 0;) {
      if (has(request.blocks[i])) continue;
      order_.push_front(request.blocks[i]);
      places_[request.blocks[i]] = order_.begin();
      ++hits.stored_blocks;
    }
    use_known(request);
  }

 private:
  bool has(KvBlockId id) const { return places_.contains(id); }
  void use_known(const PrefixRequest& request) {
    for (std::size_t i = request.blocks.size(); i-- > 0;)
      if (has(request.blocks[i])) order_.splice(order_.begin(), order_, places_.at(request.blocks[i]));
  }
  void evict_one(const PrefixRequest& request) {
    auto oldest = std::prev(order_.end());
    while (std::ranges::find(request.blocks, *oldest) != request.blocks.end()) --oldest;
    places_.erase(*oldest);
    order_.erase(oldest);
  }

  std::optional<std::uint64_t> capacity_;
  std::list<KvBlockId> order_;  ///< the most recently used first
  std::map<KvBlockId, std::list<KvBlockId>::iterator> places_;
};

PrefixHits hits_of(const GeneratedRequests& trace, std::optional<std::uint64_t> capacity,
                   std::string_view policy = "lru") {
  KvBlockManager tier = manager(capacity, policy);
  return replay(trace.requests(), kBlockTokens, tier);
}

}  // namespace

TEST_CASE("the curve under LRU equals a model of its rules at every capacity") {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    const GeneratedRequests trace(seed, 3000);
    std::vector<std::optional<std::uint64_t>> capacities{1, 2, 3, 5, 10, trace.distinct_blocks(), std::nullopt};
    for (std::uint64_t c = 16; c < trace.distinct_blocks(); c += c / 3) capacities.emplace_back(c);
    for (const auto capacity : capacities) {
      INFO("seed " << seed << ", capacity " << capacity.value_or(0));
      NaiveTier naive(capacity);
      PrefixHits expected;
      for (const PrefixRequest& request : trace.requests()) naive.replay(request, expected);
      CHECK(hits_of(trace, capacity) == expected);
    }
    const PrefixHits unlimited = hits_of(trace, std::nullopt);
    CHECK(unlimited.stored_blocks == trace.distinct_blocks());
    CHECK(unlimited.hit_tokens < unlimited.hit_blocks * kBlockTokens);  // last blocks are partly filled
    CHECK(3 * unlimited.hit_blocks > unlimited.blocks);
    CHECK(hits_of(trace, trace.distinct_blocks()) == unlimited);
  }
}

TEST_CASE("more memory never lowers a hit rate under LRU, from the longest prompt on") {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    const GeneratedRequests trace(seed, 2000);
    PrefixHits less;
    for (std::uint64_t capacity = trace.longest(); capacity < 2 * trace.distinct_blocks();
         capacity += 1 + capacity / 8) {
      INFO("seed " << seed << ", capacity " << capacity);
      const PrefixHits more = hits_of(trace, capacity);
      CHECK(more.hit_blocks >= less.hit_blocks);
      CHECK(more.hit_tokens >= less.hit_tokens);
      less = more;
    }
    CHECK(less == hits_of(trace, std::nullopt));
  }
}

TEST_CASE("a prompt that is longer than the tier passes it by, so that less memory may hit more") {
  const auto chat = ids({1, 2}), long_prompt = ids({7, 8, 9});
  for (const std::uint64_t capacity : {2, 3}) {
    KvBlockManager tier = manager(capacity);
    PrefixHits hits;
    for (const auto* const prompt : {&chat, &long_prompt, &chat})
      replay_request({prompt->size() * 16, *prompt}, 16, tier, hits);
    CHECK(hits.hit_blocks == (capacity == 2 ? 2u : 0u));
  }
}

TEST_CASE("no policy hits more than an unlimited tier, and all hit the same where nothing has to leave") {
  const GeneratedRequests trace(1, 2000);
  const PrefixHits unlimited = hits_of(trace, std::nullopt);
  for (const std::string& policy : builtin_eviction_policies().names()) {
    INFO(policy);
    CHECK(hits_of(trace, trace.distinct_blocks(), policy) == unlimited);
    const PrefixHits half = hits_of(trace, trace.distinct_blocks() / 8, policy);
    CHECK(half.hit_blocks < unlimited.hit_blocks);
    CHECK(half.hit_blocks + half.stored_blocks >= trace.distinct_blocks());
  }
}

}  // namespace test_prefix_curve
