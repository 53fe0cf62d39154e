// Definitions of papers. Every file in tests/reproduction/broken states the errors it has to give, in lines
// `# expect: LINE:COL: error: ...`.
#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "base/config/diagnostics.h"
#include "base/error.h"
#include "report/files.h"
#include "reproduction/definition.h"
#include "reproduction/papers.h"

using namespace csdsim;
using namespace csdsim::reproduction;

namespace {

const std::filesystem::path kTests = std::filesystem::path(CSDSIM_SOURCE_DIR) / "tests/reproduction";

std::vector<std::string> expected_errors(const std::string& text) {
  std::vector<std::string> expected;
  constexpr std::string_view kMark = "# expect: ";
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    if (line.starts_with(kMark)) expected.push_back("d.yaml:" + line.substr(kMark.size()));
    at = end + 1;
  }
  return expected;
}

std::vector<std::string> errors_of(const std::string& text) {
  try {
    read_definition(text, "d.yaml", "d");
  } catch (const config::ConfigError& error) {
    return error.messages();
  }
  return {};
}

}  // namespace

TEST_CASE("each broken definition gives exactly the errors that it states") {
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kTests / "broken")) {
    ++files;
    const std::string text = report::read_file(entry.path());
    INFO(entry.path().filename().string());
    CHECK(errors_of(text) == expected_errors(text));
  }
  CHECK(files >= 4);
}

TEST_CASE("a definition in a file") {
  const Paper paper = open_paper((kTests / "papers/tiny.reproduction.yaml").string());
  const Definition& d = paper.definition;
  CHECK(d.name == "tiny");
  CHECK(paper.scenario_file == kTests / "papers/tiny.yaml");
  REQUIRE(d.points.size() == 5);
  CHECK(d.points[0].name == "one");
  CHECK(d.points[0].sets() == std::vector<std::string>{"workload.batch=1"});
  CHECK(d.points[1].sets() == std::vector<std::string>{R"(workload={"batch":"2"})"});
  CHECK(d.points[3].planned);
  CHECK(d.points[4].expected_error == "platform.gpu.memory");
  REQUIRE(d.constants.size() == 1);
  CHECK(d.constants[0].group == ConstantGroup::baseline);
  const Row& row = d.rows.front();
  CHECK(row.id == "tiny.gain");
  CHECK(row.stated == 2);
  CHECK(*row.tolerance == Ratio::of(1, 2));
  CHECK(row.kind == RowKind::ratio);
  CHECK(std::get<ValueFinding>(row.finding).value.text() == "two.tokens_per_s / one.tokens_per_s");
}

TEST_CASE("papers of the program can be read, and an unknown one lists them") {
  const auto papers = builtin_papers();
  REQUIRE_FALSE(papers.empty());
  for (const PaperName& paper : papers) CHECK_FALSE(open_paper(paper.name).scenario_text.empty());
  CHECK_THROWS_WITH(open_paper("instinfr"),
                    Catch::Contains("unknown paper 'instinfr' (did you mean instinfer?); exists: "));
  CHECK_THROWS_WITH(open_paper("no/such.yaml"), "no/such.yaml: error: no such file");
}

TEST_CASE("files that no definition can be are refused with their place") {
  CHECK(errors_of("") == std::vector<std::string>{"d.yaml:1:1: error: the file is empty"});
  CHECK(errors_of("- a\n") ==
        std::vector<std::string>{"d.yaml:1:1: error: the file holds a list, expected a map of keys and values"});
  CHECK(errors_of("title: [\n").size() == 1);
}
