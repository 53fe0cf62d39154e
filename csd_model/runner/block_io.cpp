#include "csd_model/runner/block_io.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>

#include "base/error.h"
#include "csd_model/simulation_context.h"
#include "nfc/sysc/sim_time.h"
#include "nvme_if/spec/command.h"

namespace csd_model {

using namespace csdsim;

namespace {

/// Keeps `queue_depth` requests outstanding until all have been issued.
class ClosedLoop : public sc_core::sc_module {
 public:
  ClosedLoop(const sc_core::sc_module_name& name, const BlockIoSetup& setup, Platform& platform,
             const std::function<void(std::uint64_t, std::uint64_t)>& progress)
      : sc_module(name),
        setup_(setup),
        drive_(platform.drive(0)),
        driver_(platform.driver(0)),
        progress_(progress),
        rng_(setup.seed, "block_io") {
    Drive& drive = platform.drive(0);
    const Bytes unit = setup.request_size;
    const auto working_set =
        static_cast<std::uint64_t>(static_cast<double>(drive.block_ftl().capacity().value) * setup.working_set);
    slots_ = working_set / unit.value;
    if (slots_ == 0)
      throw UserError(fmt::format("workload: a working set of {} B holds no request of {} B", working_set, unit.value));
    const std::optional<std::uint64_t> order = setup.sequential ? std::nullopt : std::optional(setup.seed);
    drive.block_ftl().precondition(unit * slots_, order);
    driver_.on_ready([this] { start(); });
  }

  BlockIoOutcome outcome;

 private:
  void start() {
    start_ = sim_time_now();
    const std::uint64_t first = std::min<std::uint64_t>(setup_.queue_depth, setup_.requests);
    for (std::uint64_t i = 0; i < first; ++i) issue();
  }

  void issue() {
    const std::uint64_t number = outcome.issued++;
    const bool read = setup_.read_fraction >= 1 || (setup_.read_fraction > 0 && rng_.unit() < setup_.read_fraction);
    const std::uint64_t slot = setup_.sequential ? number % slots_ : rng_.below(slots_);
    const std::uint64_t blocks = setup_.request_size.value / driver_.block_size().value;
    const nvme::QueueId queue{static_cast<std::uint16_t>(1 + number % driver_.queues())};
    // Timing only: the drive moves no payload, so all requests share a buffer.
    const nvme::Segment buffer{nvme::PhysicalAddress{Platform::kGpuBase}, setup_.request_size};
    const SimTime at = sim_time_now();
    driver_.submit_block(queue, read ? nvme::nvm_opcode::read : nvme::nvm_opcode::write, nvme::Lba{slot * blocks},
                         blocks, {&buffer, 1},
                         [this, at](const nvme::CompletionEntry& cqe, SimTime now) { completed(cqe, at, now); });
  }

  void completed(const nvme::CompletionEntry& cqe, SimTime issued_at, SimTime now) {
    ++outcome.completed;
    outcome.latency_ps.add(static_cast<std::uint64_t>((now - issued_at).ps));
    outcome.duration = now - start_;
    if (!cqe.code().ok() && outcome.failed++ == 0) outcome.first_failure = nvme::status_name(cqe.code());
    if (progress_ && outcome.completed % 4096 == 0) progress_(outcome.completed, setup_.requests);
    if (outcome.issued < setup_.requests) return issue();
    // What the drive still has to do in the background is not part of the measured stretch.
    if (outcome.completed == outcome.issued) end();
  }

  void end() {
    outcome.counters = drive_.counters();
    SimTime busy;
    for (const nfc::ChannelBusy& channel : drive_.flash_statistics().channels) busy += channel.total();
    if (outcome.duration.ps > 0)
      outcome.channel_utilization = busy.seconds() / (outcome.duration.seconds() *
                                                      static_cast<double>(drive_.flash_statistics().channels.size()));
  }

  const BlockIoSetup& setup_;
  Drive& drive_;
  nvme::NvmeDriver& driver_;
  const std::function<void(std::uint64_t, std::uint64_t)>& progress_;
  Rng rng_;
  std::uint64_t slots_ = 0;
  SimTime start_;
};

}  // namespace

BlockIoOutcome run_block_io(const BlockIoSetup& setup,
                            const std::function<void(std::uint64_t, std::uint64_t)>& progress) {
  if (setup.platform.drive.data != ftl::DataMode::timing)
    throw UserError("workload: block_io runs are timing only; set simulation.data: timing");
  const SimulationContext context;
  PlatformConfig config = setup.platform;
  config.run_ahead = true;
  Platform platform(config);
  ClosedLoop loop("block_io", setup, platform, progress);
  sc_core::sc_start();
  if (!platform.driver(0).failure().empty()) throw InternalError(platform.driver(0).failure());

  BlockIoOutcome out = std::move(loop.outcome);
  Drive& drive = platform.drive(0);
  out.write_amplification = drive.block_ftl().stats().write_amplification();
  Statistics statistics;
  drive.register_statistics(statistics);
  out.drive_statistics = nlohmann::ordered_json::array({statistics.dump()});
  return out;
}

}  // namespace csd_model
