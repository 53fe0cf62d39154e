// CRC-32 against the definition.
#include <catch2/catch.hpp>
#include <string_view>
#include <vector>

#include "base/crc32.h"

namespace test_crc32 {

using namespace csdsim;

TEST_CASE("crc32 gives the check value of the standard, at every length") {
  constexpr std::string_view text = "123456789";
  CHECK(crc32(std::as_bytes(std::span(text))) == 0xCBF43926u);
  CHECK(crc32({}) == 0u);
  // Slicing by 8 against the definition, bit by bit.
  std::vector<std::byte> data;
  for (int i = 0; i < 67; ++i) data.push_back(static_cast<std::byte>(i * 37 + 11));
  for (std::size_t length = 0; length <= data.size(); ++length) {
    std::uint32_t expected = ~0u;
    for (std::size_t i = 0; i < length; ++i) {
      expected ^= std::to_integer<std::uint32_t>(data[i]);
      for (int bit = 0; bit < 8; ++bit) expected = (expected >> 1) ^ ((expected & 1u) != 0 ? 0xEDB88320u : 0u);
    }
    CHECK(crc32(std::span(data).first(length)) == ~expected);
  }
}

TEST_CASE("crc32 of data in parts is that of the whole") {
  constexpr std::string_view text = "123456789";
  const auto bytes = std::as_bytes(std::span(text));
  for (std::size_t first = 0; first <= bytes.size(); ++first)
    CHECK(crc32(bytes.subspan(first), crc32(bytes.first(first))) == 0xCBF43926u);
}

}  // namespace test_crc32
