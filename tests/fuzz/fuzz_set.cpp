// Fuzzes the text behind --set.
#include <string>

#include "base/config/yaml.h"
#include "tests/fuzz/fuzz.h"

namespace fuzz_set {

using namespace csdsim;

namespace {

const fuzz::Target kTarget("set", [](std::string_view input) {
  config::Diagnostics diagnostics;
  config::Node root = config::parse_document("a: {b: 1, c: [2, 3]}\nsweep: {axes: {a.b: [1, 2]}}\n",
                                             {config::Layer::file, "input", 0, 0, ""}, diagnostics);
  config::apply_set(root, std::string(input), diagnostics);
  diagnostics.throw_if_any();
});

}  // namespace

}  // namespace fuzz_set
