// Flash of one drive as event-driven SystemC modules: `fidelity: at`. The oracle of FastFlash, and the mode for
// waveforms.
#pragma once

#include <deque>
#include <memory>
#include <systemc>
#include <unordered_map>
#include <vector>

#include "nfc/core/flash_timing.h"
#include "nfc/sysc/at_channel.h"
#include "nfc/sysc/at_die.h"
#include "nfc/sysc/flash_target.h"

namespace csdsim::nfc {

/// A channel module per channel, a die module per die, bound by ports; one event a stage of a page operation. It shares
/// with FastFlash the protocol, the parameters and the tR drawn for a read, but none of the timing logic.
class AtFlash final : public FlashTarget, public OpDoneIf, public SettleIf {
 public:
  /// Throws UserError on a geometry or timing that `validate` refuses.
  AtFlash(const sc_core::sc_module_name& name, const FlashGeometry& geometry, const FlashTiming& timing);
  SC_HAS_PROCESS(AtFlash);

  const FlashStatistics& statistics() const override { return statistics_; }

  /// Adds the state of all buses (BusUse) and planes (AtPlane::Stage) to a waveform.
  void trace(sc_core::sc_trace_file* file) const override;

 protected:
  SimTime decide(SimTime bound) override;
  SimTime lookahead() const override { return SimTime{1}; }
  FlashTicket submit(std::span<const PageOp> ops, SimTime at) override;
  void take_completions(SimTime now, std::vector<FlashCompletion>& out) override;

 private:
  struct Decoding {
    SimTime done_at;
    std::uint64_t ticket;
  };

  void kick() override;
  void plane_free(PlaneId plane, const AtOp& op, SimTime granted_at) override;
  void on_decoded();
  void op_done(std::uint64_t ticket);

  LoopHold hold_;
  FlashGeometry geometry_;
  FlashTiming timing_;
  FlashStatistics statistics_;
  std::vector<std::unique_ptr<AtChannel>> channels_;
  std::vector<std::unique_ptr<AtDie>> dies_;
  sc_core::sc_event decoded_;
  std::deque<Decoding> decoding_;  ///< reads in the ECC decoders, which all take the same time: first in, first out
  std::unordered_map<std::uint64_t, std::size_t> open_ops_;  ///< operations left, by ticket; looked up only
  std::vector<std::uint64_t> complete_;                      ///< tickets complete at the current time
  std::uint64_t next_ticket_ = 0;
  std::uint64_t next_sequence_ = 0;
};

}  // namespace csdsim::nfc
