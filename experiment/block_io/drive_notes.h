// Notes about settings that a drive from a data sheet easily leaves out: its figures then look right and are wrong.
#pragma once

#include <optional>

#include "base/units.h"
#include "scenario/check.h"

namespace csdsim::experiment {

struct BlockIoWorkload;

/// Properties of the block commands of a run.
struct BlockTraffic {
  bool reads = true;
  bool writes = true;
  std::optional<Bytes> smallest;  ///< request; unset: known when the run has read them
  std::optional<Bytes> grain;     ///< all requests begin and end at multiples of it; unset likewise
};

BlockTraffic traffic_of(const BlockIoWorkload& work);

/// A note per trap: a controller without time, whole pages moved for parts of them, one-pass TLC programmed page by
/// page, a plane too small for its over-provisioning, no write buffer or one that is smaller than a page. What the
/// user or a preset has decided is not noted.
void note_drive_traps(scenario::Checker& c, const BlockTraffic& traffic);

}  // namespace csdsim::experiment
