#include <catch2/catch.hpp>
#include <vector>

#include "report/csv.h"

namespace test_csv {

using namespace csdsim::report;
using nlohmann::ordered_json;

TEST_CASE("a field is in quotes only where it must be") {
  CHECK(csv_field("plain text") == "plain text");
  CHECK(csv_field("") == "");
  CHECK(csv_field("a,b") == "\"a,b\"");
  CHECK(csv_field("say \"so\"") == "\"say \"\"so\"\"\"");
  CHECK(csv_field("two\nlines") == "\"two\nlines\"");
}

TEST_CASE("a line holds texts as they are, numbers as in JSON, and nothing for null") {
  CHECK(csv_line(std::vector<ordered_json>{"a,b", 1.5, nullptr, 3, true}) == "\"a,b\",1.5,,3,true\n");
  CHECK(csv_line({}) == "\n");
}

TEST_CASE("rows begin with the keys of the first") {
  const ordered_json rows{{{"policy", "x"}, {"pages, read", 2}}, {{"policy", "y"}, {"pages, read", nullptr}}};
  CHECK(csv_rows(rows) == "policy,\"pages, read\"\nx,2\ny,\n");
  CHECK(csv_rows(ordered_json::array()).empty());
}

}  // namespace test_csv
