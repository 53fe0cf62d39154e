// Work of units that are modules: with `fidelity: at`, in place of free times.
#pragma once

#include <cstdint>
#include <systemc>
#include <unordered_map>

#include "base/units.h"
#include "csd_model/firmware/timed_work.h"
#include "simulation/unit_pool.h"

namespace csdsim::csd_model {

/// Gives work to a pool of units, and calls back as TimedWork does: as an alarm of the firmware, in the order of run()
/// calls where several end at the same time.
class PooledWork {
 public:
  using Work = TimedWork::Work;

  /// Corrects `busy`, which counts expected time when work is given, by what a unit has really taken. Adds the time in
  /// the queue to `waited`. Both must outlive the pool.
  PooledWork(const sc_core::sc_module_name& name, std::uint32_t units, const UnitPool::Make& make, SimTime& busy,
             SimTime& waited);

  /// `amount` and `kind` are told to the unit; a unit of the model takes `expected`. `then` may be empty.
  void run(std::uint64_t amount, SimTime expected, Work then, std::uint32_t kind = 1);
  /// Nothing is waiting, in a unit, or being called back.
  bool idle() const { return pool_.idle() && ended_.empty(); }
  SimTime ahead(SimTime now) const { return pool_.ahead(now); }
  void trace(sc_core::sc_trace_file* file) const { pool_.trace(file); }

 private:
  struct Pending {
    SimTime expected;
    Work then;
  };
  void end(const UnitPool::End& end);

  SimTime& busy_;
  SimTime& waited_;
  std::uint64_t next_ = 0;
  std::unordered_map<std::uint64_t, Pending> pending_;  ///< by id; looked up only
  TimedWork ended_;
  UnitPool pool_;
};

}  // namespace csdsim::csd_model
