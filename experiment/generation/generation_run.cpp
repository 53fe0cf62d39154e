#include "experiment/generation/generation_run.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "experiment/generation/generation_program.h"
#include "experiment/generation/sampling_search.h"
#include "nfc/sysc/sim_time.h"
#include "simulation/failure.h"
#include "simulation/simulation_context.h"

namespace csdsim::experiment {

GenerationOutcome run_generation(const GenerationSetup& setup, const GenerationHooks& hooks) {
  if (setup.asked_error) return run_to_error(setup, hooks);
  const SimulationContext context;
  platform::Platform platform(setup.platform);
  GenerationProgram program("program", setup, hooks, platform);
  program.check_sampled();
  struct AtEnd {
    const std::function<void()>& call;
    ~AtEnd() {
      if (call) call();
    }
  };
  const AtEnd at_end{hooks.before_end};
  if (hooks.before_start) hooks.before_start(platform);
  run_kernel();
  for (std::uint32_t i = 0; i < platform.drives(); ++i)
    if (!platform.driver(i).failure().empty())
      throw InternalError(fmt::format("drive {}: {}", i, platform.driver(i).failure()));
  GenerationOutcome out = program.outcome();
  out.simulated = sim_time_now();
  for (std::uint32_t i = 0; i < platform.drives(); ++i) {
    csd_model::Drive& drive = platform.drive(i);
    out.simulated_page_ops += drive.totals().page_ops;
    out.integrity_errors += drive.backing_store().integrity_errors();
    for (const ftl::IntegrityError& error : drive.backing_store().kept_integrity_errors())
      out.integrity_messages.push_back(fmt::format("drive {}: {}", i, ftl::to_string(error)));
    Statistics statistics;
    drive.register_statistics(statistics);
    out.drive_statistics.push_back(statistics.dump());
    out.kv_erases += drive.kv_ftl().stats().erases;
    out.kv_gc_pages_moved += drive.kv_ftl().stats().gc_pages_moved;
    out.dram_peak = std::max(out.dram_peak, drive.dram().peak());
    out.requests_issued += platform.driver(i).issued();
    out.requests_completed += platform.driver(i).completed();
  }
  return out;
}

}  // namespace csdsim::experiment
