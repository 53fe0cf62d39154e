// Text files line by line, and the fields of a line.
#include <optional>

#include "base/text_file.h"
#include "tests/fuzz/fuzz.h"

namespace fuzz_text_lines {

using namespace csdsim;

namespace {

const fuzz::Target kTarget("text_lines", [](std::string_view input) {
  TextLines lines(fuzz::as_file(input, "input.txt"), 256);
  while (const std::optional<std::string_view> line = lines.next()) {
    for (const TextField& field : comma_separated(*line))
      fuzz::require(field.column >= 1 && field.column <= line->size() + 1, "a column outside the line");
    for (const TextField& field : blank_separated(*line)) fuzz::require(!field.text.empty(), "an empty word");
  }
  lines.torn_note();
});

}  // namespace

}  // namespace fuzz_text_lines
