#include <catch2/catch.hpp>

#include "policy_support.h"

namespace test_layouts {

using namespace csdsim;
using namespace csdsim::ftl;
using namespace csdsim::ftl::test;

namespace {

const FlashGeometry kFlash{8, 8, 4, 64, 256, Bytes::kib(4)};
/// OPT-13B: 40 heads of 128, 256 bytes per row, 16 rows a page.
const KvShape kOpt{40, 40, 128, 2048};

KvLayout layout(std::string_view policy, const KvShape& shape, Bytes page = Bytes::kib(4),
                const KvLayoutOptions& options = {}) {
  return builtin().make(policy, {kFlash, {}})->layout(shape, page, options);
}

/// Pages that attending `tokens` of one head reads.
std::uint64_t pages_read(const KvLayout& l, const std::vector<std::uint32_t>& tokens) {
  std::vector<std::uint32_t> groups;
  for (const std::uint32_t t : tokens) groups.push_back(t / l.group_tokens);
  groups.erase(std::unique(groups.begin(), groups.end()), groups.end());
  return groups.size() * l.pages_per_group();
}

}  // namespace

TEST_CASE("every layout passes the checks of the FTL, and holds all rows of a page or fewer") {
  for (const PolicyEntry& entry : builtin().entries()) {
    for (const std::uint32_t heads : {1u, 3u, 8u, 12u, 40u}) {
      for (const std::uint32_t d : {64u, 80u, 128u}) {
        for (const bool adaptive : {false, true}) {
          CAPTURE(entry.name, heads, d, adaptive);
          const Bytes page = d == 80 ? Bytes{5120} : Bytes::kib(4);
          const KvLayout l = layout(entry.name, {2, heads, d, 1000}, page, {.adaptive = adaptive});
          CHECK_NOTHROW(l.validate());
          const std::uint64_t rows = page.value / (2 * d);
          const std::uint64_t used = std::uint64_t{l.group_tokens} * l.page_heads * (l.paired ? 2 : 1);
          CHECK(used <= rows);
          CHECK(used + l.page_heads > rows);
        }
      }
    }
  }
}

TEST_CASE("the layouts of OPT-13B on pages of 4 KiB") {
  const KvLayout instinfer = layout("instinfer", kOpt);
  CHECK(instinfer.group_tokens == 16);
  CHECK(instinfer.pages(1024) == KvPageCount{64, 64, 64});

  const KvLayout paired = layout("paired", kOpt);
  CHECK(paired.group_tokens == 8);
  CHECK(paired.paired);
  CHECK(paired.window_tokens == 256);  // whatever the longest sequence, and growing
  CHECK(paired.doublings == 3);
  CHECK(paired.pages(1024) == KvPageCount{128, 0, 64});
  CHECK(paired.group_buffer(paired.group_tokens - 1).value == 2 * 7 * 256);
  CHECK(instinfer.group_buffer(instinfer.group_tokens - 1).value == 2 * 15 * 256);

  const KvLayout generic = layout("page-l2p", kOpt);
  CHECK(generic.page_heads == 16);
  CHECK(generic.group_tokens == 1);
  CHECK_FALSE(generic.component_major);
  CHECK(layout("page-l2p", {32, 8, 128, 2048}).page_heads == 8);
  CHECK(layout("page-l2p", {32, 8, 128, 2048}).group_tokens == 2);

  for (const char* const name : {"token-striped", "head-per-channel", "channel-balanced", "sequence-block"}) {
    CHECK(layout(name, kOpt).group_tokens == 16);
    CHECK(layout(name, kOpt).window_tokens == instinfer.window_tokens);
  }
}

TEST_CASE("pages that scattered tokens cost") {
  std::vector<std::uint32_t> apart, together;
  for (std::uint32_t i = 0; i < 16; ++i) {
    apart.push_back(64 * i);
    together.push_back(32 + i);
  }
  // 16 rows of K and of V are two pages: the generic SSD reads 16 times as many, wherever the tokens are.
  CHECK(pages_read(layout("page-l2p", kOpt), together) == 32);
  CHECK(pages_read(layout("page-l2p", kOpt), apart) == 32);
  CHECK(pages_read(layout("instinfer", kOpt), together) == 2);
  CHECK(pages_read(layout("instinfer", kOpt), apart) == 32);
  CHECK(pages_read(layout("paired", kOpt), together) == 2);
  CHECK(pages_read(layout("paired", kOpt), apart) == 16);
}

TEST_CASE("dense attention keeps no embedding pages, with any policy") {
  KvShape dense = kOpt;
  dense.component_major = false;
  for (const PolicyEntry& entry : builtin().entries()) {
    CHECK_FALSE(layout(entry.name, dense).component_major);
  }
}

TEST_CASE("rows that do not fit a page are refused with the numbers") {
  for (const PolicyEntry& entry : builtin().entries()) {
    CAPTURE(entry.name);
    CHECK_THROWS_WITH(layout(entry.name, {1, 1, 512, 100}, Bytes{512}),
                      Catch::Contains("512 bytes is smaller than a token row"));
    // Rows that do not divide the page leave its end empty: 25 rows of 160 bytes, or 16 if groups are a power of two.
    const KvLayout of_80 = layout(entry.name, {1, 1, 80, 100});
    CHECK(of_80.group_tokens * (of_80.paired ? 2 : 1) == (of_80.component_major ? 16 : 25));
  }
  CHECK_THROWS_WITH(layout("paired", {1, 1, 256, 100}, Bytes{512}),
                    Catch::Contains("paired: a page of 512 bytes holds 1 token rows of 512 bytes"));
}

TEST_CASE("what tail policy partial_program has written of a window") {
  const KvLayout l = layout("instinfer", kOpt, Bytes::kib(4), {.embedding_group = 4});  // T = 512, n = 16
  CHECK(l.windowed(511) == 0);
  CHECK(l.windowed(1000) == 512);
  CHECK(l.windowed(255, 1) == 0);
  CHECK(l.windowed(256, 1) == 256);
  CHECK(l.windowed(1000, 1) == 768);
  // 512 / 6 is 85 tokens, five groups.
  CHECK(l.windowed(79, 5) == 0);
  CHECK(l.windowed(80, 5) == 80);
  CHECK(l.windowed(512 + 165, 5) == 512 + 160);
  // Not more often than there are groups.
  CHECK(l.windowed(100, 4096) == 96);
}

}  // namespace test_layouts
