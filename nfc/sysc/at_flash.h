// Flash of one drive as event-driven SystemC modules: `fidelity: at`. The oracle of FastFlash, and the mode for
// waveforms.
#pragma once

#include <array>
#include <memory>
#include <systemc>
#include <unordered_map>
#include <vector>

#include "nfc/core/flash_timing.h"
#include "nfc/sysc/at_channel.h"
#include "nfc/sysc/at_decoder.h"
#include "nfc/sysc/at_die.h"
#include "nfc/sysc/at_filter.h"
#include "nfc/sysc/flash_target.h"

namespace csdsim::nfc {

/// A channel module, a decoder module and, where it has a bandwidth, a filter module per channel, a die module per die,
/// bound by ports and signals; one event per stage of a page operation. It shares with FastFlash the protocol, the
/// parameters and the tR drawn for a read, but none of the timing logic.
class AtFlash final : public FlashTarget, public OpDoneIf, public SettleIf {
 public:
  /// Throws UserError on a geometry or timing that `validate` refuses.
  /// `filter` makes the filter of a channel; null: the model's. Only called where filters have a bandwidth.
  AtFlash(const sc_core::sc_module_name& name, const FlashGeometry& geometry, const FlashTiming& timing,
          const UnitPool::Make& filter = nullptr);

  const FlashStatistics& statistics() override { return statistics_; }
  bool observe(const FlashObservers& observers) override;

  /// Adds the state of all buses, page buffers, decoders, filters and planes to a waveform.
  void trace(sc_core::sc_trace_file* file) const override;

 protected:
  SimTime decide(SimTime bound) override;
  SimTime lookahead() const override { return SimTime{1}; }
  FlashTicket submit(std::span<const PageOp> ops, SimTime at, bool hold, bool staged) override;
  void release(FlashTicket ticket) override;
  void respond() override;

 private:
  struct Batch {
    std::size_t open = 0;  ///< operations
    SimTime done{-1};      ///< end of the operation that finished last so far, and its sequence
    std::uint64_t last = 0;
    bool hold = false;
    std::vector<std::size_t> kept;  ///< channels of the pages that it holds, one entry per page
    FlashStages stages{};
  };

  void kick() override;
  std::size_t channel_of(const AtOp& op) const { return geometry_.channel_of(geometry_.plane_of(op.op.ppa)).value; }
  void last_granted(const AtOp& op) override;
  void op_done(const AtOp& op) override;
  void passed(const AtOp& op);
  void plane_free(PlaneId plane, SimTime occupied_since) override;
  void retried(const AtOp& op) override;
  void suspended() override { ++statistics_.suspends; }
  void joined() override { ++statistics_.joined_ops; }
  const FlashObservers& observers() const override { return observers_; }

  LoopHold hold_;
  FlashGeometry geometry_;
  FlashTiming timing_;
  FlashStatistics statistics_;
  FlashObservers observers_;
  std::array<std::uint8_t, kOpClasses> ranks_;
  bool limited_;  ///< whether page buffers are limited
  std::vector<std::unique_ptr<AtChannel>> channels_;
  std::vector<std::unique_ptr<AtDecoder>> decoders_;
  std::vector<std::unique_ptr<AtFilter>> filters_;  ///< none where they have no bandwidth
  std::vector<std::unique_ptr<AtDie>> dies_;
  std::unordered_map<std::uint64_t, Batch> batches_;  ///< by ticket; looked up only
  std::vector<std::uint64_t> complete_;               ///< tickets complete at the current time
  std::unordered_map<std::uint64_t, std::vector<std::size_t>>
      unreleased_;  ///< pages of complete batches; looked up only
  std::uint64_t next_ticket_ = 0;
  std::uint64_t next_sequence_ = 0;
};

}  // namespace csdsim::nfc
