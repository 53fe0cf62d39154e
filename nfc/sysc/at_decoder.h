// The error correction of a channel, event-driven.
#pragma once

#include <deque>
#include <systemc>

#include "nfc/core/flash_timing.h"
#include "nfc/sysc/at_interfaces.h"

namespace csdsim::nfc {

/// One server with a bandwidth that takes pages first in, first out, followed by a pipeline of fixed latency.
class AtDecoder : public sc_core::sc_module, public DecoderIf {
 public:
  sc_core::sc_export<DecoderIf> pages{"pages"};

  /// The server's time is added to `busy`.
  AtDecoder(const sc_core::sc_module_name& name, const FlashTiming& timing, SimTime& busy);
  SC_HAS_PROCESS(AtDecoder);

  void decode(std::uint32_t plane, const AtOp& op, DecodedIf& owner) override;

  /// `observer` is called for each page that is decoded, if decoding has a bandwidth.
  void observe(WorkObserver* observer, std::uint32_t channel) {
    observer_ = observer;
    channel_ = channel;
  }
  /// `pages`: that wait, are decoded, or pass the pipeline.
  void trace(sc_core::sc_trace_file* file) const override;

 private:
  struct Page {
    std::uint32_t plane;
    AtOp op;
    DecodedIf* owner;
    SimTime leaves_at;  ///< when the page leaves the pipeline
  };

  void serve();
  void on_served();
  void enter_line(Page page);
  void on_line_end();
  void finish(Page& page);

  FlashTiming timing_;
  SimTime& busy_;
  sc_core::sc_event served_;
  sc_core::sc_event line_end_;
  std::deque<Page> queue_;  ///< the first is being served
  std::deque<Page> line_;
  std::uint32_t traced_pages_ = 0;
  WorkObserver* observer_ = nullptr;
  std::uint32_t channel_ = 0;
};

}  // namespace csdsim::nfc
