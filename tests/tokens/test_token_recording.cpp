// Recorded important tokens: statistics against their definition, replay, and what moves between pools.
#include <catch2/catch.hpp>
#include <set>
#include <vector>

#include "base/error.h"
#include "base/rng.h"
#include "host_runtime/core/features/token_pools/model/pool_replay.h"
#include "host_runtime/core/features/token_pools/model/token_recording.h"

namespace test_token_recording {

using namespace csdsim;
using namespace csdsim::host;
using Catch::Matchers::Contains;

namespace {

using List = TokenRecording::List;

TokenRecording random_recording(std::uint64_t seed, std::uint32_t prefill, std::size_t steps) {
  Rng rng(seed, "recording");
  TokenRecording recording{.prefill = prefill, .windows = {}};
  for (int window = 0; window < 2; ++window) {
    auto& layers = recording.windows.emplace_back();
    for (int layer = 0; layer < 3; ++layer) {
      auto& lists = layers.emplace_back();
      for (std::size_t step = 0; step < steps; ++step) {
        std::set<std::uint32_t> tokens{recording.context(step) - 1};
        while (tokens.size() < 6) tokens.insert(static_cast<std::uint32_t>(rng.below(recording.context(step))));
        if (lists.empty()) lists.emplace_back();
        lists[0].emplace_back(tokens.begin(), tokens.end());
      }
    }
  }
  return recording;
}

}  // namespace

TEST_CASE("statistics are those of a count by sets", "[tokens]") {
  const TokenRecording recording = random_recording(3, 30, 70);
  CHECK((recording.layers() == 3 && recording.lists() == 1 && recording.steps() == 70));
  const LayerId layer{1};
  double overlap[3] = {}, recent = 0, share = 0;
  for (const auto& window : recording.windows) {
    const auto& steps = window[layer.value][0];
    for (std::size_t t = 0; t < steps.size(); ++t) {
      share += 6.0 / recording.context(t) / 140;
      for (const std::uint32_t token : steps[t]) recent += (token >= recording.context(t) - 6 ? 1.0 : 0.0) / 840;
      for (std::size_t i = 0; i < 3; ++i) {
        if (t < kOverlapSteps[i]) continue;
        const auto& before = steps[t - kOverlapSteps[i]];
        const std::set<std::uint32_t> set(before.begin(), before.end());
        for (const std::uint32_t token : steps[t])
          overlap[i] += (set.contains(token) ? 1.0 : 0.0) / (2.0 * (70 - kOverlapSteps[i]) * 6);
      }
    }
  }
  const TokenStatistics found = statistics(recording, layer);
  CHECK(found.share == Approx(share));
  CHECK(found.recent == Approx(recent));
  for (std::size_t i = 0; i < 3; ++i) CHECK(found.overlap[i] == Approx(overlap[i]));
  const TokenStatistics all = statistics(recording);
  double mean = 0;
  for (std::uint32_t i = 0; i < 3; ++i) mean += statistics(recording, LayerId{i}).overlap[0] / 3;
  CHECK(all.overlap[0] == Approx(mean));
}

TEST_CASE("hits are counted of the prefill's tokens, the most important first", "[tokens]") {
  // One of ten tokens has 4 hits, one 2, three one each; token 10 does not belong to the prefill.
  const TokenRecording recording{.prefill = 10, .windows = {{{{{3, 5}, {3, 5, 10}, {3, 7, 8}, {3, 9, 10}}}}}};
  const TokenStatistics found = statistics(recording);
  CHECK(found.hits[0] == Approx(4.0 / 9));
  CHECK(found.hits[1] == Approx(6.0 / 9));
  CHECK(found.hits[2] == Approx(1));
  CHECK(found.overlap[1] == 0);  // there are not so many steps
  CHECK_THROWS_AS(statistics(TokenRecording{}), UserError);
}

TEST_CASE("a replay gives the recorded tokens of a context", "[tokens]") {
  const TokenRecording recording = random_recording(4, 20, 5);
  RecordedTokens tokens(recording);
  List positions{99};
  tokens.next(SequenceId{3}, LayerId{4}, 23, 6, positions);  // window 1, layer 1, step 2
  CHECK(positions == recording.windows[1][1][0][2]);
  List shorter(positions.begin() + 1, positions.end());
  tokens.next(SequenceId{1}, LayerId{1}, 23, 5, positions);
  CHECK(positions == shorter);
  tokens.next(SequenceId{1}, LayerId{1}, 23, 7, positions);
  CHECK(positions.size() == 7);
  CHECK(std::is_sorted(positions.begin(), positions.end()));
  CHECK_THROWS_WITH(tokens.next(SequenceId{0}, LayerId{0}, 20, 6, positions),
                    Contains("20 tokens was not recorded: the recording has 21 to 25"));
  CHECK_THROWS_AS(tokens.next(SequenceId{0}, LayerId{0}, 26, 6, positions), UserError);
  CHECK_THROWS_WITH(tokens.next(SequenceId{0}, LayerId{0}, 23, 4, positions), Contains("4 important tokens"));
  CHECK_THROWS_WITH(tokens.next(SequenceId{0}, LayerId{0}, 23, 8, positions), Contains("6 were recorded"));
  CHECK_THROWS_AS(RecordedTokens(TokenRecording{}), UserError);
  CHECK_THROWS_WITH(RecordedTokens({.prefill = 2, .windows = {{{{{0}}, {{1}}}}}}), Contains("2 lists of tokens"));
}

TEST_CASE("a list that lacks one token gets the newest that is not in it", "[tokens]") {
  RecordedTokens tokens({.prefill = 9, .windows = {{{{{2, 8, 9}}}}}});
  List positions;
  tokens.next(SequenceId{0}, LayerId{0}, 10, 4, positions);
  CHECK(positions == List{2, 7, 8, 9});
}

TEST_CASE("naive pools as large as the important set move what is new in it", "[tokens]") {
  // Five of ten tokens are important, and hot is half of the context.
  const TokenRecording recording{.prefill = 9,
                                 .windows = {{{{{0, 1, 2, 3, 9}, {0, 1, 2, 4, 9, 10}, {5, 6, 7, 8, 10, 11}}}}}};
  const PoolTraffic naive = replay(recording, {.hot = {1, 2}, .policy = PoolPolicy::naive});
  CHECK(naive.steps == 2);
  CHECK(naive.context == 11 + 12);
  CHECK(naive.important == 12);
  CHECK(naive.cold_important == 1 + 4);
  CHECK(naive.promoted == 5);
  CHECK(naive.demoted == 1 + 5);  // 3; then 0, 1, 2, 4 and 9
  CHECK(naive.written == 5);      // the drive has held 4 since the prefill
  CHECK(naive.cold == (11 - 6) + (12 - 7));
  CHECK_THROWS_AS(replay(recording, {.hot = {1, 4}, .policy = PoolPolicy::naive}), UserError);
  CHECK_THROWS_WITH(replay(recording, {.hot = {3, 2}}), Contains("3/2 of the context"));
  const PoolTraffic all = replay(recording, {.hot = {1, 1}, .pinned = {1, 5}, .kept_hot = {1, 5}});
  CHECK((all.promoted == 0 && all.demoted == 0 && all.cold == 0));
}

TEST_CASE("traffic is conserved: what enters and leaves is what the pools hold", "[tokens]") {
  const std::uint64_t seed = GENERATE(range(1, 9));
  CAPTURE(seed);
  const TokenRecording recording = random_recording(seed, 40, 60);
  const PoolTraffic traffic = replay(recording, {.hot = {2, 5}, .pinned = {1, 10}, .kept_hot = {1, 5}});
  const PoolTraffic naive = replay(recording, {.hot = {2, 5}, .policy = PoolPolicy::naive});
  for (const PoolTraffic& t : {traffic, naive}) {
    CHECK(t.steps == 2 * 3 * 59);
    CHECK(t.written <= t.demoted);
    // Those of 59 new tokens per list leave that the growing pool has no room for.
    const std::uint64_t grown = 2 * 3 * (40 - 16);
    CHECK(t.demoted - t.promoted == 2 * 3 * 59 - grown);
  }
  CHECK(naive.promoted == naive.cold_important);
}

}  // namespace test_token_recording
