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
#include "reproduction/selection.h"

namespace test_definition {

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
  REQUIRE(d.constants.size() == 2);
  CHECK(d.constants[0].group == ConstantGroup::baseline);
  const Row& row = d.rows.front();
  CHECK(row.id == "tiny.gain");
  CHECK(row.stated == 2);
  CHECK(row.tolerance->most == Ratio::of(1, 2));
  CHECK_FALSE(row.tolerance->points);
  CHECK(row.kind == RowKind::ratio);
  CHECK(std::get<ValueFinding>(row.finding).value.text() == "two.tokens_per_s / one.tokens_per_s");
}

TEST_CASE("LLM in a flash lists fitted constants, then what it takes from the paper") {
  const Paper paper = open_paper("llm-in-a-flash");
  std::vector<ConstantGroup> groups;
  for (const Constant& constant : paper.definition.constants) groups.push_back(constant.group);
  using enum ConstantGroup;
  CHECK(groups == std::vector<ConstantGroup>{fitted, fitted, fitted, input, input, input, input, input, input, input});
}

TEST_CASE("rows are selected with the points, curves and contradictions that they need, and all constants") {
  const auto names = [](const auto& list, auto member) {
    std::vector<std::string> all;
    for (const auto& each : list) all.push_back(each.*member);
    return all;
  };
  const Definition all = open_paper((kTests / "papers/tiny.reproduction.yaml").string()).definition;
  const auto points_for = [&](const std::string& id) {
    return names(only_rows(all, {id}).points, &PointDefinition::name);
  };
  CHECK(points_for("tiny.gain") ==
        std::vector<std::string>{"one", "two", "again"});  // which has the value of a constant
  CHECK(points_for("tiny.cache") == std::vector<std::string>{"again", "sizes"});
  CHECK(points_for("tiny.same") == std::vector<std::string>{"two", "again"});
  CHECK(points_for("tiny.fits") == std::vector<std::string>{"one", "two", "again", "too_large"});
  CHECK(points_for("tiny.drops") == std::vector<std::string>{"one", "two", "again", "too_large"});

  const Definition gain = only_rows(all, {"tiny.gain"});
  CHECK(gain.curves.size() == 1);
  CHECK(gain.constants.size() == 2);
  CHECK(gain.inconsistencies.size() == 1);
  CHECK(gain.absent.empty());
  const Definition two = only_rows(all, {"tiny.dsp", "tiny.cache", "tiny.dsp"});
  CHECK(names(two.rows, &Row::id) == std::vector<std::string>{"tiny.cache", "tiny.dsp"});
  CHECK(two.curves.empty());
  CHECK(two.constants.size() == 2);
  CHECK(two.points.at(1).name == "again");
  CHECK(two.points.at(1).planned);  // it has a constant's value, and does not run
  CHECK(!gain.points.at(1).planned);
  CHECK(two.inconsistencies.empty());
}

TEST_CASE("rows are selected with the points of columns, or without them") {
  const auto names = [](const Definition& definition) {
    std::vector<std::string> all;
    for (const PointDefinition& point : definition.points) all.push_back(point.name);
    return all;
  };
  const Definition all = read_definition(
      "title: t\nsource: s\nscenario: s.yaml\npoints: {a: {overrides: {}}, b: {overrides: {}}}\n"
      "columns: [{name: own, title: o}, {name: other, title: t, overrides: {y: 2}, points: [a]}]\n"
      "rows: [{id: r, metric: m, where: I, stated: 2, value: a.x}, {id: s, metric: m, where: I, stated: 2, value: "
      "b.x}]\n",
      "d.yaml", "d");
  CHECK(names(only_rows(all, {"r"})) == std::vector<std::string>{"a", "a-other"});
  CHECK(only_rows(all, {"r"}).columns.size() == 2);
  CHECK(names(only_rows(all, {"s"})) == std::vector<std::string>{"b"});
  CHECK(only_rows(all, {"s"}).columns.empty());  // both would be the same
  CHECK(names(one_column(all)) == std::vector<std::string>{"a", "b"});
  CHECK(one_column(all).columns.empty());
}

TEST_CASE("ids that are no rows are named all at once") {
  const Definition tiny = open_paper((kTests / "papers/tiny.reproduction.yaml").string()).definition;
  const auto mistakes = [&](const std::vector<std::string>& ids) -> std::vector<std::string> {
    try {
      only_rows(tiny, ids);
    } catch (const config::ConfigError& error) {
      return error.messages();
    }
    return {};
  };
  CHECK(mistakes({"tiny.gain", "tiny.gian", "tiny.accuracy"}) ==
        std::vector<std::string>{"--rows tiny.gian: error: tiny has no such row (did you mean tiny.gain?)",
                                 "--rows tiny.accuracy: error: this result has no row: needs a model with weights"});
  REQUIRE(mistakes({"nothing"}).size() == 1);
  CHECK_THAT(mistakes({"nothing"}).front(), Catch::Contains("; exists: tiny.gain, tiny.cache, "));
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

}  // namespace test_definition
