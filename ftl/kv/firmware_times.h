// The time of the firmware's cores for the KV namespace, beside map lookups.
#pragma once

#include "base/param.h"
#include "base/units.h"
#include "ftl/kv/kv_types.h"

namespace csdsim::ftl {

/// Times of one core. Zero: the work is done in hardware, or beside something that takes longer.
struct FirmwareTimes {
  SimTime append;     ///< per KV head and append: checks, tails, what has to be written
  SimTime flush;      ///< per page of an append: its place, the map, the write command
  SimTime transpose;  ///< further, per page of an embedding window
  SimTime collect;    ///< per page of the KV namespace that moves
  SimTime fetch;      ///< per row of K and V of a head that a fetch returns

  bool any() const { return (append + flush + transpose + collect + fetch).ps > 0; }
  /// Time of a job, without its reads and programs.
  SimTime of(const FlushJob& job) const {
    const auto pages = static_cast<std::int64_t>(job.programs.size());
    switch (job.kind) {
      case FlushKind::groups:
      case FlushKind::rewrite:
        break;
      case FlushKind::window:
        return (flush + transpose) * pages;
      case FlushKind::move:
        return collect * pages;
    }
    return flush * pages;
  }
};

void describe(ParamVisitor& v, FirmwareTimes& c);

}  // namespace csdsim::ftl
