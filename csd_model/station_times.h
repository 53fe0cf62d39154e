// How busy the stations of a drive are, and how long they are waited for.
#pragma once

#include "contracts/drive_station.h"

namespace csdsim::csd_model {

/// In seconds. Sums over drives and differences make sense.
struct StationTimes {
  PerStation<double> busy;  ///< mean over the units of a station: at most the time that has passed
  PerStation<double>
      waited;  ///< of the requests to a station, summed over them; of pages read together, the last one's

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
