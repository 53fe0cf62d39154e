#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <numeric>

#include "attention_engine/core/selection.h"
#include "attention_engine/core/top_k.h"
#include "base/error.h"
#include "base/rng.h"

namespace test_selection {

using namespace csdsim;
using namespace csdsim::engine;

namespace {

HeadKey head(std::uint32_t h) { return {SequenceId{1}, LayerId{0}, KvHead{h}}; }

constexpr SparfParams kSparf{.r = 16, .k = 192, .l = 48};

}  // namespace

TEST_CASE("the largest keys in ascending order: of equal ones the lower index, -0 equals +0, NaN comes last") {
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> keys{nan, -0.0f, 0.0f, -infinity, 3, -0.0f, 3, -1};
  const auto largest = [&](std::uint32_t k) {
    std::vector<std::uint32_t> found;
    TopK().select(keys, k, found);
    return found;
  };
  using Indices = std::vector<std::uint32_t>;
  CHECK(largest(0) == Indices{});
  CHECK(largest(1) == Indices{4});
  CHECK(largest(2) == Indices{4, 6});
  CHECK(largest(3) == Indices{1, 4, 6});
  CHECK(largest(4) == Indices{1, 2, 4, 6});
  CHECK(largest(5) == Indices{1, 2, 4, 5, 6});
  CHECK(largest(6) == Indices{1, 2, 4, 5, 6, 7});
  CHECK(largest(7) == Indices{1, 2, 3, 4, 5, 6, 7});
  CHECK(largest(9) == Indices{0, 1, 2, 3, 4, 5, 6, 7});
}

TEST_CASE("clustered selection touches its share of pages, the local ones always, and the same ones every time") {
  const KvHeadView view{.tokens = 1541,
                        .head_dim = 128,
                        .tokens_per_page = 16,
                        .embedding_group = 8,
                        .window = 256,
                        .flushed_tokens = 1536,
                        .transposed_tokens = 1536};
  ClusteredSelection selection(0.25, 5);
  PageGroups first, again, other;
  selection.tokens(head(1), view, kSparf, first);
  selection.tokens(head(1), view, kSparf, again);
  selection.tokens(head(2), view, kSparf, other);
  CHECK(first.groups == again.groups);
  CHECK(first.groups != other.groups);
  CHECK(first.groups.size() == 24);
  CHECK(std::is_sorted(first.groups.begin(), first.groups.end()));
  for (std::uint32_t g = (1541 - 48) / 16; g < 96; ++g) {
    CHECK(std::binary_search(first.groups.begin(), first.groups.end(), g));
  }
  CHECK(std::accumulate(first.rows.begin(), first.rows.end(), 0u) == 192 - 5);

  // Over many heads every older group is as likely as another.
  std::vector<int> hits(96);
  for (std::uint32_t h = 0; h < 4000; ++h) {
    selection.tokens(head(h), view, kSparf, first);
    for (auto g : first.groups) ++hits[g];
  }
  for (std::uint32_t g = 0; g < 93; ++g) CHECK(std::abs(hits[g] - 4000 * 21 / 93.0) < 5 * std::sqrt(4000 * 0.226));

  selection.components(head(1), view, kSparf, first);
  CHECK(std::accumulate(first.rows.begin(), first.rows.end(), 0u) == 16);
  // 192 tokens fill at least 12 pages however small the share.
  ClusteredSelection tight(0.001, 5);
  tight.tokens(head(1), view, {.r = 16, .k = 192, .l = 0}, first);
  CHECK(first.groups.size() == 12);
  for (auto rows : first.rows) CHECK(rows == 16);
  CHECK_THROWS_AS(ClusteredSelection(0, 5), UserError);
  CHECK_THROWS_AS(ClusteredSelection(1.01, 5), UserError);
}

TEST_CASE("the touched pages follow from the selected tokens in each, at a constant ratio a constant share") {
  const std::uint32_t n = 16;
  ClusteredSelection per_page = ClusteredSelection::with_selected_per_page(8, 5);
  PageGroups touched, of_share;
  const auto touch = [&](std::uint32_t tokens, std::uint32_t k) {
    const KvHeadView view{.tokens = tokens,
                          .head_dim = 128,
                          .tokens_per_page = n,
                          .embedding_group = 8,
                          .window = 256,
                          .flushed_tokens = tokens - tokens % n};
    per_page.tokens(head(1), view, {.r = 16, .k = k, .l = k / 4}, touched);
    ClusteredSelection(std::min(1.0, 2.0 * k / tokens), 5)
        .tokens(head(1), view, {.r = 16, .k = k, .l = k / 4}, of_share);
  };
  // 1,024 tokens are 64 pages: of 512 selected tokens 8 lie in each, of 32 in each of 4 pages.
  for (const std::uint32_t divisor : {2u, 4u, 8u, 16u, 32u}) {
    touch(1024, 1024 / divisor);
    CHECK(touched.groups.size() == 1024 / divisor / 8);
  }
  touch(1024, 640);
  CHECK(touched.groups.size() == 64);  // more than 8 in each page of all
  // While the context grows, an eighth of it touches the pages that a quarter of them says: the same ones.
  for (std::uint32_t tokens = 1024; tokens < 2048; ++tokens) {
    touch(tokens, (tokens + 4) / 8);
    CHECK(touched.groups == of_share.groups);
    CHECK(std::abs(double(touched.groups.size()) - 0.25 * (tokens / n)) <= 0.5 + 1.0 / n);
  }
  CHECK_THROWS_AS(ClusteredSelection::with_selected_per_page(0.9, 5), UserError);
}

TEST_CASE("a clustered selection draws the counter's random numbers, however many pages a head has") {
  // 2,500 groups: more than the numbers that are mixed in advance.
  const std::uint32_t groups = 2500, n = 16, tokens = groups * n;
  const KvHeadView view{.tokens = tokens,
                        .head_dim = 128,
                        .tokens_per_page = n,
                        .embedding_group = 8,
                        .window = 256,
                        .flushed_tokens = tokens,
                        .transposed_tokens = tokens};
  const std::uint64_t seed = 7;
  PageGroups selected;
  ClusteredSelection(0.5, seed).tokens(head(3), view, {.r = 16, .k = 192, .l = 0}, selected);
  std::uint64_t state = seed;
  for (const std::uint64_t part : {1u, 0u, 3u, tokens, 1u}) state = splitmix64(state) ^ part;
  state = splitmix64(state);
  std::vector<std::uint32_t> expected;
  std::uint32_t left = groups / 2;
  for (std::uint32_t i = 0; i < groups && left > 0; ++i) {
    if ((counter_random(state, i) >> 32) * (groups - i) >> 32 >= left) continue;
    expected.push_back(i);
    --left;
  }
  CHECK(selected.groups == expected);
}

TEST_CASE("recorded selection maps indices to the pages of the layout at hand") {
  RecordedSelection selection;
  selection.record(head(0), 100, {0, 3, 8}, {1, 2, 40, 99});
  const KvHeadView view{
      .tokens = 100, .head_dim = 128, .tokens_per_page = 16, .embedding_group = 4, .window = 512, .flushed_tokens = 96};
  PageGroups groups;
  selection.components(head(0), view, {}, groups);
  CHECK(groups.groups == std::vector<std::uint32_t>{0, 2});
  CHECK(groups.rows == std::vector<std::uint32_t>{2, 1});
  selection.tokens(head(0), view, {}, groups);
  CHECK(groups.groups == std::vector<std::uint32_t>{0, 2});
  CHECK_THROWS_WITH(selection.tokens(head(1), view, {}, groups), Catch::Contains("head 1 at 100 tokens"));
  CHECK_THROWS_AS(selection.record(head(0), 100, {}, {}), UserError);
}

TEST_CASE("a recorded selection stretches to any head: the same share of the pages, of the same age") {
  RecordedSelection selection(64);
  std::vector<std::uint32_t> tokens;
  for (std::uint32_t j = 0; j < 32; ++j) tokens.push_back(64 + j);  // pages 2 of 16 at 32 tokens a page
  tokens.push_back(500);                                            // and 15
  selection.record(head(0), 512, {1, 2, 40}, tokens);
  selection.record(head(0), 600, {1, 2, 40}, {7, 8});
  KvHeadView view{
      .tokens = 512, .head_dim = 64, .tokens_per_page = 32, .embedding_group = 4, .window = 512, .flushed_tokens = 512};
  const SparfParams params{.r = 3, .k = 33, .l = 1};
  PageGroups out;
  selection.tokens(head(0), view, params, out);  // itself
  CHECK(out.groups == std::vector<std::uint32_t>{2, 15});
  CHECK(out.rows == std::vector<std::uint32_t>{32, 1});
  selection.components(head(0), view, params, out);
  CHECK(out.groups == std::vector<std::uint32_t>{0, 10});

  // Another sequence, layer and head, twice as long, 16 tokens a page: 64 groups that stand for 32.
  view = {.tokens = 1024,
          .head_dim = 128,
          .tokens_per_page = 16,
          .embedding_group = 4,
          .window = 512,
          .flushed_tokens = 1024};
  const HeadKey other{SequenceId{5}, LayerId{7}, KvHead{3}};
  selection.record(head(0), 1100, {1, 2, 40}, {7, 8});
  const SparfParams twice{.r = 6, .k = 66, .l = 1};
  view.tokens = 800;  // nearer to 600 than to 1100, whose budget is another
  CHECK_THROWS_WITH(selection.tokens(other, view, twice, out), Catch::Contains("k/S = 0.0033"));
  view.tokens = 520;
  view.flushed_tokens = 512;
  selection.tokens(other, view, params, out);
  CHECK(out.groups == std::vector<std::uint32_t>{4, 5, 31});
  CHECK(out.rows == std::vector<std::uint32_t>{11, 11, 11});
  selection.components(other, view, twice, out);  // 16 groups of 4 stand for 32
  CHECK(out.groups == std::vector<std::uint32_t>{0, 1, 20, 21});
  CHECK(out.rows == std::vector<std::uint32_t>{2, 2, 1, 1});
  CHECK_THROWS_WITH(selection.components(other, view, {.r = 30, .k = 33}, out), Catch::Contains("r/d"));
  // Two layers and two sequences: sequence 2 is the first once more, one layer further.
  RecordedSelection layers(64);
  for (std::uint32_t s = 0; s < 2; ++s) {
    for (std::uint32_t l = 0; l < 2; ++l) {
      layers.record({SequenceId{s}, LayerId{l}, KvHead{0}}, 512, {1}, {32 * (2 * s + l)});
    }
  }
  view = {
      .tokens = 512, .head_dim = 64, .tokens_per_page = 32, .embedding_group = 4, .window = 512, .flushed_tokens = 512};
  const auto page = [&](std::uint32_t sequence, std::uint32_t layer) {
    layers.tokens({SequenceId{sequence}, LayerId{layer}, KvHead{9}}, view, {.r = 1, .k = 1}, out);
    return out.groups.at(0);
  };
  CHECK(page(0, 0) == 0);
  CHECK(page(1, 0) == 2);
  CHECK(page(0, 3) == 1);
  CHECK(page(2, 0) == 1);
  CHECK(page(3, 0) == 3);
  CHECK(page(3, 1) == 2);
  CHECK(page(4, 0) == 0);

  RecordedSelection empty(64);
  CHECK_THROWS_AS(empty.tokens(other, view, params, out), UserError);
}

}  // namespace test_selection
