// A scenario without data, with the sources that stand for data, as `csdsim run` sets them.
#pragma once

#include <memory>
#include <vector>

#include "experiment/generation/generation_setup.h"
#include "experiment/generation/modelled_sources.h"

namespace csdsim::test {

struct TimingSetup {
  TimingSetup(const scenario::Scenario& s, const std::vector<std::uint32_t>& prompts)
      : setup(experiment::generation_setup(s, prompts)), selection(experiment::make_selection(s, setup)) {
    setup.platform.drive.selection = selection.get();
    if (setup.system->traits().chooses_tokens) setup.sources.tokens = experiment::important_tokens(s);
  }

  experiment::GenerationSetup setup;
  std::unique_ptr<engine::SelectionSource> selection;
};

}  // namespace csdsim::test
