// The host program of a block run: submits the requests of a source and keeps the figures.
#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <systemc>
#include <vector>

#include "csd_model/runner/block_io.h"
#include "simulation/event_loop.h"

namespace csd_model {

/// Submits through the platform's first driver: with a queue depth as many requests as that, otherwise each at its
/// time. The requests before number `warmup` are not measured; the measured stretch starts when the next one is
/// submitted.
class RequestDriver : public sc_core::sc_module,
                      private csdsim::nvme::CommandObserver,
                      private csdsim::nvme::CompletionClient {
 public:
  RequestDriver(const sc_core::sc_module_name& name, const BlockIoSetup& setup, Platform& platform,
                workload::RequestSource& source, const BlockIoProgress& progress);

  /// What has been counted. What the drive still has to do in the background when the last request completes is not
  /// part of the measured stretch. Rethrows what the source has thrown.
  BlockIoOutcome outcome();

  /// Submits no more; `then` is called when all that was submitted has completed.
  void stop(std::function<void()> then);

 private:
  struct Flight {
    csdsim::SimTime at;
    workload::Request request;
    std::uint64_t number = 0;
  };
  /// Totals of the drive, to take differences of.
  struct Totals {
    DriveCounters counters;
    EnergyInputs energy;
    std::uint64_t host_pages_written = 0;
    std::uint64_t gc_pages_moved = 0;
    csdsim::SimTime channels_busy;
  };

  void start();
  /// Runs `step`; what it throws ends the simulation and comes out of outcome().
  template <class Step>
  void guarded(Step step);
  void on_due();
  void submit_due();
  void submit_next(std::uint32_t stream);
  void submit(const workload::Request& request);
  void submit_trim(csdsim::nvme::QueueId queue, std::uint32_t flight);
  /// The drive's side of a completion.
  void completed(csdsim::nvme::QueueId queue, csdsim::nvme::CommandId cid,
                 const csdsim::RequestStages& stages) override;
  void add_stages(const Flight& flight, const csdsim::nvme::CompletionEntry& cqe, csdsim::SimTime now);
  void completed(std::uint64_t flight, const csdsim::nvme::CompletionEntry& cqe, csdsim::SimTime now) override;
  void follow(std::uint32_t stream, csdsim::SimTime now);
  bool all_submitted(csdsim::SimTime now) const;
  void begin_measuring(csdsim::SimTime now);
  void end_measuring();
  Totals totals() const;
  std::uint32_t take_flight();
  void report_progress(csdsim::SimTime now) const;

  const BlockIoSetup& setup_;
  Platform& platform_;
  Drive& drive_;
  csdsim::nvme::NvmeDriver& driver_;
  workload::RequestSource& source_;
  const BlockIoProgress& progress_;
  std::vector<Flight> flights_;
  std::vector<std::uint32_t> free_flights_;
  std::vector<std::vector<csdsim::RequestStages>> stages_;  ///< of completed commands, by queue and identifier
  std::optional<workload::Request> arriving_;               ///< open loops: the next request
  struct Follower {
    csdsim::SimTime due;
    std::uint32_t stream;
  };
  std::deque<Follower> thinking_;  ///< closed loops: who submits next, and when; in order of time
  csdsim::Alarm due_{csdsim::AlarmRank::host, [this] { on_due(); }};
  csdsim::SimTime run_start_;
  std::optional<csdsim::SimTime> start_;  ///< of the measured stretch
  Totals before_;
  bool exhausted_ = false;
  bool ended_ = false;
  std::function<void()> stopped_;
  std::exception_ptr error_;
  BlockIoOutcome outcome_;
};

}  // namespace csd_model
