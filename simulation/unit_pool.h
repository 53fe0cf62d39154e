// The units of one kind behind their queue.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <systemc>
#include <vector>

#include "base/units.h"
#include "simulation/event_loop.h"
#include "simulation/unit_module.h"

namespace csdsim {

/// Gives requests to units in the order of request() calls, each to the unit that is free first, and is connected to
/// each unit by signals (unit_module.h). The event loop does not run ahead of the kernel while a pool exists.
class UnitPool : public sc_core::sc_module {
 public:
  struct Request {
    std::uint64_t id = 0;      ///< the caller's own
    std::uint64_t amount = 0;  ///< for the unit's pins
    std::uint32_t kind = 1;    ///< likewise, not 0
    /// How long a unit of the model works on it. With 0 no unit is asked: the request ends when one is free.
    SimTime expected{};
  };
  struct End {
    std::uint64_t id = 0;
    SimTime waited{};
    SimTime worked{};
  };
  using Make = std::function<UnitParts(std::uint32_t index)>;
  using Ended = std::function<void(const End&)>;

  /// `make` is called once per unit and makes it a child of the pool. `ended` is called when a request ends, once per
  /// request, at the earliest within request(); it must not call request(). Throws UserError for parts without module
  /// or pins.
  UnitPool(const sc_core::sc_module_name& name, std::uint32_t count, const Make& make, Ended ended);

  void request(const Request& request);
  /// No request is waiting or in a unit.
  bool idle() const { return working_ == 0 && queue_.empty(); }
  /// The rest of the expected time of all requests.
  SimTime ahead(SimTime now) const;

  /// Adds the pins of the units and the length of the queue to a waveform.
  void trace(sc_core::sc_trace_file* file) const override;

 private:
  SC_HAS_PROCESS(UnitPool);

  struct Waiting {
    Request request;
    SimTime since;
  };
  struct Unit {
    explicit Unit(std::uint32_t index);

    /// Whoever calls request() writes them.
    sc_core::sc_signal<bool, sc_core::SC_UNCHECKED_WRITERS> start;
    sc_core::sc_signal<std::uint64_t, sc_core::SC_UNCHECKED_WRITERS> amount;
    sc_core::sc_signal<std::uint32_t, sc_core::SC_UNCHECKED_WRITERS> kind;
    sc_core::sc_signal<bool> done;
    UnitParts parts;
    bool level = false;  ///< level of `start`, also before its update
    bool working = false;
    Waiting work{};
    SimTime since;
  };

  void bind(Unit& unit, UnitParts parts);
  void serve();
  void on_done();

  Ended ended_;
  std::vector<std::unique_ptr<Unit>> units_;
  std::uint32_t working_ = 0;
  std::deque<Waiting> queue_;
  std::uint32_t traced_waiting_ = 0;
  LoopHold hold_;
};

}  // namespace csdsim
