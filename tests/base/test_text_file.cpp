// The reader of text files: byte-order marks, line ends, and the place of bytes that are not text.
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <functional>

#include "base/error.h"
#include "base/text.h"
#include "base/text_file.h"

namespace test_text_file {

using namespace csdsim;
using Catch::Matchers::Contains;

namespace {

struct TemporaryFile {
  std::filesystem::path path;

  explicit TemporaryFile(const std::string& bytes) {
    char name[] = "/tmp/csdsim-text-XXXXXX";
    const int descriptor = mkstemp(name);
    REQUIRE(descriptor >= 0);
    close(descriptor);
    path = name;
    std::ofstream(path, std::ios::binary) << bytes;
  }
  ~TemporaryFile() { std::filesystem::remove(path); }
};

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
    CHECK(error_of("cut \xC3", read).starts_with(":1:5: error: byte 0xC3"));
  }
  CHECK(error_of(std::string("a\nb\0c", 5), kLines) == ":2:2: error: a NUL character: not text");
  CHECK(error_of("a\rb\r", kLines) == ":1:2: error: a carriage return inside a line; lines end with LF or CRLF");
  CHECK(error_of(std::string(65, 'x'), kLines) == ":1:65: error: a line of more than 64 bytes");
  CHECK(error_of(std::string(64, 'x'), kLines) == "no error");
  CHECK(error_of(std::string(65, 'x'), kWhole) == ": error: larger than the limit of 64 bytes");
  CHECK_THROWS_WITH(TextLines("/tmp"), Contains("/tmp: error: is a directory"));
  CHECK_THROWS_WITH(read_text_file("/no/such", Bytes{1}), Contains("/no/such: error: no such file"));
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
  const auto words = blank_separated("\tone  two ");
  REQUIRE(words.size() == 2);
  CHECK((words[1].text == "two" && words[1].column == 7));
}

}  // namespace test_text_file
