// An argtopk unit for the drive's engine that takes in one element after the other, with the pins of
// simulation/unit_module.h. A Verilated unit has the same pins behind a clock.
#pragma once

#include <cstdint>
#include <systemc>

class SerialArgtopk : public sc_core::sc_module {
 public:
  sc_core::sc_in<bool> start{"start"};             // differs from `done` while there is work
  sc_core::sc_in<std::uint64_t> amount{"amount"};  // elements of the request
  sc_core::sc_out<bool> done{"done"};

  SerialArgtopk(const sc_core::sc_module_name& name, const sc_core::sc_time& per_element)
      : sc_module(name), per_element_(per_element) {
    SC_THREAD(run);
  }

 private:
  SC_HAS_PROCESS(SerialArgtopk);

  void run() {
    for (;;) {
      wait(start.value_changed_event());
      wait(per_element_ * static_cast<double>(amount.read()));
      done.write(start.read());
    }
  }

  sc_core::sc_time per_element_;
};
