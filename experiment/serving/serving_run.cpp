#include "experiment/serving/serving_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/statistics.h"
#include "experiment/assemble.h"
#include "experiment/checkpoint/loaded_model.h"
#include "experiment/serving/drive_rates.h"
#include "experiment/serving/hit_rates.h"
#include "platform/platform.h"
#include "report/run_trace.h"
#include "simulation/failure.h"
#include "simulation/kernel_call.h"
#include "simulation/sim_time.h"
#include "simulation/simulation_context.h"

namespace csdsim::experiment {

using scenario::Scenario;

namespace {

std::unique_ptr<host::KvBlockManager> make_tier(const TierConfig& config, std::uint64_t blocks) {
  const auto make = [blocks](const std::string& text, const auto& registry) {
    const CachePolicyChoice choice = cache_policy_choice(text);
    return registry.at(choice.name)(host::CachePolicyContext{.capacity = blocks, .settings = choice.settings});
  };
  return std::make_unique<host::KvBlockManager>(host::KvBlockManager::Config{.capacity = blocks},
                                                make(config.eviction, host::builtin_eviction_policies()),
                                                make(config.admission, host::builtin_admission_policies()));
}

/// The engines and tiers of a run over a transport.
class ServingParts {
 public:
  /// `contents` is null in runs that carry no data.
  ServingParts(const Scenario& s, const ServingWorkload& work, Bytes exported, host::KvTransport& transport,
               host::KvContents* contents)
      : work_(work),
        tiers_(make_tiers(s, work, exported, transport, contents)),
        cost_(s.model.shape(), host::GpuModel(s.platform.gpu), work.engine.kv_element_bytes),
        engine_(work.engine_config(s), cost_, *work.trace, *tiers_, transport, contents),
        gpu_blocks_(work.engine_config(s).engine.gpu_blocks * work.engine.instances) {}

  host::ServingEngine& engine() { return engine_; }
  host::KvTiers& tiers() { return *tiers_; }

  void add_to(ServingOutcome& out) const {
    out.meter = engine_.meter();
    out.tiers = tiers_->use();
    if (work_.has_files()) out.files = tiers_->files();
    out.tier_block = tiers_->whole_block();
    out.gpu_blocks = gpu_blocks_;
    if (tiers_->host() != nullptr) out.host_blocks = tiers_->host()->capacity();
    if (tiers_->drives() != nullptr) out.drive_blocks = tiers_->drives()->capacity();
  }

 private:
  static std::unique_ptr<host::KvTiers> make_tiers(const Scenario& s, const ServingWorkload& work, Bytes exported,
                                                   host::KvTransport& transport, host::KvContents* contents) {
    std::unique_ptr<host::KvBlockManager> host, drives;
    const host::KvTiersConfig config = work.tiers_config(s);
    if (work.tiers.host) host = make_tier(*work.tiers.host, work.tiers.host->capacity.value / config.block_bytes.value);
    if (work.tiers.drives) drives = make_tier(*work.tiers.drives, work.drive_blocks(s, exported));
    return std::make_unique<host::KvTiers>(config, std::move(host), std::move(drives), transport, contents);
  }

  const ServingWorkload& work_;
  std::unique_ptr<host::KvTiers> tiers_;
  host::StepCost cost_;
  host::ServingEngine engine_;
  std::uint64_t gpu_blocks_;
};

void report_progress(host::ServingEngine& engine, const ServingWorkload& work, const scenario::RunOptions& options) {
  if (!options.progress) return;
  engine.on_progress(
      [&options, all = work.trace->requests.size()](std::uint64_t ended) { options.progress("requests", ended, all); });
}

/// Runs the engines on simulated drives.
class ServingProgram : public sc_core::sc_module {
 public:
  ServingProgram(const sc_core::sc_module_name& name, const Scenario& s, const ServingWorkload& work,
                 const scenario::RunOptions& options, platform::Platform& platform, host::KvContents* contents)
      : sc_module(name),
        platform_(platform),
        transport_(platform, transport_config(s, work),
                   [this](const std::string& what) {
                     if (failure_.empty()) failure_ = what;
                     stop_at_once();
                   }),
        parts_(s, work, platform.drive(0).block_ftl().capacity(), transport_, contents) {
    parts_.engine().on_progress([this, &options, all = work.trace->requests.size()](std::uint64_t ended) {
      sample();
      if (options.progress) options.progress("requests", ended, all);
    });
    if (options.interrupted) parts_.engine().ends_early(options.interrupted);
    parts_.engine().on_finished([this] {
      end_ = sim_time_now();
      parts_.engine().meter().finish(end_);
      ended_ = true;
      if (!parts_.engine().finished()) return stop_at_once();
      settle();
    });
    platform.on_ready([this] {
      start_ = sim_time_now();
      parts_.engine().start();
    });
  }

  ServingOutcome outcome() {
    if (!failure_.empty()) throw UserError(failure_);
    if (!ended_) throw InternalError("the simulation ran out of events before all requests had ended");
    ServingOutcome out;
    out.interrupted = !parts_.engine().finished();
    parts_.add_to(out);
    out.start = start_;
    out.end = end_;
    out.simulated_drives = true;
    sample();
    out.write_samples = merged(writes_, kWriteSamples);
    for (std::uint32_t i = 0; i < platform_.drives(); ++i) {
      csd_model::Drive& drive = platform_.drive(i);
      out.totals += drive.totals();
      const ftl::BlockFtlStats& stats = drive.block_ftl().stats();
      out.erases += stats.gc_erases + stats.wear_erases + stats.refreshed_blocks;
      out.commands_issued += platform_.driver(i).issued();
      out.commands_completed += platform_.driver(i).completed();
      Statistics statistics;
      drive.register_statistics(statistics);
      out.drive_statistics.push_back(statistics.dump());
    }
    out.writes = writes();
    return out;
  }

 private:
  static constexpr std::size_t kWriteSamples = 32;

  /// Stops while work is pending. Without the hold the event loop would go on with all pending events.
  void stop_at_once() {
    hold_.engage();
    stop_.request();
  }

  /// Stops when the drives have all that they get.
  void settle() {
    transport_.when_idle([this] {
      if (parts_.tiers().settled()) return stop_.request();
      parts_.tiers().sync([this] { settle(); });
    });
  }

  /// The work of all drives so far.
  ftl::WriteWork writes() const {
    ftl::WriteWork all;
    for (std::uint32_t i = 0; i < platform_.drives(); ++i) all += platform_.drive(i).block_ftl().stats().work();
    return all;
  }
  /// A piece of what the drives have written ends.
  void sample() {
    const ftl::WriteWork now = writes();
    writes_.push_back({(sim_time_now() - start_).seconds(), now - sampled_});
    sampled_ = now;
  }

  platform::Platform& platform_;
  KernelCall stop_{[] { sc_core::sc_stop(); }};
  LoopHold hold_;
  std::string failure_;
  host::SimulatedTransport transport_;
  ServingParts parts_;
  SimTime start_, end_;
  bool ended_ = false;
  std::vector<WriteSample> writes_;
  ftl::WriteWork sampled_;  ///< what they hold together
};

ServingOutcome run_on_drives(const Scenario& s, const ServingWorkload& work, const scenario::RunOptions& options,
                             report::RunTrace* trace, host::KvContents* contents) {
  const SimulationContext context;
  platform::PlatformParams params = serving_platform(s, work);
  params.waveforms = options.waveforms;
  platform::Platform platform(params);
  ServingProgram program("serving", s, work, options, platform, contents);
  if (trace != nullptr) trace->watch(platform);
  run_kernel();
  if (trace != nullptr) trace->leave(platform);
  for (std::uint32_t i = 0; i < platform.drives(); ++i)
    if (!platform.driver(i).failure().empty()) throw InternalError(platform.driver(i).failure());
  return program.outcome();
}

void add_requests(report::RunTrace& trace, const ServingOutcome& out) {
  std::vector<const host::ServedRequest*> requests;
  for (const host::ServedRequest& request : out.meter.requests()) requests.push_back(&request);
  std::ranges::sort(requests, {}, [](const auto* r) { return r->life.arrival; });
  for (const host::ServedRequest* r : requests) {
    std::vector<report::RunTrace::Span> spans;
    for (const host::RequestSpan& span : r->spans)
      spans.push_back({host::kRequestPhaseNames[static_cast<std::size_t>(span.phase)], span.begin, span.end});
    trace.add_request(r->instance, r->life.id.value, spans,
                      {{"input_tokens", std::uint64_t{r->life.prompt}},
                       {"output_tokens", std::uint64_t{r->life.generated}},
                       {"gpu_hit_tokens", r->hit_gpu},
                       {"host_hit_tokens", r->hit_host},
                       {"drive_hit_tokens", r->hit_drives},
                       {"preemptions", std::uint64_t{r->preemptions}}});
  }
  for (const host::ServingMeter::Sample& sample : out.meter.samples()) {
    trace.add_counter("requests waiting", sample.at, double(sample.load.waiting));
    trace.add_counter("requests loading", sample.at, double(sample.load.loading));
    trace.add_counter("requests running", sample.at, double(sample.load.running));
  }
}

nlohmann::ordered_json rates_json(const host::TransportRates& rates) {
  return {{"read_bytes_per_s", rates.read.bytes_per_second},
          {"write_bytes_per_s", rates.write.bytes_per_second},
          {"read_latency_s", rates.read_latency.seconds()},
          {"write_latency_s", rates.write_latency.seconds()}};
}

ServingOutcome run_on_rates(const Scenario& s, const ServingWorkload& work, const scenario::RunOptions& options,
                            host::KvContents* contents) {
  const host::LinkModel link = gpu_link_of(s);
  host::TransportRates rates{.copy = link.bandwidth,
                             .copy_latency = link.latency,
                             .read = {},
                             .write = {},
                             .read_latency = {},
                             .write_latency = {}};
  if (work.tiers.drives) rates = measured_rates(s, work);
  host::RatesTransport transport(rates);
  ServingParts parts(s, work, exported_capacity(s), transport, contents);
  report_progress(parts.engine(), work, options);
  SimTime end;
  if (options.interrupted) parts.engine().ends_early(options.interrupted);
  bool ended = false;
  parts.engine().on_finished([&] {
    end = transport.now();
    parts.engine().meter().finish(end);
    ended = true;
    if (!parts.engine().finished()) return transport.stop();
    parts.tiers().sync([] {});
  });
  parts.engine().start();
  transport.run();
  if (!ended) throw InternalError("the run ended before all requests had ended");
  ServingOutcome out;
  out.interrupted = !parts.engine().finished();
  parts.add_to(out);
  out.end = end;
  if (work.tiers.drives) out.rates = rates_json(rates);
  return out;
}

}  // namespace

ServingOutcome run_serving(const Scenario& s, const ServingWorkload& work, const scenario::RunOptions& options) {
  std::optional<report::RunTrace> trace;
  if (options.trace) trace.emplace(*options.trace, options.trace_limit);
  std::optional<LoadedModel> model;
  std::optional<host::ServedModel> served;
  if (s.simulation.data == ftl::DataMode::carried) {
    model.emplace(s.model.path.value().path, host::Processor::cpu, s.model.fatrelu);
    served.emplace(
        model->decoder(), *work.trace,
        host::ServedModel::Layout{.block_tokens = work.engine.block_tokens, .parts = work.tiers_config(s).parts});
  }
  host::KvContents* const contents = served ? &*served : nullptr;
  const bool simulated = work.tiers.drives && work.tiers.drives->model == DriveModel::simulated;
  ServingOutcome out = simulated ? run_on_drives(s, work, options, trace ? &*trace : nullptr, contents)
                                 : run_on_rates(s, work, options, contents);
  if (served) {
    out.answers = served->answers();
    out.cold_answers = served->compute_cold();
  }
  if (trace) {
    add_requests(*trace, out);
    trace->close(options.notice);
  }
  return out;
}

}  // namespace csdsim::experiment
