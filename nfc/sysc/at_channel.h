// The channel side of a NAND flash controller, event-driven: arbitrates the bus among the planes behind it.
#pragma once

#include <systemc>
#include <vector>

#include "nfc/core/flash_statistics.h"
#include "nfc/core/flash_timing.h"
#include "nfc/sysc/at_interfaces.h"

namespace csdsim::nfc {

/// Grants in `decide`, which runs once the current time has settled, so that everyone who asks at a time t takes part
/// in the decision of t.
class AtChannel : public sc_core::sc_module, public BusIf {
 public:
  sc_core::sc_export<BusIf> bus{"bus"};

  /// Bus time is added to `busy`.
  AtChannel(const sc_core::sc_module_name& name, const FlashTiming& timing, SettleIf& coordinator, ChannelBusy& busy);
  SC_HAS_PROCESS(AtChannel);

  void request(BusUse use, const AtOp& op, BusGrantIf& requester) override;
  void decide(SimTime now);

  void trace(sc_core::sc_trace_file* file) const override;

 private:
  struct Request {
    BusUse use;
    SimTime asked_at;
    std::uint64_t sequence;
    std::uint32_t bytes;
    BusGrantIf* requester;
  };

  void set_state(BusUse state);
  void on_bus_free();
  bool goes_before(const Request& a, const Request& b) const;
  SimTime occupy(const Request& request);

  FlashTiming timing_;
  SettleIf& coordinator_;
  sc_core::sc_event bus_free_;
  BusUse state_ = BusUse::idle;
  unsigned traced_state_ = 0;  ///< state_ as a type that trace files know
  std::vector<Request> waiting_;
  ChannelBusy& busy_;
};

}  // namespace csdsim::nfc
