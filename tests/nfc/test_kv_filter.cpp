#include <catch2/catch.hpp>

#include <cstring>
#include <random>
#include <vector>

#include "base/error.h"
#include "nfc/core/kv_filter.h"

namespace csdsim::nfc {
namespace {

std::vector<std::byte> random_page(std::size_t size, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> page(size);
  for (auto& b : page) b = static_cast<std::byte>(random());
  return page;
}

TEST_CASE("a filter passes the wanted rows, without gaps, in row order") {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    const PageRows shape{1 + static_cast<std::uint32_t>(random() % 200), Bytes{1 + random() % 300}};
    const Bytes page_size = shape.size() + Bytes{random() % 64};
    const auto page = random_page(page_size.value, seed);
    std::vector<std::uint64_t> wanted(1 + random() % 4);
    for (auto& word : wanted) word = random() & random();

    std::vector<std::byte> expected;
    for (std::uint32_t row = 0; row < shape.rows; ++row) {
      if (row / 64 >= wanted.size() || ((wanted[row / 64] >> (row % 64)) & 1) == 0) continue;
      const auto* from = page.data() + row * shape.row_size.value;
      expected.insert(expected.end(), from, from + shape.row_size.value);
    }

    KvFilter filter(page_size, FilterLocation::nfc);
    std::vector<std::byte> out(expected.size());
    REQUIRE(filter.pass(shape, wanted, page, out).value == expected.size());
    REQUIRE(out == expected);
    CHECK(filter.pages() == 1);
    CHECK(filter.bytes_in() == page_size);
    CHECK(filter.bytes_out().value == expected.size());
    CHECK(KvFilter::skips(shape, wanted) == expected.empty());
    CHECK(filter.pass(shape, wanted).value == expected.size());
    CHECK(filter.bytes_in() == page_size * 2);
    CHECK(filter.bytes_out().value == 2 * expected.size());
  }
}

TEST_CASE("where the filter sits decides what crosses the channel") {
  const PageRows tokens{16, Bytes{256}};
  const std::vector<std::uint64_t> three{0b1000'0000'0000'0101};
  const std::vector<std::uint64_t> none{0};
  const std::vector<std::uint64_t> behind_the_last_row{std::uint64_t{1} << 16};
  const KvFilter controller(Bytes::kib(4), FilterLocation::nfc);
  const KvFilter die(Bytes::kib(4), FilterLocation::die);
  CHECK(controller.channel_bytes(tokens, three) == Bytes::kib(4));
  CHECK(die.channel_bytes(tokens, three) == Bytes{768});
  for (const auto& skipped : {none, behind_the_last_row, std::vector<std::uint64_t>{}}) {
    CHECK(KvFilter::skips(tokens, skipped));
    CHECK(controller.channel_bytes(tokens, skipped) == Bytes{});
    CHECK(die.channel_bytes(tokens, skipped) == Bytes{});
  }
  CHECK(!KvFilter::skips(tokens, three));
}

TEST_CASE("rows that do not fit are refused and not counted") {
  KvFilter filter(Bytes::kib(4), FilterLocation::nfc);
  const std::vector<std::uint64_t> all{~std::uint64_t{0}};
  const auto page = random_page(4096, 1);
  std::vector<std::byte> out(4096);
  CHECK_THROWS_AS(filter.pass({17, Bytes{256}}, all), InternalError);
  CHECK_THROWS_AS(filter.pass({16, Bytes{256}}, all, page, std::span(out).first(4095)), InternalError);
  CHECK_THROWS_AS(filter.pass({16, Bytes{256}}, all, std::span(page).first(4095), out), InternalError);
  CHECK_THROWS_AS(filter.pass({16, Bytes{1024}}, std::span(all).first(0), page, out), InternalError);
  CHECK(filter.pages() == 0);
  CHECK(filter.bytes_in() == Bytes{});
  CHECK_THROWS_AS(KvFilter(Bytes{}, FilterLocation::nfc), UserError);
}

}  // namespace
}  // namespace csdsim::nfc
