// A fresh SystemC context: SystemC allows one elaboration per context (E529), and a program may run many simulations.
#pragma once

#include <systemc>

namespace csdsim {

/// Makes a fresh context current; the modules of a simulation must be made after it and destroyed before it.
class SimulationContext {
 public:
  SimulationContext() { renew(); }
  ~SimulationContext() { renew(); }
  SimulationContext(const SimulationContext&) = delete;
  SimulationContext& operator=(const SimulationContext&) = delete;

 private:
  static void renew() {
    // The context that the library made for itself stays: static events of the library point to it until exit.
    static sc_core::sc_simcontext* const first = sc_core::sc_curr_simcontext;
    if (sc_core::sc_curr_simcontext != first) delete sc_core::sc_curr_simcontext;
    sc_core::sc_default_global_context = new sc_core::sc_simcontext;
    sc_core::sc_curr_simcontext = sc_core::sc_default_global_context;
  }
};

}  // namespace csdsim
