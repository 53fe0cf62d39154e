// Configuration of the file systems on which a tier keeps a file per block.
#pragma once

#include <cstdint>

#include "base/param.h"
#include "base/quantity.h"
#include "base/units.h"

namespace csdsim::host {

/// Section `workload.tiers.drives.files`. How threads read and write the files is in `platform.host.file`.
struct KvFilesConfig {
  std::uint32_t directories = 1'048'576;
  SimTime open_time = SimTime::microseconds(3);
  SimTime create_time = SimTime::microseconds(15);
  SimTime rename_time = SimTime::microseconds(10);
  SimTime unlink_time = SimTime::microseconds(15);
  Bytes metadata_cache = Bytes::gib(1);
  Bytes journal = Bytes::gib(1);
  SimTime commit_interval = SimTime::milliseconds(5'000);
  SimTime write_back_interval = SimTime::milliseconds(30'000);
  Ratio reserved = Ratio::of(1, 20);
  bool discard = false;
};

void describe(ParamVisitor& v, KvFilesConfig& c);

}  // namespace csdsim::host
