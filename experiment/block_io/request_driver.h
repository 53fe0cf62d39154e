// The host program of a block run: submits the requests of a source and measures them.
#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <systemc>
#include <vector>

#include "experiment/block_io/block_io.h"
#include "experiment/block_io/block_oracle.h"
#include "platform/platform.h"
#include "simulation/event_loop.h"

namespace csdsim::experiment {

/// Submits requests through the platform's first driver: in a closed loop it keeps `queue_depth` requests in flight, in
/// an open loop it submits each request at its time. The first `warmup` requests are not measured; the measured
/// interval starts when the next one is submitted, or with the run where the setup says so.
class RequestDriver : public sc_core::sc_module, private nvme::CommandObserver, private nvme::CompletionClient {
 public:
  RequestDriver(const sc_core::sc_module_name& name, const BlockIoSetup& setup, platform::Platform& platform,
                workload::RequestSource& source, const BlockIoProgress& progress);

  /// Returns the measurements. Background work of the drive after the last completion is not part of the measured
  /// interval. Rethrows exceptions of the source.
  BlockIoOutcome outcome();

  /// Stops submitting and calls `then` when all submitted requests have completed.
  void stop(std::function<void()> then);

 private:
  struct Flight {
    SimTime at;
    workload::BlockRequest request;
    std::uint64_t number = 0;
    std::uint64_t checked_as = 0;  ///< its number in the oracle
  };
  void start();
  void start_flows();
  /// Runs `step`. If it throws, the simulation ends and outcome() rethrows the exception.
  template <class Step>
  void guarded(Step step);
  void on_due();
  void submit_due();
  void submit_next(std::uint32_t stream);
  void submit(const workload::BlockRequest& request);
  void submit_trim(nvme::QueueId queue, std::uint32_t flight);
  nvme::Segment buffer_of(std::uint32_t flight);
  std::span<std::byte> data_of(std::uint32_t flight);
  void check_power_losses();
  /// Called by the drive: stores the stages of a completed command.
  void completed(nvme::QueueId queue, nvme::CommandId cid, const RequestStages& stages) override;
  void add_stages(const Flight& flight, const nvme::CompletionEntry& cqe, SimTime now);
  void completed(std::uint64_t flight, const nvme::CompletionEntry& cqe, SimTime now) override;
  void follow(std::uint32_t stream, SimTime now);
  bool all_submitted(SimTime now) const;
  void begin_measuring(SimTime now);
  void end_measuring();
  std::uint32_t take_flight();
  void report_progress(SimTime now) const;

  const BlockIoSetup& setup_;
  platform::Platform& platform_;
  csd_model::Drive& drive_;
  nvme::NvmeDriver& driver_;
  workload::RequestSource& source_;
  const BlockIoProgress& progress_;
  std::vector<Flight> flights_;
  std::vector<std::uint32_t> free_flights_;
  std::vector<std::vector<RequestStages>> stages_;  ///< stages of completed commands, by queue and command id
  std::optional<workload::BlockRequest> arriving_;  ///< open loops: the next request
  struct Follower {
    SimTime due;
    std::uint32_t stream;
  };
  std::deque<Follower> thinking_;  ///< closed loops: streams that submit next, in order of time
  Alarm due_{AlarmRank::host, [this] { on_due(); }};
  SimTime run_start_;
  std::optional<SimTime> start_;  ///< start of the measured interval
  csd_model::DriveTotals before_;
  ftl::BlockFtlStats written_before_;
  csd_model::StationTimes stations_before_;
  bool exhausted_ = false;
  bool ended_ = false;
  std::function<void()> stopped_;
  std::exception_ptr error_;
  std::optional<BlockOracle> oracle_;  ///< checks runs that carry data
  BlockIoOutcome outcome_;
};

}  // namespace csdsim::experiment
