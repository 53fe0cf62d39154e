#include "experiment/serving/drive_rates.h"

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "experiment/assemble.h"
#include "platform/platform.h"
#include "simulation/failure.h"
#include "simulation/kernel_call.h"
#include "simulation/sim_time.h"
#include "simulation/simulation_context.h"

namespace csdsim::experiment {

namespace {

/// Four transfers of so many blocks: writes and reads side by side, then one write and one read alone.
class DriveMeasurement : public sc_core::sc_module {
 public:
  DriveMeasurement(const sc_core::sc_module_name& name, const scenario::Scenario& s, const ServingWorkload& work,
                   platform::Platform& platform, std::uint64_t blocks, Bytes block)
      : sc_module(name),
        transport_(platform, transport_config(s, work, true), [](const std::string& what) { throw UserError(what); }),
        blocks_(blocks),
        block_(block),
        memory_(work.tiers.drives->path == host::DrivePath::direct ? host::Place::gpu() : host::Place::host()) {
    platform.on_ready([this] { next(); });
  }

  /// Times of the four transfers.
  const std::vector<SimTime>& times() const { return times_; }

 private:
  void next() {
    const std::size_t round = times_.size();
    if (round == 4) return stop_.request();
    const std::uint64_t blocks = round < 2 ? blocks_ : 1;
    left_ = blocks;
    began_ = sim_time_now();
    for (std::uint64_t i = 0; i < blocks; ++i) {
      const host::DriveRange range{.drive = {}, .offset = block_ * i, .size = block_};
      const auto done = [this] {
        if (--left_ > 0) return;
        times_.push_back(sim_time_now() - began_);
        transport_.when_idle([this] { next(); });
      };
      if (round % 2 == 0)
        transport_.write(range, memory_, {}, done);
      else
        transport_.read(range, memory_, {}, [done](bool) { done(); });
    }
  }

  host::SimulatedTransport transport_;
  std::uint64_t blocks_;
  Bytes block_;
  host::Place memory_;
  std::vector<SimTime> times_;
  std::uint64_t left_ = 0;
  SimTime began_;
  KernelCall stop_{[] { sc_core::sc_stop(); }};
};

Bandwidth rate_of(Bytes bytes, SimTime time) {
  return {static_cast<std::uint64_t>(static_cast<double>(bytes.value) / time.seconds())};
}

/// What a transfer alone takes beyond its share of the rate.
SimTime latency_of(SimTime alone, Bytes bytes, Bandwidth rate) {
  return std::max(SimTime{}, alone - transfer_time(bytes, rate));
}

}  // namespace

platform::PlatformParams serving_platform(const scenario::Scenario& s, const ServingWorkload& work) {
  platform::PlatformParams params = platform_params(s);
  params.run_ahead = true;
  params.gpus = work.engine.instances;
  params.shared.peer_to_peer = work.tiers.drives->path == host::DrivePath::direct;
  if (params.shared.limited()) params.shared.copies = gpu_link_of(s).bandwidth;
  if (!params.shared.peer_to_peer) params.shared.gpu_link.reset();
  return params;
}

host::SimulatedTransportConfig transport_config(const scenario::Scenario& s, const ServingWorkload& work,
                                                bool measures) {
  // With files, their threads limit how many I/Os are under way; metadata does not wait for a thread.
  constexpr std::uint32_t kNoLimit = ~std::uint32_t{0};
  const DriveTierConfig& drives = *work.tiers.drives;
  return {.link = gpu_link_of(s),
          .request = drives.request.value_or(Bytes{}),
          .in_flight = drives.files && !measures ? kNoLimit : drives.in_flight,
          .carries_data = s.simulation.data == ftl::DataMode::carried};
}

host::TransportRates measured_rates(const scenario::Scenario& s, const ServingWorkload& work) {
  // Enough that the drive's write buffer is not what is measured.
  constexpr std::uint64_t kBytes = std::uint64_t{8} << 30;
  // Threads of files have one I/O at a time.
  const Bytes block = work.tiers.drives->files ? s.platform.host.file.io_size : work.tiers_config(s).whole_block();
  const SimulationContext context;
  platform::PlatformParams params = serving_platform(s, work);
  params.drives = 1;
  platform::Platform platform(params);
  const std::uint64_t room = platform.drive(0).block_ftl().capacity().value / block.value;
  const std::uint64_t blocks = std::clamp<std::uint64_t>(kBytes / block.value, work.tiers.drives->in_flight, room);
  DriveMeasurement measurement("measurement", s, work, platform, blocks, block);
  run_kernel();
  const std::vector<SimTime>& times = measurement.times();
  if (times.size() != 4) throw InternalError("the drive's rates were not measured");
  const host::LinkModel link = gpu_link_of(s);
  const Bandwidth write = rate_of(block * blocks, times[0]), read = rate_of(block * blocks, times[1]);
  return {.copy = link.bandwidth,
          .copy_latency = link.latency,
          .read = read,
          .write = write,
          .read_latency = latency_of(times[3], block, read),
          .write_latency = latency_of(times[2], block, write)};
}

}  // namespace csdsim::experiment
