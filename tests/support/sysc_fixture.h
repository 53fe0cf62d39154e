// A clean SystemC context for each test: SystemC allows one elaboration a context (E529).
#pragma once

#include <systemc>

namespace csdsim::test {

/// Make one at the top of a test, before any module; destroy the modules before it goes out of scope.
class SyscFixture {
 public:
  SyscFixture() { renew(); }
  ~SyscFixture() { renew(); }
  SyscFixture(const SyscFixture&) = delete;
  SyscFixture& operator=(const SyscFixture&) = delete;

 private:
  static void renew() {
    // The context that the library made for itself stays: static events of the library point to it until exit.
    static sc_core::sc_simcontext* const first = sc_core::sc_curr_simcontext;
    if (sc_core::sc_curr_simcontext != first) delete sc_core::sc_curr_simcontext;
    sc_core::sc_default_global_context = new sc_core::sc_simcontext;
    sc_core::sc_curr_simcontext = sc_core::sc_default_global_context;
    sc_core::sc_report_handler::set_actions(sc_core::SC_ID_MORE_THAN_ONE_SIGNAL_DRIVER_,
                                            sc_core::SC_DEFAULT_ERROR_ACTIONS);
  }
};

}  // namespace csdsim::test
