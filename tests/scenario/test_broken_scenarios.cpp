// Every file in tests/scenario/broken states the errors it has to give, in lines `# expect: LINE:COL: error: ...`.
#include <fmt/format.h>

#include "tests/scenario/scenario_support.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <fstream>
#include <sstream>

namespace test_broken_scenarios {

using namespace csdsim;
using namespace csdsim::scenario;
using namespace csdsim::test;

namespace {

const std::filesystem::path kBroken = std::filesystem::path(CSDSIM_SOURCE_DIR) / "tests/scenario/broken";

std::vector<std::string> errors_of(const std::string& text, const std::vector<std::string>& sets = {}) {
  try {
    load_scenario_text(text, "s.yaml", kBroken, sets);
  } catch (const config::ConfigError& e) {
    return e.messages();
  }
  return {};
}

constexpr const char* kGood = "csdsim: 1\nmodel: {preset: opt-13b}\nworkload: {kind: generation, output_tokens: 8}\n";

}  // namespace

TEST_CASE("each broken scenario gives exactly the errors that it states") {
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kBroken)) {
    if (entry.path().extension() != ".yaml") continue;
    ++files;
    std::ifstream stream(entry.path());
    std::vector<std::string> expected;
    for (std::string line; std::getline(stream, line);) {
      constexpr std::string_view kMark = "# expect: ";
      if (line.starts_with(kMark)) expected.push_back(line.substr(kMark.size()));
    }
    std::vector<std::string> messages;
    try {
      load_scenario(entry.path());
    } catch (const config::ConfigError& e) {
      messages = e.messages();
    }
    std::string all;
    for (const auto& m : messages) all += m + "\n";
    INFO(entry.path().filename().string() << " gives:\n" << all);
    REQUIRE_FALSE(expected.empty());
    CHECK(messages.size() == expected.size());
    for (const std::string& e : expected) {
      const std::string located = entry.path().string() + ":" + e;
      INFO("expected " << located);
      CHECK(std::any_of(messages.begin(), messages.end(), [&](const auto& m) { return m.starts_with(located); }));
    }
  }
  CHECK(files >= 20);
}

TEST_CASE("files that no text file can hold are refused with their place") {
  CHECK(errors_of("") == std::vector<std::string>{"s.yaml:1:1: error: the file is empty"});
  CHECK(errors_of("   \n\n") == std::vector<std::string>{"s.yaml:1:1: error: the file is empty"});
  CHECK(errors_of("csdsim: 1\nname: a\xFF\n") ==
        std::vector<std::string>{"s.yaml:2:8: error: the file is not UTF-8 text"});
  CHECK(errors_of("\xFF\xFE"
                  "c") == std::vector<std::string>{"s.yaml:1:1: error: the file is not UTF-8 text"});
  CHECK(errors_of(std::string("csdsim: 1\nname: \0\n", 18)).front() ==
        "s.yaml:2:7: error: control character \\x00 in the file");
  CHECK(
      errors_of(std::string((1 << 20) + 1, '#')).front().starts_with("s.yaml:1:1: error: the file has 1048577 bytes"));
  CHECK(errors_of("just words").front().starts_with("s.yaml:1:1: error: the file holds a single value"));
}

TEST_CASE("a tab that indents is called one, and other tabs are not") {
  CHECK(errors_of("csdsim: 1\nplatform:\n\tdevice: {}\n") ==
        std::vector<std::string>{"s.yaml:3:1: error: a tab indents this line; YAML indents with blanks only"});
  CHECK(errors_of("csdsim: 1\n# with\ta tab\nname: [\n").front().find("tab") == std::string::npos);
  CHECK(errors_of("csdsim: 1\nplatform:\n  \u00a0device: {}\n  link: {\n") ==
        std::vector<std::string>{"s.yaml:3:3: error: <U+00A0> indents this line; YAML indents with blanks only"});
  // The mark takes no column.
  CHECK(errors_of("\xEF\xBB\xBFxsdsim: 1\r\n").front().starts_with("s.yaml:1:1: error: "));
}

TEST_CASE("absurd nesting is refused, whatever its form") {
  for (const std::string& open : {std::string("["), std::string("{a: "), std::string("- "), std::string("? ")}) {
    std::string text = "csdsim: 1\na: ";
    if (open == "- " || open == "? ") text = "";
    for (int i = 0; i < 20'000; ++i) text += open;
    const auto errors = errors_of(text);
    INFO(open);
    REQUIRE(errors.size() == 1);
    CHECK(errors.front().find("nested deeper than 32 levels") != std::string::npos);
  }
}

TEST_CASE("a large but shallow file is read in reasonable time and refused for what it holds") {
  std::string text = kGood;
  for (int i = 0; i < 60'000; ++i) text += fmt::format("k{}: 1\n", i);
  CHECK(errors_of(text).size() == 1);  // too many values
}

TEST_CASE("a missing or unreadable scenario file is named") {
  CHECK_THROWS_WITH(load_scenario("no/such.yaml"), "no/such.yaml: error: no such file");
  CHECK_THROWS_WITH(load_scenario("-"), "-: error: no such file; standard input is /dev/stdin");
  CHECK_THROWS_WITH(load_scenario(kBroken), Catch::Contains("is a directory"));
}

TEST_CASE("settings of the command line go through the same reader and are located by themselves") {
  const auto one = [](const std::string& set) {
    const auto errors = errors_of(kGood, {set});
    REQUIRE(errors.size() == 1);
    return errors.front();
  };
  CHECK(one("platform.device.flash.read_latency=50") ==
        "--set platform.device.flash.read_latency=50: error: platform.device.flash.read_latency: '50' has no unit: "
        "write a time such as 50 us");
  CHECK(one("platform.devce.count=2") ==
        "--set platform.devce.count=2: error: unknown key 'devce' in platform (did you mean device?)");
  CHECK(one("workload.batch=010").find("starts with a zero") != std::string::npos);
  CHECK(one("nonsense").find("expected PATH=VALUE") != std::string::npos);
  CHECK(one("=3").find("expected PATH=VALUE") != std::string::npos);
  CHECK(one("a..b=3").find("is not a path") != std::string::npos);
  CHECK(one("seed=").find("seed has no value") != std::string::npos);
  CHECK(one("seed=[").find("--set seed=[: error: not YAML") != std::string::npos);
  CHECK(errors_of(kGood, {"seed={a: 1, a: 2}"}).front().find("duplicate key 'a'") != std::string::npos);
  CHECK(one("workload.output_tokens=2041")
            .starts_with("--set workload.output_tokens=2041: error: workload: 2169 tokens"));
  // A mistake of the file and one of the command line are both reported, the file's first.
  const auto both = errors_of(std::string(kGood) + "sead: 1\n", {"name=a/b"});
  REQUIRE(both.size() == 2);
  CHECK(both[0].starts_with("s.yaml:4:1: error: unknown key 'sead'"));
  CHECK(both[1].starts_with("--set name=a/b: error: name:"));
}

}  // namespace test_broken_scenarios
