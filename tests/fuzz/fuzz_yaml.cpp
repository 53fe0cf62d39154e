// Scenario files, as YAML.
#include "base/config/yaml.h"
#include "tests/fuzz/fuzz.h"

namespace fuzz_yaml {

using namespace csdsim;

namespace {

const fuzz::Target kTarget("yaml", [](std::string_view input) {
  config::Diagnostics diagnostics;
  const config::Node root = config::parse_document(input, {config::Layer::file, "input", 0, 0, ""}, diagnostics);
  fuzz::require(root.is_map(), "the root is no map");
  for (const std::string& message : diagnostics.errors()) fuzz::require(!message.empty(), "an error without text");
});

}  // namespace

}  // namespace fuzz_yaml
