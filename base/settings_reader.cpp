#include "base/settings_reader.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace csdsim {

void SettingsReader::take(Param& param) {
  known_.emplace_back(param.name);
  const auto given = settings_.find(std::string(param.name));
  if (given == settings_.end()) return;
  try {
    param.set({given->second});
  } catch (const UserError& e) {
    throw UserError(fmt::format("{}: setting {}: {}", policy_, param.name, e.what()));
  }
}

void SettingsReader::finish() const {
  for (const auto& [name, value] : settings_) {
    if (std::find(known_.begin(), known_.end(), name) != known_.end()) continue;
    throw UserError(fmt::format("{} has no setting '{}'{}; exists: {}", policy_, printable(name),
                                did_you_mean(name, known_), known_.empty() ? "none" : join(known_)));
  }
}

}  // namespace csdsim
