#include <variant>

#include "scenario/check.h"

namespace csdsim::scenario {

void check_selection(Checker& c) {
  if (!c.readable({"simulation.selection"})) return;
  SelectionConfig& selection = c.scenario().simulation.selection;
  if (auto* const recorded = std::get_if<RecordedSelectionConfig>(&selection)) {
    if (recorded->file.given.empty()) {
      c.error_at("simulation.selection", "simulation.selection: kind recorded needs the file that was recorded");
    } else {
      c.resolve(recorded->file, "simulation.selection.file", "file");
    }
    return;
  }
  auto& clustered = std::get<ClusteredSelectionConfig>(selection);
  if (clustered.selected_per_page &&
      !c.first_wins("simulation.selection.selected_per_page", "simulation.selection.token_page_fraction"))
    clustered.selected_per_page.reset();
}

}  // namespace csdsim::scenario
