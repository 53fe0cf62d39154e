#include "experiment/block_io/request_driver.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/error.h"
#include "nvme_if/spec/command.h"
#include "nvme_if/spec/encode.h"
#include "simulation/sim_time.h"

namespace csdsim::experiment {

using workload::BlockRequest;
using workload::RequestKind;

namespace {

/// Limit of requests in flight in an open loop. Above it the drive certainly does not keep up.
constexpr std::size_t kMostInFlight = std::size_t{1} << 20;

/// Runs that carry data give each request in flight its own place in the memory of the GPU, from the end on: a
/// generation has its buffers at the beginning.
constexpr Bytes kPlace = Bytes::mib(4);

BlockOracle::Config oracle_config(const csd_model::DriveConfig& drive, Bytes unit, Bytes filled) {
  const csd_model::CapacitorProtection* const capacitors = drive.power_loss.capacitors();
  // Capacitors whose energy is stated may not reach, which the drive reports.
  const bool loses = capacitors == nullptr || capacitors->energy;
  return {.block = drive.nvme.controller.block_size,
          .unit = unit,
          .filled = filled,
          .cached = loses && drive.write_buffer.value > 0,
          .trims_cached = loses};
}

}  // namespace

RequestDriver::RequestDriver(const sc_core::sc_module_name& name, const BlockIoSetup& setup,
                             platform::Platform& platform, workload::RequestSource& source,
                             const BlockIoProgress& progress)
    : sc_module(name),
      setup_(setup),
      platform_(platform),
      drive_(platform.drive(0)),
      driver_(platform.driver(0)),
      source_(source),
      progress_(progress) {
  drive_.controller().observe(this);
  if (drive_.config().may_lose_power)
    oracle_.emplace(oracle_config(drive_.config(), drive_.block_ftl().page_size(),
                                  setup.fill == Fill::none ? Bytes{} : source.footprint()));
  if (platform::PowerCuts* const cuts = platform.power_cuts(); cuts != nullptr && oracle_)
    cuts->on_cut([this] { oracle_->note_cut(); });
  driver_.on_ready([this] { guarded([this] { start(); }); });
}

template <class Step>
void RequestDriver::guarded(Step step) {
  if (error_) return;
  try {
    step();
  } catch (...) {
    error_ = std::current_exception();
    sc_core::sc_report_handler::set_actions("/OSCI/SystemC", sc_core::SC_DO_NOTHING);
    sc_core::sc_stop();
  }
}

void RequestDriver::start() {
  run_start_ = sim_time_now();
  outcome_.flows.resize(setup_.flows);
  if (setup_.measure_from_start && setup_.warmup == 0) begin_measuring(run_start_);
  if (!setup_.queue_depth) {
    arriving_ = source_.next(0);
    return submit_due();
  }
  if (!setup_.flow_depths.empty()) return start_flows();
  for (std::uint32_t i = 0; i < *setup_.queue_depth && !all_submitted(run_start_); ++i) submit_next(i % setup_.streams);
}

/// The flows take turns until each has its depth.
void RequestDriver::start_flows() {
  const std::uint32_t deepest = *std::ranges::max_element(setup_.flow_depths);
  for (std::uint32_t depth = 0; depth < deepest; ++depth)
    for (std::uint32_t flow = 0; flow < setup_.flow_depths.size(); ++flow)
      if (depth < setup_.flow_depths[flow] && !all_submitted(run_start_)) submit_next(flow);
}

bool RequestDriver::all_submitted(SimTime now) const {
  if (exhausted_ || (outcome_.issued >= setup_.warmup && outcome_.issued - setup_.warmup >= setup_.requests))
    return true;
  return setup_.duration && start_ && now - *start_ >= *setup_.duration;
}

void RequestDriver::on_due() {
  guarded([this] {
    if (!setup_.queue_depth) return submit_due();
    const SimTime now = sim_time_now();
    while (!thinking_.empty() && thinking_.front().due <= now) {
      const std::uint32_t stream = thinking_.front().stream;
      thinking_.pop_front();
      if (!all_submitted(now)) submit_next(stream);
    }
    if (!thinking_.empty()) return due_.set(thinking_.front().due);
    if (outcome_.completed == outcome_.issued) end_measuring();
  });
}

/// Open loop: submits all requests that have arrived.
void RequestDriver::submit_due() {
  const SimTime now = sim_time_now();
  while (arriving_ && run_start_ + arriving_->at <= now && !all_submitted(now)) {
    submit(*arriving_);
    // Do not read a request that will not be submitted.
    if (!all_submitted(now)) arriving_ = source_.next(0);
  }
  if (!arriving_) exhausted_ = true;
  if (!all_submitted(now)) return due_.set(run_start_ + arriving_->at);
  if (outcome_.completed == outcome_.issued) end_measuring();
}

/// Closed loop: submits the next request of a stream.
void RequestDriver::submit_next(std::uint32_t stream) {
  const std::optional<workload::BlockRequest> request = source_.next(stream);
  if (request)
    submit(*request);
  else
    exhausted_ = true;
}

std::uint32_t RequestDriver::take_flight() {
  if (free_flights_.empty()) {
    if (flights_.size() >= kMostInFlight)
      throw UserError(
          fmt::format("workload: {} requests are in flight after {:.6g} s: the drive does not keep up with their rate",
                      flights_.size(), (sim_time_now() - run_start_).seconds()));
    free_flights_.push_back(static_cast<std::uint32_t>(flights_.size()));
    flights_.emplace_back();
  }
  const std::uint32_t flight = free_flights_.back();
  free_flights_.pop_back();
  return flight;
}

void RequestDriver::submit(const workload::BlockRequest& request) {
  const SimTime now = sim_time_now();
  const std::uint64_t number = outcome_.issued;
  if (number == setup_.warmup && !start_) begin_measuring(now);
  const std::uint32_t flight = take_flight();
  flights_[flight] = {now, request, number};
  if (oracle_) flights_[flight].checked_as = oracle_->submit(request, data_of(flight));
  ++outcome_.issued;
  outcome_.peak_in_flight = std::max<std::uint64_t>(outcome_.peak_in_flight, flights_.size() - free_flights_.size());
  const std::uint64_t turn = setup_.queue_by_stream ? request.stream : number;
  const nvme::QueueId queue{static_cast<std::uint16_t>(setup_.first_queue + turn % setup_.queues)};
  if (request.kind == workload::RequestKind::trim) return submit_trim(queue, flight);
  if (request.kind == workload::RequestKind::flush)
    return driver_.submit(queue, nvme::encode_flush(nvme::NamespaceId{1}), {},
                          [this, flight](const nvme::CompletionEntry& cqe, SimTime at) { completed(flight, cqe, at); });
  const int block = std::countr_zero(driver_.block_size().value);
  const nvme::Segment buffer = buffer_of(flight);
  driver_.submit_block(queue,
                       request.kind == workload::RequestKind::read ? nvme::nvm_opcode::read : nvme::nvm_opcode::write,
                       nvme::Lba{request.offset.value >> block}, request.length.value >> block, {&buffer, 1}, *this,
                       flight, request.placement);
}

/// In timing mode the drive moves no payload, so all requests share one buffer.
nvme::Segment RequestDriver::buffer_of(std::uint32_t flight) {
  const Bytes length = flights_[flight].request.length;
  const Bytes place = oracle_ ? Bytes{platform_.gpu_memory().bytes().size()} - kPlace * (flight + 1) : Bytes{};
  return {nvme::PhysicalAddress{platform::Platform::kGpuBase} + place, length};
}

/// The same memory, for the host's program; nothing for requests without data.
std::span<std::byte> RequestDriver::data_of(std::uint32_t flight) {
  const BlockRequest& request = flights_[flight].request;
  if (request.kind != RequestKind::read && request.kind != RequestKind::write) return {};
  const std::span<std::byte> memory = platform_.gpu_memory().bytes();
  if (request.length > kPlace || kPlace.value * (flight + 1) > memory.size())
    throw UserError(
        fmt::format("workload: a run that carries data takes requests of up to {} MiB, and as many in flight "
                    "as platform.gpu.memory holds of so many bytes",
                    kPlace.value >> 20));
  return memory.subspan(memory.size() - kPlace.value * (flight + 1), request.length.value);
}

void RequestDriver::submit_trim(nvme::QueueId queue, std::uint32_t flight) {
  const workload::BlockRequest& request = flights_[flight].request;
  const std::uint64_t block = driver_.block_size().value;
  const nvme::DsmRange range{.length = static_cast<std::uint32_t>(request.length.value / block),
                             .slba = request.offset.value / block};
  // Each request in flight has its own slot for the range, in host memory after the driver's.
  const std::uint64_t place = platform_.free_host_memory().value + flight * sizeof range;
  const std::span<std::byte> memory = platform_.host_memory().bytes();
  if (place + sizeof range > memory.size()) throw UserError("platform.host.memory: no room for the ranges of TRIMs");
  std::memcpy(memory.data() + place, &range, sizeof range);
  const nvme::Segment data{nvme::PhysicalAddress{place}, Bytes{sizeof range}};
  driver_.submit(queue, nvme::encode_deallocate(nvme::NamespaceId{1}, 1), {&data, 1},
                 [this, flight](const nvme::CompletionEntry& cqe, SimTime at) { completed(flight, cqe, at); });
}

void RequestDriver::completed(std::uint64_t index, const nvme::CompletionEntry& cqe, SimTime now) {
  const Flight flight = flights_[index];
  if (flight.number + 1 == setup_.lose_completion) return;
  if (oracle_ && cqe.code().ok())
    guarded([&] { oracle_->complete(flight.checked_as, data_of(static_cast<std::uint32_t>(index))); });
  free_flights_.push_back(static_cast<std::uint32_t>(index));
  ++outcome_.completed;
  if (!cqe.code().ok() && outcome_.failed++ == 0) outcome_.first_failure = nvme::status_name(cqe.code());
  if (flight.number >= setup_.warmup) {
    const SimTime latency = now - flight.at;
    const auto sample = static_cast<std::uint64_t>(latency.ps);
    KindOutcome& kind = outcome_.kinds[static_cast<std::size_t>(flight.request.kind)];
    const Bytes moved = flight.request.kind == workload::RequestKind::trim ? Bytes{} : flight.request.length;
    kind.latency_ps.add(sample);
    kind.bytes += moved;
    if (!outcome_.flows.empty()) {
      FlowOutcome& flow = outcome_.flows[flight.request.stream];
      flow.latency_ps.add(sample);
      flow.bytes += moved;
    }
    add_stages(flight, cqe, now);
    outcome_.duration = now - *start_;
    outcome_.series.add(outcome_.duration, moved, latency);
  }
  if (progress_ && outcome_.completed % 4096 == 0) report_progress(now);
  if (setup_.queue_depth) guarded([&] { follow(flight.request.stream, now); });
  if (outcome_.completed == outcome_.issued && thinking_.empty() && all_submitted(now)) end_measuring();
}

void RequestDriver::completed(nvme::QueueId queue, nvme::CommandId cid, const RequestStages& stages) {
  if (queue.value >= stages_.size()) stages_.resize(queue.value + std::size_t{1});
  std::vector<RequestStages>& of_queue = stages_[queue.value];
  if (cid.value >= of_queue.size()) of_queue.resize(std::max<std::size_t>(cid.value + std::size_t{1}, 256));
  of_queue[cid.value] = stages;
}

/// Adds the stages of the request's last command to finish. The time before the fetch of that command counts as queued.
void RequestDriver::add_stages(const Flight& flight, const nvme::CompletionEntry& cqe, SimTime now) {
  RequestStages& stages = stages_.at(cqe.sqid).at(cqe.cid);
  stages.mark(RequestStage::link, now);
  auto& sums = outcome_.kinds[static_cast<std::size_t>(flight.request.kind)].stages_ps;
  for (std::size_t i = 0; i < kRequestStages; ++i) sums[i] += stages.spent(static_cast<RequestStage>(i)).ps;
  sums[static_cast<std::size_t>(RequestStage::queue)] += (stages.begun() - flight.at).ps;
}

/// Closed loop: submits the next request after a completion, or schedules it after the think time.
void RequestDriver::follow(std::uint32_t stream, SimTime now) {
  if (all_submitted(now)) return;
  if (setup_.think_time.ps == 0) return submit_next(stream);
  thinking_.push_back({now + setup_.think_time, stream});
  if (thinking_.size() == 1) due_.set(now + setup_.think_time);
}

void RequestDriver::report_progress(SimTime now) const {
  const auto microseconds = [](SimTime t) { return static_cast<std::uint64_t>(t.ps / 1'000'000); };
  if (setup_.duration && start_)
    progress_("us", microseconds(now - *start_), microseconds(*setup_.duration));
  else if (setup_.requests != ~std::uint64_t{0})
    progress_("requests", outcome_.completed, setup_.warmup + setup_.requests);
  else
    progress_("requests", outcome_.completed, outcome_.issued);
}

void RequestDriver::begin_measuring(SimTime now) {
  start_ = now;
  stations_before_ = drive_.station_times();
  // Without a warm-up the totals include the start of the controller.
  if (setup_.warmup > 0) before_ = drive_.totals();
  written_before_ = drive_.block_ftl().stats();
}

void RequestDriver::end_measuring() {
  if (std::exchange(ended_, true)) return;
  csd_model::DriveTotals& measured = outcome_.totals;
  measured = drive_.totals() - before_;
  measured.elapsed = outcome_.duration;
  outcome_.stations = drive_.station_times() - stations_before_;
  const ftl::BlockFtlStats& written = drive_.block_ftl().stats();
  outcome_.writes = written.work() - written_before_.work();
  if (const std::uint64_t bytes = written.host_bytes_written - written_before_.host_bytes_written; bytes > 0)
    outcome_.programmed_per_byte = static_cast<double>(outcome_.writes.programmed()) *
                                   static_cast<double>(drive_.block_ftl().page_size().value) /
                                   static_cast<double>(bytes);
  if (outcome_.duration.ps > 0)
    outcome_.channel_utilization =
        measured.channel_busy.seconds() /
        (outcome_.duration.seconds() * static_cast<double>(drive_.flash_statistics().channels.size()));
  if (stopped_) stopped_();
}

void RequestDriver::stop(std::function<void()> then) {
  stopped_ = std::move(then);
  exhausted_ = true;
  if (outcome_.completed == outcome_.issued) end_measuring();
}

/// Every block that was ever written, as the drive has it in the end.
void RequestDriver::check_power_losses() {
  const Bytes block = drive_.config().nvme.controller.block_size;
  oracle_->check_all([&](std::uint64_t at, std::span<std::byte> bytes) {
    if (drive_.block_ftl().read(block * at, block, bytes).status != ftl::IoStatus::ok)
      throw InternalError(fmt::format("block {} cannot be read", at));
  });
  outcome_.power = power_outcome(platform_);
  outcome_.blocks_checked = oracle_->checked();
}

BlockIoOutcome RequestDriver::outcome() {
  if (error_) std::rethrow_exception(error_);
  end_measuring();
  if (oracle_ && outcome_.issued == outcome_.completed) check_power_losses();
  for (const KindOutcome& kind : outcome_.kinds) outcome_.latency_ps.add(kind.latency_ps);
  return std::move(outcome_);
}

}  // namespace csdsim::experiment
