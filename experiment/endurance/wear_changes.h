// Changes of a drive and of its writers, to see how much longer it lives.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "experiment/endurance/tier_writers.h"

namespace csdsim::experiment {

/// A certificate's subject: a drive, and the serving run that writes to it if there is one.
struct WearSubject {
  std::string name;
  WornDrive worn;
  std::optional<scenario::Scenario> served;  ///< whose writes per day are not known yet
};

/// `scenario` is of kind objects or serving.
WearSubject subject_of(const scenario::Scenario& scenario);
/// The same with one change each.
std::vector<WearSubject> changes_of(const scenario::Scenario& scenario);

}  // namespace csdsim::experiment
