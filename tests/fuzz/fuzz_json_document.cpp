// JSON whose values know their place.
#include "base/json_document.h"
#include "tests/fuzz/fuzz.h"

namespace fuzz_json_document {

using namespace csdsim;

namespace {

/// Visits a value and all that it holds.
void visit(const JsonValue& value) {
  value.located();
  value.line();
  if (value.kind() == JsonValue::Kind::array) {
    value.for_each("value", [](const JsonValue& element) { visit(element); });
  } else if (value.kind() == JsonValue::Kind::object) {
    value.for_each_member("value", [](std::string_view, const JsonValue&, const JsonValue& member) { visit(member); });
  } else if (value.kind() == JsonValue::Kind::string) {
    value.string("value");
  }
}

const fuzz::Target kTarget("json_document", [](std::string_view input) {
  JsonDocument document;
  visit(document.read("input", input));
});

}  // namespace

}  // namespace fuzz_json_document
