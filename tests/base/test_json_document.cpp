// JSON texts whose values know their place.
#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "base/error.h"
#include "base/json_document.h"
#include "base/rng.h"

namespace test_json_document {

using namespace csdsim;

namespace {

template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

const FieldNames kFields{{"input", "in"}, {"output"}};

/// "TEXT@OFFSET" of a value and all that it contains.
void list(JsonValue value, std::string& all) {
  all += fmt::format("{}@{} ", value.located().text.substr(0, 4), value.located().offset);
  if (value.kind() == JsonValue::Kind::array) value.for_each("", [&](JsonValue element) { list(element, all); });
  if (value.kind() == JsonValue::Kind::object)
    value.for_each_member("", [&](std::string_view key, JsonValue, JsonValue member) {
      all += std::string(key) + "=";
      list(member, all);
    });
}

}  // namespace

TEST_CASE("values know where they stand, whatever surrounds them") {
  JsonDocument document;
  std::string all;
  list(document.read("f", R"( {"a" : [1,-2.5e3 , "x\"]" ],"b\u0041":{"c":null},"d":[] , "e":[[true],false]} )"), all);
  CHECK(all ==
        "{\"a\"@1 a=[1,-@8 1@9 -2.5@11 \"x\\\"@20 bA={\"c\"@39 c=null@44 d=[]@54 e=[[tr@63 [tru@64 true@65 fals@71 ");
  CHECK(document.read("f", R"(["a\\","\\\"b"])").size() == 2);
  CHECK(document.read("f", "7").located().text == "7");
}

TEST_CASE("text that is not JSON is refused at its place") {
  JsonDocument document;
  const auto error = [&](std::string_view text) { return error_of([&] { document.read("f.json", text, 5); }); };
  CHECK(error("{\"a\": 1,}").starts_with("f.json:5:9: error: syntax error"));
  CHECK(error("[1,\n 2\n x]").starts_with("f.json:7:2: error: syntax error"));
  CHECK(error("[1] 2").starts_with("f.json:5:5: error: syntax error"));
  CHECK(error("[1").starts_with("f.json:5:3: error: syntax error"));
  CHECK(error(std::string(100'000, '[')).starts_with("f.json:5:100001: error: syntax error"));
}

TEST_CASE("numbers and strings are what they are called") {
  JsonDocument document;
  const JsonValue row = document.read("f", R"({"input": 12, "output": "x"})", 3);
  JsonFields fields(kFields);
  fields.read(row);
  CHECK(whole_number(fields.at(0).located(), "input", 1, 12) == 12);
  CHECK(error_of([&] { whole_number(fields.at(0).located(), "input", 1, 11); }) ==
        "f:3:11: error: input: '12' is not a whole number from 1 to 11");
  CHECK(error_of([&] { real_number(fields.at(1).located(), "output", 0, 9); }) ==
        "f:3:25: error: output: '\"x\"' is not a number from 0 to 9");
  CHECK(fields.at(1).string("output") == "x");
  CHECK(fields.at(0).name("input") == "12");
  CHECK(error_of([&] { fields.at(0).string("input"); }) == "f:3:11: error: input: is not a string");
  CHECK(error_of([&] { fields.at(0).for_each("input", [](JsonValue) {}); }) == "f:3:11: error: input: is not an array");
}

TEST_CASE("members are known by any of their names, once") {
  JsonDocument document;
  JsonFields fields(kFields);
  const auto error = [&](std::string_view text) { return error_of([&] { fields.read(document.read("f", text)); }); };
  CHECK(error(R"({"in": 1, "inptu": 2})") ==
        "f:1:11: error: unknown key 'inptu' (did you mean input?); known are input, in, output");
  CHECK(error(R"({"in": 1, "input": 2})") == "f:1:11: error: a second key for the same: input");
  CHECK(error("[1]") == "f:1:1: error: the record: is not an object");
  CHECK(error(R"({"in": null})") == "no error");
  CHECK(!fields.find(0));
  CHECK(error_of([&] { fields.at(0); }) == "f:1:1: error: no input");
}

TEST_CASE("elements of an array are read one after another") {
  JsonDocument document;
  std::string all;
  document.read_each("f", R"([{"a":[1,2]}, [3,[4]], "x", 5])", [&](JsonValue element) { list(element, all); });
  CHECK(all == "{\"a\"@1 a=[1,2@6 1@7 2@9 [3,[@14 3@15 [4]@17 4@18 \"x\"@23 5@28 ");
  std::string one;
  document.read_each("f", R"({"a": [1]})", [&](JsonValue element) { list(element, one); });
  CHECK(one == "{\"a\"@0 a=[1]@6 1@7 ");
}

TEST_CASE("no text upsets the reader") {
  Rng rng(7);
  JsonDocument document;
  const std::string good = R"({"a": [1, -2e3, "x\"\\"], "b": {"c": [null, true]}, "d": "e"})";
  for (int i = 0; i < 20'000; ++i) {
    std::string text = good;
    for (std::uint64_t n = 1 + rng.below(3); n > 0; --n)
      text[rng.below(text.size())] = "{}[]\",:\\ 1e-ntx"[rng.below(15)];
    error_of([&] {
      std::string all;
      list(document.read("f", text), all);
    });
  }
}

}  // namespace test_json_document
