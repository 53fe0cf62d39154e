// A unit that serves one request at a time, as a SystemC module with pins. `fidelity: at` builds the engine's units,
// the firmware cores and the DRAM port from such modules; each can be replaced by a module of your own.
//
// Handshake in two phases: the unit has work while `start` and `done` differ. With a request, `start` changes its
// value; `amount` and `kind` are valid from the same delta cycle on and stay until the end. When the unit has finished,
// it gives `done` the value of `start`. Both begin with false. There is no clock: a clocked unit samples `start` at its
// own edges.
#pragma once

#include <cstdint>
#include <memory>
#include <systemc>

#include "base/units.h"

namespace csdsim {

/// A unit and its pins. The pins are members of `module` and stay unbound until the drive binds them.
struct UnitParts {
  std::unique_ptr<sc_core::sc_module> module = nullptr;
  sc_core::sc_in<bool>* start = nullptr;
  sc_core::sc_in<std::uint64_t>* amount = nullptr;  ///< what the request asks for; its unit is that of the kind of unit
  sc_core::sc_in<std::uint32_t>* kind = nullptr;    ///< kind of the request, 0 while there is none; may be null
  sc_core::sc_out<bool>* done = nullptr;
};

/// Base of units whose time follows from the request.
class UnitModule : public sc_core::sc_module {
 public:
  sc_core::sc_in<bool> start{"start"};
  sc_core::sc_in<std::uint64_t> amount{"amount"};
  sc_core::sc_in<std::uint32_t> kind{"kind"};
  sc_core::sc_out<bool> done{"done"};

 protected:
  explicit UnitModule(const sc_core::sc_module_name& name);

  /// The time that the unit takes for a request.
  virtual SimTime time_of(std::uint64_t amount, std::uint32_t kind) const = 0;

 private:
  SC_HAS_PROCESS(UnitModule);
  void on_start();
  void on_end();

  sc_core::sc_event end_;
};

/// The pins of a module that derives from UnitModule.
UnitParts parts_of(std::unique_ptr<UnitModule> unit);

}  // namespace csdsim
