// Busy and waiting times of the stations of a drive.
#pragma once

#include "contracts/drive_station.h"

namespace csdsim::csd_model {

/// In seconds. Sums over drives and differences make sense.
struct StationTimes {
  PerStation<double> busy;    ///< mean over the units of a station: at most the time that has passed
  PerStation<double> waited;  ///< time that requests waited for a station, summed over them; pages that are read
                              ///< together count as the last one

  StationTimes& operator+=(const StationTimes& o) {
    busy += o.busy;
    waited += o.waited;
    return *this;
  }
  friend StationTimes operator-(StationTimes a, const StationTimes& b) {
    a.busy -= b.busy;
    a.waited -= b.waited;
    return a;
  }
};

}  // namespace csdsim::csd_model
