#include "experiment/block_io/block_io.h"

#include <algorithm>
#include <span>
#include <vector>

#include "base/error.h"
#include "experiment/block_io/block_oracle.h"
#include "experiment/block_io/request_driver.h"
#include "experiment/block_io/requests/permutation.h"
#include "platform/platform.h"
#include "report/run_trace.h"
#include "simulation/failure.h"
#include "simulation/simulation_context.h"

namespace csdsim::experiment {

namespace {

/// Writes the blocks of the footprint in no simulated time, each with the content that the oracle knows.
void fill_with_data(csd_model::Drive& drive, Bytes footprint, const BlockIoSetup& setup) {
  ftl::BlockFtl& ftl = drive.block_ftl();
  const Bytes block = drive.config().nvme.controller.block_size, page = ftl.page_size();
  const BlockOracle oracle({.block = block, .unit = page, .filled = footprint});
  std::vector<std::byte> bytes(page.value);
  std::vector<PhysicalPageAddress> written;
  const workload::Permutation order((footprint.value + page.value - 1) / page.value, setup.seed);
  for (std::uint64_t i = 0; i * page.value < footprint.value; ++i) {
    const std::uint64_t at = setup.fill == Fill::random ? order(i) : i;
    const Bytes length = std::min(page, footprint - page * at);
    for (std::uint64_t b = 0; b < length.value / block.value; ++b)
      oracle.fill(page.value * at / block.value + b, std::span(bytes).subspan(b * block.value, block.value));
    if (ftl.write(page * at, length, std::span(bytes).first(length.value)).status != ftl::IoStatus::ok)
      throw UserError("workload.precondition.fill: the working set does not fit the drive");
    written.push_back(ftl.lookup(ftl::LogicalPage{at}));
  }
  // Word lines that are not full would be in DRAM.
  ftl.fill_lines(written);
  if (ftl.stats().gc_erases > 0)
    throw UserError(
        "workload.precondition.fill: a drive that carries data cannot be filled without collection: give "
        "it a smaller working_set or a larger ftl.over_provisioning");
}

}  // namespace

BlockIoOutcome run_block_io(const BlockIoSetup& setup, const BlockIoProgress& progress, report::RunTrace* trace) {
  const bool carried = setup.platform.drive.data == ftl::DataMode::carried;
  if (carried != setup.platform.power.has_value())
    throw UserError("workload: runs of block commands carry data where the power fails, and only there");
  const SimulationContext context;
  platform::PlatformParams config = setup.platform;
  config.run_ahead = true;
  config.shared = {};  // one drive, whose data goes to no particular memory
  platform::Platform platform(config);
  csd_model::Drive& drive = platform.drive(0);
  const std::unique_ptr<workload::RequestSource> source = setup.source(drive.block_ftl().capacity());
  if (setup.fill != Fill::none && carried)
    fill_with_data(drive, source->footprint(), setup);
  else if (setup.fill != Fill::none)
    drive.block_ftl().precondition(source->footprint(),
                                   setup.fill == Fill::random ? std::optional(setup.seed) : std::nullopt);
  if (setup.overwrites > 0)
    drive.block_ftl().age(setup.overwrites, setup.seed, [&progress](std::uint64_t written, std::uint64_t pages) {
      if (progress) progress("pages written before the run", written, pages);
    });
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
