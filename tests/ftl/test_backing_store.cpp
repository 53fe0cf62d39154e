#include <catch2/catch.hpp>
#include <cstring>

#include "base/error.h"
#include "ftl/core/backing_store.h"

namespace test_backing_store {

using namespace csdsim;
using namespace csdsim::ftl;

namespace {

const FlashGeometry kGeometry{2, 1, 1, 4, 4, Bytes{512}};

std::vector<std::byte> page_of(std::uint8_t value) { return std::vector<std::byte>(512, std::byte{value}); }

OobTag tag_of(std::uint64_t index) {
  OobTag tag;
  tag.index = index;
  return tag;
}

}  // namespace

TEST_CASE("a page reads what was programmed, an erased one all ones") {
  BackingStore store(kGeometry, DataMode::carried);
  const auto data = page_of(0x5A);
  store.write({5}, data, tag_of(1));
  CHECK(std::ranges::equal(store.read({5}), data));
  CHECK(std::ranges::equal(store.read({4}), page_of(0xFF)));
  CHECK(std::ranges::equal(store.read({20}), page_of(0xFF)));
  CHECK(store.written({5}));
  store.erase(BlockId{1});
  CHECK_FALSE(store.written({5}));
  CHECK(std::ranges::equal(store.read({5}), page_of(0xFF)));
  store.write({5}, page_of(1), tag_of(2));
  CHECK(store.integrity_errors() == 0);
}

TEST_CASE("misuse of the store is an internal error") {
  BackingStore store(kGeometry, DataMode::carried);
  store.write({0}, page_of(1), tag_of(0));
  CHECK_THROWS_AS(store.write({0}, page_of(1), tag_of(0)), InternalError);
  CHECK_THROWS_AS(store.write({kGeometry.pages()}, page_of(1), tag_of(0)), InternalError);
  CHECK_THROWS_AS(store.write({1}, std::vector<std::byte>(511), tag_of(0)), InternalError);
  BackingStore timing(kGeometry, DataMode::timing);
  timing.write({0}, {}, tag_of(0));
  CHECK_THROWS_AS(timing.read({0}), InternalError);
  CHECK_THROWS_AS(timing.flip_bit({0}, 0), UserError);
}

TEST_CASE("a verifying read counts and names what is wrong, and returns the bytes all the same") {
  BackingStore store(kGeometry, DataMode::carried);
  store.write({3}, page_of(7), tag_of(30));

  CHECK(store.read_verified({3}, tag_of(30), PageCheck::key_and_crc)[0] == std::byte{7});
  CHECK(store.integrity_errors() == 0);

  CHECK(store.read_verified({3}, tag_of(31), PageCheck::key)[0] == std::byte{7});
  CHECK(store.read_verified({2}, tag_of(20), PageCheck::key)[0] == std::byte{0xFF});
  store.flip_bit({3}, 8 * 100 + 3);
  CHECK(store.read({3})[100] == std::byte{7 ^ 8});
  store.read_verified({3}, tag_of(30), PageCheck::key);  // the key alone is blind to it
  CHECK(store.integrity_errors() == 2);
  store.read_verified({3}, tag_of(30), PageCheck::key_and_crc);
  REQUIRE(store.integrity_errors() == 3);

  const auto& errors = store.kept_integrity_errors();
  CHECK(errors[0].what == IntegrityError::What::wrong_key);
  CHECK(errors[0].expected.index == 31);
  CHECK(errors[0].found.index == 30);
  CHECK(to_string(errors[0]) == "physical page 3: expected host page 31, found host page 30");
  CHECK(errors[1].what == IntegrityError::What::not_written);
  CHECK(errors[2].what == IntegrityError::What::wrong_crc);
  CHECK(errors[2].expected_crc != errors[2].found_crc);

  for (int i = 0; i < 200; ++i) store.read_verified({2}, tag_of(20), PageCheck::key);
  CHECK(store.integrity_errors() == 203);
  CHECK(store.kept_integrity_errors().size() == BackingStore::kMaxKeptErrors);
}

TEST_CASE("out-of-band metadata says what was written and in which order, until power fails on the page") {
  BackingStore store(kGeometry, DataMode::carried);
  for (std::uint64_t page : {3, 0, 5, 8}) store.write({page}, page_of(1), tag_of(10 + page));
  CHECK(store.oob({0})->tag == tag_of(10));
  CHECK(store.oob({0})->stamp > store.oob({3})->stamp);
  CHECK_FALSE(store.oob({1}).has_value());

  store.lose_power({{{3}, {2}}, {{5}}, {BlockId{2}}});  // page 2 was never written
  CHECK_FALSE(store.oob({3}).has_value());
  CHECK(store.written({3}));
  CHECK_FALSE(std::ranges::equal(store.read({3}), page_of(1)));
  CHECK_FALSE(store.written({2}));
  CHECK_FALSE(store.written({5}));
  CHECK(std::ranges::equal(store.read({5}), page_of(0xFF)));
  for (std::uint64_t page = 8; page < 12; ++page) {
    CHECK(store.written({page}));
    CHECK_FALSE(store.oob({page}).has_value());
  }
  CHECK(store.oob({0})->tag == tag_of(10));
  CHECK(std::ranges::equal(store.read({0}), page_of(1)));
  store.read_verified({3}, tag_of(13), PageCheck::key);
  REQUIRE(store.integrity_errors() == 1);
  CHECK(store.kept_integrity_errors()[0].what == IntegrityError::What::torn);
  store.erase(BlockId{2});
  store.write({8}, page_of(2), tag_of(1));
  CHECK(store.oob({8})->stamp > store.oob({0})->stamp);
}

TEST_CASE("what a block held is back after a power loss before its erase was run, and not after") {
  const FlashGeometry g{1, 1, 1, 2, 4, Bytes{16}};
  const std::vector<std::byte> old(16, std::byte{1}), fresh(16, std::byte{2});
  OobTag tag;
  BackingStore store(g, DataMode::carried);
  store.keep_until_erased();
  const auto use_twice = [&] {
    store.write({0}, old, tag);
    store.erase(BlockId{0});
    store.write({0}, fresh, tag);
    store.erase(BlockId{0});
  };
  use_twice();
  CHECK_FALSE(store.written({0}));
  store.lose_power({});
  CHECK(store.read({0})[0] == std::byte{1});
  store.erase(BlockId{0});
  store.finish_erase(BlockId{0});
  use_twice();
  store.finish_erase(BlockId{0});
  store.lose_power({});
  CHECK(store.read({0})[0] == std::byte{2});
  CHECK_THROWS_AS(store.finish_erase(BlockId{0}), InternalError);
}

TEST_CASE("a copy has the stamp of its source") {
  const FlashGeometry g{1, 1, 1, 2, 4, Bytes{16}};
  const std::vector<std::byte> bytes(16, std::byte{1});
  OobTag tag;
  BackingStore store(g, DataMode::carried);
  store.write({0}, bytes, tag);
  store.write({1}, bytes, tag);
  store.copy({0}, {2}, bytes, tag, true);
  CHECK(store.oob({2})->stamp == store.oob({0})->stamp);
  CHECK(store.oob({2})->damaged);
  CHECK_FALSE(store.oob({0})->damaged);
  CHECK(store.clock() == 3);
  CHECK_THROWS_AS(store.copy({3}, {4}, bytes, tag, false), InternalError);
}

}  // namespace test_backing_store
