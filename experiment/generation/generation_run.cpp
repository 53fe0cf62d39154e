#include "experiment/generation/generation_run.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "experiment/generation/generation_program.h"
#include "experiment/generation/senders.h"
#include "experiment/memory/kv_format.h"
#include "experiment/sampling/sampling_search.h"
#include "nfc/sysc/sim_time.h"
#include "platform/platform.h"
#include "simulation/failure.h"
#include "simulation/simulation_context.h"

namespace csdsim::experiment {

namespace {

/// The shared links with those who send over them.
platform::SharedLinksParams shared_links_of(const GenerationSetup& setup) {
  platform::SharedLinksParams shared = setup.platform.shared;
  if (!shared.limited()) return shared;
  const Senders senders = senders_of(setup);
  if (senders.to_gpu || senders.from_gpu) shared.copies = setup.gpu_link.bandwidth;
  shared.peer_to_peer = senders.peer_to_peer;
  // Without peer-to-peer traffic, nothing shares the links of the GPUs with the copies.
  if (!shared.peer_to_peer) shared.gpu_link.reset();
  return shared;
}

/// Only where nothing but attention goes on in the drives, so that they can stand still while heads are passed over.
std::uint32_t measured_heads(const GenerationSetup& setup) {
  if (setup.sampling.off || setup.data != nullptr || !setup.platform.drive.samples_heads()) return 0;
  if (!setup.system->needs(setup.plan).parts_of_steps) return 0;
  const host::SamplingPlan plan(setup.plan.workload, setup.plan.model.layers, KvFormat(setup).grouping, setup.sampling);
  return plan.exact() ? 0 : setup.sampling.heads;
}

nlohmann::ordered_json use_of_shared_links(const platform::SharedLinks& links) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const auto& link : links.links()) {
    const platform::LinkUse use = links.use(*link);
    all.push_back({{"name", link->shared.name()},
                   {"bandwidth", link->rate.bytes_per_second},
                   {"can_limit", link->binds},
                   {"bytes", use.bytes},
                   {"busy_s", use.busy_s}});
  }
  return all;
}

}  // namespace

GenerationOutcome run_generation(const GenerationSetup& setup, const GenerationHooks& hooks) {
  if (setup.asked_error) return run_to_error(setup, hooks);
  announce(setup, hooks);
  const SimulationContext context;
  platform::PlatformParams params = setup.platform;
  params.shared = shared_links_of(setup);
  params.waveforms = hooks.waveforms;
  params.run_ahead = true;
  params.drive.measured_heads = measured_heads(setup);
  platform::Platform platform(params);
  if (hooks.shared_link) platform.shared_links().set_observer(hooks.shared_link);
  GenerationProgram program("program", setup, hooks, platform);
  program.check_sampled();
  program.measure_gpu_times();
  struct AtEnd {
    const std::function<void(platform::Platform&)>& call;
    platform::Platform& platform;
    ~AtEnd() {
      if (call) call(platform);
    }
  };
  const AtEnd at_end{hooks.before_end, platform};
  if (hooks.before_start) hooks.before_start(platform);
  run_kernel();
  for (std::uint32_t i = 0; i < platform.drives(); ++i)
    if (!platform.driver(i).failure().empty())
      throw InternalError(fmt::format("drive {}: {}", i, platform.driver(i).failure()));
  GenerationOutcome out = program.outcome();
  platform.shared_links().end_periods();
  out.shared_links = use_of_shared_links(platform.shared_links());
  out.simulated = sim_time_now();
  out.power = power_outcome(platform);
  for (std::uint32_t i = 0; i < platform.drives(); ++i) {
    csd_model::Drive& drive = platform.drive(i);
    out.simulated_page_ops += drive.simulated_totals().page_ops;
    for (const ftl::BackingStore* const store : {&drive.backing_store(), &drive.kv_backing_store()}) {
      out.integrity_errors += store->integrity_errors();
      for (const ftl::IntegrityError& error : store->kept_integrity_errors())
        out.integrity_messages.push_back(fmt::format("drive {}: {}", i, ftl::to_string(error)));
    }
    Statistics statistics;
    drive.register_statistics(statistics);
    out.drive_statistics.push_back(statistics.dump());
    out.kv += drive.kv_ftl().stats();
    out.grown_bad_blocks += drive.block_manager().grown_bad_blocks();
    out.wear_erases += drive.block_ftl().stats().wear_erases;
    out.dram_peak = std::max(out.dram_peak, drive.dram().peak());
    out.requests_issued += platform.driver(i).issued();
    out.requests_completed += platform.driver(i).completed();
  }
  return out;
}

}  // namespace csdsim::experiment
