// Whatever the bytes: a scenario loads, or it is a ConfigError.
#include <catch2/catch.hpp>

#include "base/config/yaml.h"
#include "base/rng.h"
#include "tests/scenario/scenario_support.h"

namespace test_scenario_fuzz {

using namespace csdsim;
using namespace csdsim::scenario;
using namespace csdsim::test;

namespace {

const std::filesystem::path kScenarios = std::filesystem::path(CSDSIM_SOURCE_DIR) / "scenarios";

/// True when it loads. Anything but a ConfigError with located messages escapes.
bool loads(const std::string& text, const std::vector<std::string>& sets = {}) {
  try {
    load_scenario_text(text, "f.yaml", kScenarios, sets);
    return true;
  } catch (const config::ConfigError& e) {
    for (const std::string& m : e.messages()) {
      if (!m.starts_with("f.yaml:") && !m.starts_with("--set ")) FAIL("not located: " << m);
    }
    return false;
  }
}

std::string mutate(std::string text, Rng& rng) {
  static const std::string kSigns = "{}[]:,-&*!|>'\"%@`#?\n\t 0123456789.eE/~<=_\xC2\xFF\x01";
  const std::uint64_t changes = 1 + rng.below(8);
  for (std::uint64_t i = 0; i < changes && !text.empty(); ++i) {
    const std::size_t at = rng.below(text.size());
    switch (rng.below(6)) {
      case 0:
        text[at] = static_cast<char>(rng.below(256));
        break;
      case 1:
        text[at] = kSigns[rng.below(kSigns.size())];
        break;
      case 2:
        text.insert(at, 1, kSigns[rng.below(kSigns.size())]);
        break;
      case 3:
        text.erase(at, 1 + rng.below(12));
        break;
      case 4:
        text.insert(at, text.substr(rng.below(text.size()), rng.below(60)));
        break;
      default:
        text.resize(at);
        break;
    }
  }
  return text;
}

}  // namespace

TEST_CASE("mutated scenarios load or are refused, but never crash") {
  constexpr std::uint64_t kSeed = 20;
  INFO("seed " << kSeed);
  Rng rng(kSeed, "fuzz");
  std::vector<std::string> texts;
  for (const char* name : {"block_read.yaml", "quickstart.yaml", "channels.yaml"}) {
    texts.push_back(config::read_file(kScenarios / name));
    REQUIRE(loads(texts.back()));
  }
  int loaded = 0;
  constexpr int kRuns = 6000;
  for (int i = 0; i < kRuns; ++i) {
    const std::string text = mutate(texts[rng.below(texts.size())], rng);
    INFO("run " << i << ":\n" << text);
    loaded += loads(text);
  }
  // Both outcomes have to be common for the test to mean something.
  CHECK(loaded > kRuns / 50);
  CHECK(loaded < kRuns);
}

TEST_CASE("mutated settings of the command line are refused or taken") {
  Rng rng(21, "fuzz-set");
  const std::string text = config::read_file(kScenarios / "channels.yaml");
  const std::vector<std::string> seeds{"platform.device.flash.read_latency=50 us", "system={kind: instinfer-dense}",
                                       "sweep.axes.workload.batch=[1, 2]", "simulation.sampling=off",
                                       "platform.device.ftl.stripe_order=[die, channel, plane]"};
  for (int i = 0; i < 1500; ++i) {
    const std::string set = mutate(seeds[rng.below(seeds.size())], rng);
    INFO("run " << i << ": " << set);
    loads(text, {set});
  }
}

}  // namespace test_scenario_fuzz
