// The channel side of a NAND flash controller, event-driven: arbitrates the bus among the units behind it.
#pragma once

#include <systemc>
#include <vector>

#include "base/work_observer.h"
#include "nfc/core/flash_statistics.h"
#include "nfc/core/flash_timing.h"
#include "nfc/sysc/at_interfaces.h"

namespace csdsim::nfc {

/// Grants the bus in `decide`, which runs when nothing else happens at the current time, so that all requests made at a
/// time t take part in the decision of t.
class AtChannel : public sc_core::sc_module, public BusIf {
 public:
  sc_core::sc_export<BusIf> bus{"bus"};

  /// Bus time is added to `busy`, data-outs without a page buffer to `overflows`.
  AtChannel(const sc_core::sc_module_name& name, const FlashTiming& timing, SettleIf& coordinator, ChannelBusy& busy,
            std::uint64_t& overflows);
  SC_HAS_PROCESS(AtChannel);

  void attach(BusClientIf& client) override { clients_.push_back(&client); }
  void changed() override;
  void decide(SimTime now);

  /// A page has been decoded; unless it is kept, its buffer is free.
  void page_decoded(bool kept);
  /// The batch of a page that is kept is complete.
  void batch_complete() { ++kept_complete_; }
  /// A page of a complete batch is kept no longer.
  void page_released();

  /// `buffers` is called when the number of page buffers in use changes, if they are limited.
  void observe(WorkObserver* buffers, std::uint32_t channel) {
    buffer_observer_ = buffers;
    channel_ = channel;
  }
  /// `bus_state` has the values of BusUse; `page_buffers` counts those in use.
  void trace(sc_core::sc_trace_file* file) const override;

 private:
  void set_state(BusUse state);
  void show_buffers();
  void on_bus_free();
  bool goes_before(const Wish& a, const Wish& b) const;
  SimTime select_time(const BusClientIf& client);

  FlashTiming timing_;
  SettleIf& coordinator_;
  sc_core::sc_event bus_free_;
  sc_core::sc_event granted_;
  BusUse state_ = BusUse::idle;
  unsigned traced_state_ = 0;  ///< state_ as a type that trace files know
  std::uint32_t traced_buffers_ = 0;
  bool changed_ = false;
  std::vector<BusClientIf*> clients_;
  const BusClientIf* last_ = nullptr;  ///< client of the last grant
  ChannelBusy& busy_;
  std::uint64_t& overflows_;
  WorkObserver* buffer_observer_ = nullptr;
  std::uint32_t channel_ = 0;
  std::uint32_t in_decoding_ = 0;    ///< pages in transfer or in the decoder
  std::uint32_t kept_ = 0;           ///< pages decoded and kept
  std::uint32_t kept_complete_ = 0;  ///< kept pages whose batches are complete
};

}  // namespace csdsim::nfc
