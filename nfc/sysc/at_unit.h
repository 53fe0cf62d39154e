// A unit with one flash array, event-driven: a plane, or the planes of a die that work together.
#pragma once

#include <deque>
#include <optional>
#include <span>
#include <string_view>
#include <systemc>
#include <vector>

#include "nfc/core/flash_timing.h"
#include "nfc/sysc/at_interfaces.h"

namespace csdsim::nfc {

/// What a plane has, whatever works on it.
struct AtPlane {
  std::deque<AtOp> waiting;  ///< in the order of submission
  std::uint32_t occupants = 0;
  SimTime occupied_since;
  PhysicalPageAddress in_register = PhysicalPageAddress::invalid();  ///< page sensed last, while it is there
};

/// State machine of one array with the registers of its planes; the rules are those of GeneralTimeline. A waveform
/// shows the values of State.
class AtUnit : public sc_core::sc_module, public BusClientIf, public DecodedIf {
 public:
  enum class State : std::uint8_t {
    idle = 0,      ///< the array has nothing to do
    command = 1,   ///< commands, with the data of programs, on the bus
    working = 2,   ///< tR, tPROG or tBERS
    sensed = 3,    ///< pages are sensed, the output is not free
    moving = 4,    ///< pages between the registers
    status = 5,    ///< programmed or erased, status not read yet
    polling = 6,   ///< status on the bus
    stopping = 7,  ///< suspend done on the bus, not in the array
    resuming = 8,  ///< resume on the bus or in the array
  };

  /// Kinds of operations that the unit takes. With PlaneMode::independent_reads, units that read share their planes
  /// with one that programs and erases.
  enum class Takes : std::uint8_t { all, reads, writes };

  sc_core::sc_port<BusIf> bus{"bus"};
  sc_core::sc_port<DecoderIf> decoder{"decoder"};
  sc_core::sc_port<OpDoneIf> done{"done"};

  AtUnit(const sc_core::sc_module_name& name, const FlashGeometry& geometry, const FlashTiming& timing,
         PlaneId first_plane, std::span<AtPlane> planes, Takes takes);
  SC_HAS_PROCESS(AtUnit);

  /// From now on this unit programs and erases for `reader`, which reads.
  void write_for(AtUnit& reader);
  /// `op` waits at one of its planes.
  void submitted(const AtOp& op);

  void update(SimTime now) override;
  const std::vector<Wish>& wishes() const override { return wishes_; }
  std::uint32_t package() const override { return package_; }
  ChannelBusy granted(Wish wish, SimTime now, SimTime select) override;
  void decoded(std::uint32_t plane, const AtOp& op) override;

  /// `stage` has the values of State, `busy` is the inverse of the ready/busy pin: the array works; `queue` counts
  /// operations that have not been sent.
  void trace(sc_core::sc_trace_file* file) const override;

 private:
  /// An operation and the plane that it is in.
  struct Member {
    std::uint32_t plane;
    AtOp op;
  };
  using Group = std::vector<Member>;
  /// A read in the output.
  struct OutputPage {
    enum class At { register_, bus, decoder, failed };
    std::uint32_t plane;
    AtOp op;
    At at;
  };
  void end_of_elaboration() override;
  void set_state(State state);
  void show_queue();
  template <class Each>
  void each_sharing(Each&& each) {
    AtUnit& writer = writer_ != nullptr ? *writer_ : *this;
    each(writer);
    for (AtUnit* const reader : writer.readers_) each(*reader);
  }
  void mark_changed();
  void changed();

  // Requests.
  AtOp* offer(AtPlane& plane, SimTime now);
  bool takes_kind(PageOpKind kind) const;
  AtOp* first_offer(SimTime now, bool reads);
  bool in_turn(const AtOp& op, SimTime now);
  bool no_reader(SimTime now);
  bool empty() const;
  bool takes(const AtOp& op) const;
  bool urgent_read(const Group& group, const AtOp& op) const;
  bool suspendable() const;
  bool reads_again() const;
  std::vector<Wish> wanted(SimTime now);
  AtOp& offered(const Wish& wish);

  // Grants.
  ChannelBusy grant_command(const Wish& leader, SimTime now, SimTime select);
  AtOp take_offered(const Wish& wish, SimTime now);

  // Calls of the observers.
  void tell_bus(std::string_view what, SimTime start, SimTime end, std::uint64_t bytes) const;
  void tell_data(const AtOp& op, SimTime start, SimTime end) const;
  void tell_work() const;

  // Ends.
  void on_bus_end();
  void on_array_end();
  void on_arrival();
  void work();
  void work_end();
  void to_output();
  void enter_output();
  void start_cached();
  void stop();
  void page_out();
  void leave_array();
  void vacate(std::uint32_t plane);

  FlashGeometry geometry_;
  FlashTiming timing_;
  PlaneId first_plane_;
  std::uint32_t package_;
  std::span<AtPlane> planes_;
  Takes takes_;
  AtUnit* writer_ = nullptr;      ///< programs and erases for this one
  std::vector<AtUnit*> readers_;  ///< units that this one does so for
  std::vector<Wish> wishes_;
  bool changed_ = false;

  State state_ = State::idle;
  unsigned traced_state_ = 0;  ///< state_ as a type that trace files know
  bool traced_busy_ = false;
  std::uint32_t traced_queue_ = 0;
  Group array_;             ///< what the array works on, or what it is going to
  Group held_;              ///< suspended
  Group cached_;            ///< programs behind those of the array
  bool cached_in_ = false;  ///< the data of cached_ is in
  std::vector<OutputPage> output_;
  bool suspend_sent_ = false;  ///< a suspend of the array's group has been granted
  std::uint32_t suspends_ = 0, held_suspends_ = 0;
  SimTime work_since_, work_end_;
  SimTime remaining_;

  BusUse bus_use_ = BusUse::idle;  ///< use of the bus by the unit itself
  sc_core::sc_event bus_end_;
  sc_core::sc_event array_end_;  ///< end of a state of the array that ends by itself
  sc_core::sc_event arrival_;
};

}  // namespace csdsim::nfc
