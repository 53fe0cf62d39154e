// A flash die, event-driven: its planes, each with a page register and a state machine of one event a stage.
#pragma once

#include <deque>
#include <memory>
#include <systemc>
#include <vector>

#include "nfc/core/flash_timing.h"
#include "nfc/sysc/at_interfaces.h"

namespace csdsim::nfc {

/// One plane. The values of Stage are what a waveform shows.
class AtPlane : public sc_core::sc_module, public BusGrantIf {
 public:
  enum class Stage : std::uint8_t {
    idle = 0,      ///< nothing queued
    later = 1,     ///< the head of the queue may not ask yet
    asking = 2,    ///< waits for the bus for a command
    command = 3,   ///< command, or command and data of a program, on the bus
    array = 4,     ///< tR, tPROG or tBERS
    buffered = 5,  ///< page in the register, waits for the bus for its data-out
    data_out = 6,  ///< data-out on the bus
  };

  sc_core::sc_port<BusIf> bus{"bus"};
  sc_core::sc_port<OpDoneIf> done{"done"};

  AtPlane(const sc_core::sc_module_name& name, PlaneId id, const FlashTiming& timing);
  SC_HAS_PROCESS(AtPlane);

  void submit(const AtOp& op);
  void granted(SimTime duration) override;
  void trace(sc_core::sc_trace_file* file) const override;

 private:
  void set_stage(Stage stage);
  void start_head();
  void ask(Stage stage, BusUse use);
  void stay(Stage stage, SimTime duration);
  void on_stage_end();
  void finish_head();

  PlaneId id_;
  FlashTiming timing_;
  sc_core::sc_event stage_end_;
  Stage stage_ = Stage::idle;
  unsigned traced_stage_ = 0;  ///< stage_ as a type that trace files know
  SimTime granted_at_;         ///< command of the head
  std::deque<AtOp> queue_;
};

/// The planes of a die and the ports that connect them.
class AtDie : public sc_core::sc_module {
 public:
  sc_core::sc_port<BusIf> bus{"bus"};
  sc_core::sc_port<OpDoneIf> done{"done"};

  /// `first_plane` is the drive-wide number of its plane 0.
  AtDie(const sc_core::sc_module_name& name, PlaneId first_plane, std::uint32_t planes, const FlashTiming& timing);

  /// `plane` counts within the die.
  void submit(std::uint32_t plane, const AtOp& op) { planes_[plane]->submit(op); }
  void trace(sc_core::sc_trace_file* file) const override;

 private:
  std::vector<std::unique_ptr<AtPlane>> planes_;
};

}  // namespace csdsim::nfc
