// Pages that cross a PCIe switch between the SSD controller and an FPGA (SmartSSD).
#pragma once

#include <tlm_utils/simple_target_socket.h>

#include <cstdint>
#include <deque>
#include <span>
#include <systemc>
#include <tlm>
#include <vector>

#include "base/callback.h"
#include "base/slot_pool.h"
#include "base/units.h"
#include "contracts/page_op.h"
#include "csd_model/drive_activity.h"
#include "csd_model/firmware/flash_io.h"
#include "csd_model/firmware/internal_link.h"
#include "csd_model/firmware/map_lookups.h"
#include "csd_model/firmware/timed_work.h"
#include "csd_model/peer_read_config.h"
#include "nfc/sysc/flash_target.h"
#include "nvme_if/core/shared_link.h"
#include "simulation/event_loop.h"

namespace csdsim {
class Statistics;
}

namespace csdsim::csd_model {

struct PeerReadStats {
  std::uint64_t requests = 0;
  std::uint64_t bytes = 0;
  SimTime busy;  ///< that its pages took on the internal link
};

/// Cuts batches of page reads into requests, runs them first come first served, `outstanding` at a time, and answers a
/// batch when its last request is complete. A page is passed on when flash has delivered it, or codeword by codeword
/// (`Pieces`); a request takes as many of these pieces as fit, so that it may end inside a page, which the next one
/// senses again. The pieces of a request cross the link in the order in which flash delivers them, at most as fast as
/// `request_bandwidth`; the link serves the pages of all requests, and the data of other commands, in the order in
/// which flash completes them. Each piece is then written to the FPGA's DRAM and read there once.
///
/// `engine` is a flash socket (nfc/sysc/flash_payload.h) for the attention engine, without RELEASE_BUFFERS: pages lie
/// in the FPGA's DRAM. The firmware looks up the pages of its batches, whose time counts as waiting for flash.
class PeerReads : public sc_core::sc_module, private nfc::FlashClient {
 public:
  /// Called when the bytes of a request are in the FPGA's DRAM; with `last`, all bytes of the batch are.
  using Arrived = Callback<void(Bytes, bool last)>;

  /// What is passed on as one: a page, or a codeword.
  struct Pieces {
    Bytes size;  ///< data bytes
    /// Between two pieces of a page: from its sense on they come evenly through the channel, or through the decoder.
    SimTime interval;
  };

  tlm_utils::simple_target_socket<PeerReads> engine{"engine"};

  PeerReads(const sc_core::sc_module_name& name, const PeerReadConfig& config, const Pieces& pieces, FlashIo& flash,
            InternalLink& link, MapLookups& lookups, DriveActivity& activity);

  /// Reads at least one page; a request starts when its share of `lookups` has been looked up. `ops` need only stay
  /// during the call.
  void read(std::span<const PageOp> ops, std::uint64_t lookups, Arrived arrived);

  const PeerReadStats& stats() const { return stats_; }
  const nvme::SharedLinkStats& dram_stats() const { return dram_.stats(); }
  SimTime dram_busy_until(SimTime now) const { return dram_.busy_until(now); }
  void register_statistics(Statistics& statistics) const;

 private:
  struct Batch {
    std::uint64_t requests = 0;  ///< that are not complete
    Arrived arrived;
  };
  /// A piece that flash has delivered.
  struct Arrival {
    SimTime at;
    Bytes size;
  };
  struct Request {
    std::uint32_t batch = 0;
    std::vector<PageOp> ops;
    Bytes size;                     ///< bytes of all its pages
    std::size_t missing = 0;        ///< pages that flash has not delivered
    std::vector<Arrival> arrivals;  ///< arrivals of the pages delivered so far
    SimTime stored;                 ///< when these are in the FPGA's DRAM, as far as link and DRAM are concerned
  };
  /// Requests that start when pages first to end - 1 of their batch have been looked up.
  struct Found {
    std::size_t first = 0, end = 0;
    std::vector<std::uint32_t> requests;
  };

  tlm::tlm_sync_enum from_engine(tlm::tlm_generic_payload& payload, tlm::tlm_phase& phase, sc_core::sc_time& delay);
  void start_requests();
  std::uint32_t add_request(std::uint32_t batch, std::vector<PageOp>&& ops);
  void read_pages(std::uint32_t request);
  SimTime end_of(Request& request) const;
  void flash_done(std::uint64_t tag, const FlashStages& stages) override;
  void request_done(std::uint32_t request);

  PeerReadConfig config_;
  Pieces pieces_;
  std::uint64_t request_pieces_;  ///< pieces of the largest request
  FlashIo& flash_;
  InternalLink& link_;
  nvme::SharedLink dram_{"DRAM of the FPGA"};
  MapLookups& lookups_;
  DriveActivity& activity_;
  LoopHold hold_;
  SlotPool<Batch> batches_;
  SlotPool<Request> requests_;
  std::deque<std::uint32_t> waiting_;
  std::uint32_t running_ = 0;
  PeerReadStats stats_;
  TimedWork timed_;
};

}  // namespace csdsim::csd_model
