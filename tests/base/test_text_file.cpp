// The reader of text files: byte-order marks, line ends, and the place of bytes that are not text.
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <functional>

#include "base/error.h"
#include "base/text.h"
#include "base/text_file.h"
#include "tests/support/temporary_file.h"

namespace test_text_file {

using namespace csdsim;
using Catch::Matchers::Contains;
using test::TemporaryFile;

namespace {

std::vector<std::string> lines_of(const std::string& bytes) {
  const TemporaryFile file(bytes);
  TextLines lines(file.path);
  std::vector<std::string> all;
  while (const auto line = lines.next()) all.emplace_back(*line);
  return all;
}

/// The message of either reader, without the name of the file.
template <class Read>
std::string error_of(const std::string& bytes, Read read) {
  const TemporaryFile file(bytes);
  try {
    read(file.path);
  } catch (const UserError& error) {
    const std::string message = error.what();
    REQUIRE(message.starts_with(file.path.string()));
    return message.substr(file.path.string().size());
  }
  return "no error";
}
const auto kWhole = [](const std::filesystem::path& path) { read_text_file(path, Bytes{64}); };
const auto kLines = [](const std::filesystem::path& path) {
  TextLines lines(path, 64);
  while (lines.next()) {
  }
};

}  // namespace

TEST_CASE("a mark, CRLF and a missing last newline change nothing") {
  const std::vector<std::string> expected{"a,b", "1, 2"};
  for (const std::string& mark : {std::string(), std::string("\xEF\xBB\xBF")})
    for (const std::string& end : {std::string("\n"), std::string("\r\n")})
      for (const std::string& last : {std::string(), end, end + end}) {
        CHECK(lines_of(mark + "a,b" + end + end + "1, 2" + last) == expected);
        const TemporaryFile file(mark + "x" + end + "y" + last);
        CHECK(read_text_file(file.path, Bytes{64}) ==
              "x\ny" + std::string(last.empty() ? 0 : last.size() / end.size(), '\n'));
      }
  CHECK(lines_of("").empty());
  CHECK(lines_of("\xEF\xBB\xBF").empty());
}

TEST_CASE("bytes that are no text are located") {
  for (const auto& read : {std::function<void(const std::filesystem::path&)>(kWhole), {kLines}}) {
    CHECK(error_of("ok\n5 \xB5s\n", read) == ":2:3: error: byte 0xB5 is not UTF-8 text; save the file as UTF-8");
    CHECK(error_of("\xEF\xBB\xBF\xB5", read).starts_with(":1:1: error: byte 0xB5"));
    CHECK(error_of(std::string("\xFF\xFEh\0", 4), read) == ":1:1: error: the file is UTF-16 text; save it as UTF-8");
    CHECK(error_of(std::string("a\0b\0", 4), read) == ":1:2: error: the file is UTF-16 text; save it as UTF-8");
    CHECK(error_of(std::string("\0a\0b", 4), read) == ":1:1: error: the file is UTF-16 text; save it as UTF-8");
    CHECK(error_of("cut \xC3", read).starts_with(":1:5: error: byte 0xC3"));
  }
  for (const auto& [bytes, program] :
       {std::pair("\x1F\x8B\x08", "gzip"), std::pair("\x28\xB5\x2F\xFD$", "zstd"), std::pair("\xFD\x37zXZ", "xz"),
        std::pair("BZh9\xFF", "bzip2"), std::pair("PK\x03\x04\xFF", "zip")})
    for (const auto& read : {std::function<void(const std::filesystem::path&)>(kWhole), {kLines}})
      CHECK_THAT(error_of(bytes, read), Contains(std::string("error: the file is packed with ") + program));
  CHECK(error_of(std::string("PK\x03\x04\0", 5), kLines) ==
        ":1:5: error: the file is packed with zip; unpack it first");
  CHECK(error_of(std::string("a\nb\0c", 5), kLines) == ":2:2: error: a NUL character: not text");
  CHECK(error_of("a\rb\r", kLines) == ":1:2: error: a carriage return inside a line; lines end with LF or CRLF");
  CHECK(error_of(std::string(65, 'x'), kLines) == ":1:65: error: a line of more than 64 bytes");
  CHECK(error_of(std::string(64, 'x'), kLines) == "no error");
  CHECK(error_of(std::string(65, 'x'), kWhole) == ": error: larger than the limit of 64 bytes");
  CHECK_THROWS_WITH(TextLines("/tmp"), Contains("/tmp: error: is a directory"));
  CHECK_THROWS_WITH(read_text_file("/no/such", Bytes{1}), Contains("/no/such: error: no such file"));
}

TEST_CASE("a last line without its end may be torn, which errors and notes say") {
  /// What an error in line `line` and the note say of a file that was read to its end, without its name.
  const auto said = [](const std::string& bytes, std::uint64_t line) {
    const TemporaryFile file(bytes);
    TextLines lines(file.path);
    while (lines.next()) {
    }
    const std::size_t name = file.path.string().size();
    const std::string note = lines.torn_note();
    try {
      lines.fail(line, 1, "wrong");
    } catch (const UserError& error) {
      return std::pair(std::string(error.what()).substr(name), note.substr(std::min(name, note.size())));
    }
  };
  using Said = std::pair<std::string, std::string>;
  const std::string note =
      ":2: note: the file ends in this line, without a line end; if the line is torn, its last value is wrong";
  CHECK(said("one\ntwo", 2) ==
        Said{":2:1: error: wrong; the file ends in this line, without a line end: the line may be torn", note});
  CHECK(said("one\ntwo", 1) == Said{":1:1: error: wrong", note});
  for (const char* const whole : {"one\ntwo\n", "one\r\ntwo\r\n", "one\ntwo\n\n", "one\ntwo\n  ", "one\ntwo\r"})
    CHECK(said(whole, 2) == Said{":2:1: error: wrong", ""});
  CHECK(said("", 0) == Said{":0:1: error: wrong", ""});
}

TEST_CASE("characters that cannot be told apart are named") {
  CHECK(printable("\uFEFFarrival_s") == "<U+FEFF>arrival_s");
  CHECK(printable("a\u00a0b") == "a<U+00A0>b");
  CHECK(printable("\u0430rrival") == "\u0430<U+0430>rrival");
  CHECK(printable("5 \u03bcs") == "5 \u03bc<U+03BC>s");
  CHECK(printable("\uff15\uff10") == "\uff15<U+FF15>\uff10<U+FF10>");
  CHECK(printable("\u041f\u0440\u0438\u0432\u0435\u0442") == "\u041f\u0440\u0438\u0432\u0435\u0442");
}

TEST_CASE("fields have their text and their column") {
  const auto fields = comma_separated(" a ,, b c");
  REQUIRE(fields.size() == 3);
  CHECK((fields[0].text == "a" && fields[0].column == 2));
  CHECK((fields[1].text.empty() && fields[1].column == 5));
  CHECK((fields[2].text == "b c" && fields[2].column == 7));
  const auto quoted = comma_separated("\"a\", \" b,c \" ,d\"e,\"\",\"f,7");
  const std::vector<std::pair<std::string_view, std::uint32_t>> expected{{"a", 2}, {" b,c ", 7}, {"d\"e", 15},
                                                                         {"", 20}, {"\"f", 22},  {"7", 25}};
  REQUIRE(quoted.size() == expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CHECK(quoted[i].text == expected[i].first);
    CHECK(quoted[i].column == expected[i].second);
  }
  const auto words = blank_separated("\tone  two ");
  REQUIRE(words.size() == 2);
  CHECK((words[1].text == "two" && words[1].column == 7));
}

}  // namespace test_text_file
