#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "base/text.h"

namespace test_text {

using namespace csdsim;

TEST_CASE("the nearest name is the one that was meant") {
  const std::vector<std::string> names{"channels", "channel_bandwidth", "read_latency", "l", "r", "k"};
  CHECK(nearest_name("chanels", names) == "channels");
  CHECK(nearest_name("cahnnels", names) == "channels");
  CHECK(nearest_name("Read_Latency", names) == "read_latency");
  CHECK(nearest_name("bandwidth", names) == "channel_bandwidth");
  CHECK(nearest_name("channelss", names) == "channels");
  CHECK(nearest_name("colour", names).empty());
  CHECK(nearest_name("", names).empty());
  CHECK(did_you_mean("zzz", names).empty());
  CHECK(did_you_mean("chanels", names) == " (did you mean channels?)");
}

TEST_CASE("text of users is made printable") {
  CHECK(printable("a\nb") == "a\\x0ab");
  CHECK(printable("\xFF") == "\\xff");
  CHECK(printable("\u00e9s") == "\u00e9s");
  CHECK(printable(std::string(100, 'x')).size() == 63);
}

TEST_CASE("UTF-8 is checked") {
  CHECK(invalid_utf8("plain \u00e9 \u20ac \U0001F600") == std::string_view::npos);
  CHECK(invalid_utf8("ab\xC0\xAF") == 2);         // overlong
  CHECK(invalid_utf8("\xED\xA0\x80") == 0);       // surrogate
  CHECK(invalid_utf8("x\xF4\x90\x80\x80") == 1);  // beyond U+10FFFF
  CHECK(invalid_utf8("\xE2\x82") == 0);           // cut short
  CHECK(invalid_utf8("\xE0\x80\x80") == 0);       // overlong
}

TEST_CASE("escaped text is JSON") {
  const std::string text = "quote \" backslash \\ newline \n bell \a";
  CHECK(nlohmann::json::parse(fmt::format("\"{}\"", json_escape(text))) == text);
}

}  // namespace test_text
