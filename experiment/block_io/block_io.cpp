#include "experiment/block_io/block_io.h"

#include "base/error.h"
#include "experiment/block_io/request_driver.h"
#include "report/run_trace.h"
#include "simulation/failure.h"
#include "simulation/simulation_context.h"

namespace csdsim::experiment {

BlockIoOutcome run_block_io(const BlockIoSetup& setup, const BlockIoProgress& progress, report::RunTrace* trace) {
  if (setup.platform.drive.data != ftl::DataMode::timing)
    throw UserError("workload: runs of block commands are timing only; set simulation.data: timing");
  const SimulationContext context;
  platform::PlatformParams config = setup.platform;
  config.run_ahead = true;
  config.shared = {};  // one drive, whose data goes to no particular memory
  platform::Platform platform(config);
  csd_model::Drive& drive = platform.drive(0);
  const std::unique_ptr<workload::RequestSource> source = setup.source(drive.block_ftl().capacity());
  if (setup.fill != Fill::none)
    drive.block_ftl().precondition(source->footprint(),
                                   setup.fill == Fill::random ? std::optional(setup.seed) : std::nullopt);
  if (setup.overwrites > 0) drive.block_ftl().age(setup.overwrites, setup.seed);
  RequestDriver requests("block_io", setup, platform, *source, progress);
  if (trace != nullptr) trace->watch(platform);
  run_kernel();
  if (trace != nullptr) trace->leave(platform);
  if (!platform.driver(0).failure().empty()) throw InternalError(platform.driver(0).failure());

  BlockIoOutcome out = requests.outcome();
  Statistics statistics;
  drive.register_statistics(statistics);
  out.drive_statistics = nlohmann::ordered_json::array({statistics.dump()});
  return out;
}

}  // namespace csdsim::experiment
