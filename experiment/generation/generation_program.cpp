#include "experiment/generation/generation_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "csd_model/passed_heads.h"
#include "experiment/generation/senders.h"
#include "experiment/measure/resource_use.h"
#include "experiment/memory/check_controller_dram.h"
#include "experiment/memory/memory_remedies.h"
#include "host_runtime/sysc/memory_capacities.h"
#include "nfc/sysc/sim_time.h"
#include "platform/platform.h"

namespace csdsim::experiment {
namespace {

/// Time and work of `drives` drives over both phases, as the run reports them.
csd_model::DriveWork work_of_run(const PhaseTotals& prefill, const PhaseTotals& decode, double seconds, double drives) {
  csd_model::DriveWork work = combine(prefill, 1, decode);
  work.elapsed = seconds * drives;
  return work;
}

ResourceCounts counts_of(const GenerationSetup& setup) {
  return {.drives = double(setup.platform.drives),
          .gpus = double(setup.plan.gpus),
          .io_cores = double(setup.platform.io_cores)};
}

/// Requests that arrive have no common first token: the times are those of all prefill and all decode steps.
host::GenerationTimes served_times(const host::BatchLengths& workload, const GenerationOutcome& out) {
  return {.batch = workload.size(),
          .output_tokens = workload.output_tokens,
          .decode_steps = workload.decode_steps(),
          .missing_tokens = host::missing_tokens(workload),
          .ttft_s = out.prefill.seconds,
          .decode_s = out.decode.seconds};
}

}  // namespace

GenerationProgram::GenerationProgram(const sc_core::sc_module_name& name, const GenerationSetup& setup,
                                     const GenerationHooks& hooks, platform::Platform& platform)
    : sc_module(name),
      setup_(setup),
      hooks_(hooks),
      platform_(platform),
      format_(setup),
      plan_(setup.plan.workload, setup.plan.model.layers, format_.grouping, setup.sampling),
      estimator_(plan_, setup.plan.workload),
      meter_(platform, plan_, open_ended()),
      gpu_(host::GpuModel(setup.gpu, setup.gpu_times), setup.data),
      executor_("executor"),
      link_(
          platform.shared_links(), setup.gpu_link,
          [this](host::OperationId id, SimTime at) { executor_.complete(id, at, {}); }, setup.data),
      commands_(
          platform, setup.queues_of_others,
          [this](host::OperationId id, SimTime at, const host::DriveSplit& split) {
            executor_.complete(id, at, split);
          },
          [this](const std::string& message) { fail(message); }),
      drives_(commands_, shape(), setup.data),
      blocks_(commands_, setup.data),
      router_(setup.data) {
  router_.add(host::ResourceKind::gpu, gpu_);
  if (setup.host.cores > 0) router_.add(host::ResourceKind::host, host_backend());
  router_.add(host::ResourceKind::host_to_gpu, link_);
  router_.add(host::ResourceKind::gpu_to_host, link_);
  router_.add(host::ResourceKind::drive_kv, drives_);
  router_.add(host::ResourceKind::drive_blocks, blocks_);
  if (setup.file)
    router_.add(host::ResourceKind::file, files_.emplace(commands_, file_tables_, *setup.file, setup.data));
  host::set_memory_capacities(router_.tensors(), setup.platform);
  router_.tensors().set_remedies(memory_remedies(setup));
  meter_.set_gpu(gpu_);
  SC_THREAD(main_thread);
}

host::OperationBackend& GenerationProgram::host_backend() {
  host_.emplace(setup_.host, setup_.data);
  if (!shares_host_memory(setup_)) return *host_;
  host_memory_.emplace(setup_.host.memory, [this](auto id, SimTime at) { executor_.complete(id, at, {}); });
  link_.set_memory(&*host_memory_);
  return shared_host_.emplace(*host_, *host_memory_);
}

void GenerationProgram::check_sampled() const {
  if (plan_.exact() || !format_.in_drives) return;
  check_controller_dram(setup_.platform.drive, *format_.policy, format_.shape, format_.layout, setup_.plan.workload,
                        format_.division, plan_.model_layers());
  if (setup_.platform.drive.write_buffer.value > 0)
    throw UserError(
        "platform.device.write_buffer.capacity: the layers of a sampled run fit into a buffer that all layers would "
        "fill; set it to 0 B, or use sampling: off");
}

GenerationOutcome GenerationProgram::outcome() {
  if (failure_) std::rethrow_exception(failure_);
  if (executor_.failure()) std::rethrow_exception(executor_.failure());
  if (!finished_) throw InternalError("the simulation ran out of events before the run had ended");
  GenerationOutcome out;
  if (cut_) {
    out.cut = true;
    out.error.prefill = prefill_error();
    return out;
  }
  out.prefill = meter_.prefill();
  out.decode = meter_.decode();
  if (setup_.plan.workload.served()) {
    out.statement = fmt::format("all {} steps simulated, with {} of {} layers", steps_, most_layers(), most_layers());
    out.times = served_times(setup_.plan.workload, out);
  } else if (open_ended()) {
    out.times = host::generation_times(executor_.report(), setup_.plan.workload);
    out.statement = fmt::format(
        "prefill and all {} decode steps simulated, with {} of {} layers; the checkpoint says which draft "
        "tokens are accepted",
        out.times.decode_steps, most_layers(), most_layers());
  } else {
    const host::GenerationEstimate estimate = estimator_.result();
    out.times = estimate.times;
    out.error = estimate.error;
    // With all layers no pace is extrapolated.
    if (plan_.groups().back().layers < plan_.model_layers())
      out.error.layers += lengthen_decode(out.times, out.decode, counts_of(setup_));
    out.decode.seconds = out.times.decode_s;
    out.error.prefill = prefill_error();
    add_placement_error(out.error, out.decode.page_ops);
    if (const double decode = out.times.decode_s; decode > 0) {
      const PhaseMeter::HeadsError heads = meter_.heads_error();
      out.error.add_heads(heads.noise_s / decode, heads.drift_s / decode);
    }
    out.statement = plan_.statement() + heads_statement();
    out.measured = measured_groups();
  }
  out.features = features_->values({.prefill = out.prefill.features,
                                    .decode = out.decode.features,
                                    .error = [this](std::size_t count) { return meter_.feature_error(count); },
                                    .decode_steps = double(out.times.decode_steps),
                                    .layers = plan_.model_layers(),
                                    .decode_tokens = std::max(1U, out.times.output_tokens) - 1,
                                    .gpu_busy_s = out.decode.gpu_busy_s(),
                                    .drive_neurons = double(out.decode.neurons)});
  add_requests(out);
  if (!plan_.exact()) out.statement += "; " + host::to_string(out.error);
  if (!setup_.why_whole.empty()) out.statement += fmt::format(" ({})", setup_.why_whole);
  if (files_) out.files = files_->totals();
  for (const auto& [place, footprint] : router_.tensors().footprints())
    if (place.on_gpu() || place.in_host()) out.memory_peaks[place] = footprint.peak;
  const double seconds = out.times.ttft_s + out.times.decode_s + meter_.idle_s();
  out.work = work_of_run(out.prefill, out.decode, seconds, double(platform_.drives()));
  return out;
}

void GenerationProgram::add_requests(GenerationOutcome& out) const {
  const host::BatchLengths& workload = setup_.plan.workload;
  if (!workload.own_outputs()) return;
  const std::span<const host::Request> requests = planner_->requests();
  out.requests = {.requests = {requests.begin(), requests.end()},
                  .start = start_,
                  .most_tokens = requests_.most_tokens(),
                  .mean_tokens = requests_.mean_tokens(),
                  .served = workload.served(),
                  .idle_s = meter_.idle_s()};
}

/// ", 13 % of the heads of their attention", or nothing if all heads are simulated.
std::string GenerationProgram::heads_statement() const {
  std::uint64_t passed = 0, simulated = 0;
  for (std::uint32_t i = 0; i < platform_.drives(); ++i) {
    const csd_model::Drive& drive = platform_.drive(i);
    if (drive.passed_heads() == nullptr) continue;
    passed += drive.passed_heads()->heads();
    simulated += drive.engine_stats()->jobs();
  }
  if (passed == 0) return {};
  return fmt::format(", {:.0f} % of the heads of their attention",
                     100 * double(simulated) / double(passed + simulated));
}

/// The pages of a layer cannot be divided evenly over the planes: some planes have a page or two more, and these are
/// other planes in each layer. With few pages per plane and layer, the simulated layers therefore differ from the
/// others. The two factors are empirical: the smallest that cover the runs of
/// tests/integration/test_sampled_runs.cpp, rounded up.
void GenerationProgram::add_placement_error(host::SamplingError& error, double decode_pages) const {
  constexpr double kDecodePages = 3;
  const host::SampledGroup& last = plan_.groups().back();
  if (decode_pages > 0 && last.layers < plan_.model_layers())
    error.layers +=
        kDecodePages / last.layers * planes_of_layers() * setup_.plan.workload.decode_steps() / decode_pages;
}

/// The error of uneven layers, of placement, and of what falls behind: what is busy for longer than the prefill lasts
/// stops it once the buffers are full, which may be after the layers that are simulated. It begins when the first layer
/// has been computed: hence a layer more, at most.
double GenerationProgram::prefill_error() const {
  constexpr double kPrefillPages = 5;
  double error = estimator_.prefill_error();
  if (plan_.groups().front().layers == plan_.model_layers()) return error;
  const PhaseTotals& prefill = meter_.prefill();
  if (prefill.page_ops > 0) error += kPrefillPages * planes_of_layers() / prefill.page_ops;
  const double behind = std::max(0.0, meter_.prefill_work_s(setup_.plan.gpus) / estimator_.ttft_s() - 1);
  return error + behind + std::min(behind, 1.0 / plan_.model_layers());
}

double GenerationProgram::planes_of_layers() const {
  return double(setup_.platform.drive.geometry.planes()) * platform_.drives() * plan_.model_layers();
}

std::uint32_t GenerationProgram::most_layers() const {
  std::uint32_t most = 0;
  for (const host::SampledGroup& group : plan_.groups()) most = std::max(most, group.layers);
  return most;
}

host::DriveKvBackend::Shape GenerationProgram::shape() const {
  const host::ModelShape& model = setup_.plan.model;
  return {.kv_heads = model.kv_heads,
          .group = model.heads / model.kv_heads,
          .head_dim = model.head_dim,
          .layers = most_layers(),
          .max_tokens = format_.shape.max_tokens,
          .component_major = format_.component_major,
          .granularity = setup_.granularity,
          .shard = format_.shard,
          .kv = setup_.system->traits().kv_format};
}

/// True if only the run shows how many steps there are.
bool GenerationProgram::open_ended() const {
  return setup_.plan.workload.served() || (setup_.data != nullptr && setup_.data->progress() != nullptr);
}

void GenerationProgram::fail(const std::string& message) {
  if (!failure_) failure_ = std::make_exception_ptr(UserError(message));
  stop_.request();
}

/// No exception may leave an SC_THREAD.
void GenerationProgram::main_thread() {
  try {
    run();
  } catch (...) {
    if (!failure_) failure_ = std::current_exception();
    sc_core::sc_stop();
  }
}

/// Lets time pass until `start` calls back what it is given.
void GenerationProgram::wait_for(const std::function<void(std::function<void()>)>& start) {
  bool reached = false;
  start([this, &reached] {
    reached = true;
    resume_.request();
  });
  while (!reached) wait(continue_);
}

void GenerationProgram::run() {
  wait_for([this](auto done) { platform_.on_ready(std::move(done)); });
  const bool served = setup_.plan.workload.served();  // their plan creates sequences
  const auto sequences = static_cast<std::uint32_t>(setup_.plan.workload.size());
  if (format_.in_drives && !served) wait_for([&](auto done) { drives_.create_sequences(sequences, std::move(done)); });
  add_files();
  add_features();
  add_blocks();
  for (const host::SampledGroup& group : plan_.groups()) {
    if (measured_before(group)) {
      estimator_.add(setup_.measured->times.at(group.first_step));
      meter_.add(setup_.measured->work.at(group.first_step));
      continue;
    }
    run_group(group);
    cut_ = group.after_prefill && setup_.most_prefill_error && prefill_error() > *setup_.most_prefill_error;
    if (cut_) break;
  }
  if (hooks_.after_last) wait_for(hooks_.after_last);
  wait_for([this](auto done) { drain(std::move(done)); });
  finished_ = true;
}

bool GenerationProgram::measured_before(const host::SampledGroup& group) const {
  return setup_.measured && setup_.measured->times.contains(group.first_step);
}

std::shared_ptr<const MeasuredGroups> GenerationProgram::measured_groups() const {
  const auto measured = std::make_shared<MeasuredGroups>();
  for (std::size_t i = 0; i < plan_.groups().size(); ++i) {
    measured->times[plan_.groups()[i].first_step] = estimator_.groups()[i];
    measured->work[plan_.groups()[i].first_step] = meter_.groups()[i];
  }
  return measured;
}

void GenerationProgram::drain(const std::function<void()>& done) {
  if (files_)
    files_->when_written_back([this, done] { drain_drives(done); });
  else
    drain_drives(done);
}

void GenerationProgram::drain_drives(const std::function<void()>& done) {
  const auto left = std::make_shared<std::uint32_t>(platform_.drives());
  for (std::uint32_t i = 0; i < platform_.drives(); ++i)
    platform_.drive(i).when_drained([left, done] {
      if (--*left == 0) done();
    });
}

host::PlannerInputs GenerationProgram::inputs_of(const host::SampledGroup& group) const {
  host::PlannerInputs inputs = setup_.plan;
  inputs.model.layers = group.layers;
  inputs.whole_layers = setup_.plan.model.layers;
  inputs.span = group.span();
  inputs.drives = platform_.drives();
  if (setup_.data != nullptr) inputs.progress = setup_.data->progress();
  return inputs;
}

std::unique_ptr<host::Planner> GenerationProgram::plan_of(const host::SampledGroup& group) const {
  return setup_.system->plan(inputs_of(group));
}

/// A plan over `layers` layers after so many decode steps. Its residents are what these layers then have in memory.
std::unique_ptr<host::Planner> GenerationProgram::plan_after(std::uint32_t steps, std::uint32_t layers) const {
  host::PlannerInputs inputs = setup_.plan;
  inputs.model.layers = layers;
  inputs.whole_layers = setup_.plan.model.layers;
  const std::uint32_t last = inputs.workload.decode_steps();
  inputs.workload.output_tokens += 1;  // sequences that have all their tokens are planned without K and V
  inputs.span = {.prefill = false, .first_step = std::min(steps, last), .decode_steps = 0};
  inputs.drives = platform_.drives();
  return setup_.system->plan(inputs);
}

/// Counts the memory of the layers that are left out while a step runs, after which there have been `steps` decode
/// steps. These layers count as computed before the simulated ones. The last group counts as the last steps of the run,
/// in which K and V are largest.
void GenerationProgram::place_left_out(std::uint32_t steps) {
  if (plan_.exact()) return;
  const bool last = group_ == &plan_.groups().back();
  const std::uint32_t end = group_->first_step + group_->steps();
  const std::uint32_t later = last ? setup_.plan.workload.decode_steps() - end : 0;
  host::place_layers_left_out(router_.tensors(), *plan_after(steps + later, plan_.model_layers()),
                              *plan_after(steps, group_->layers), plan_.model_layers());
}

void GenerationProgram::run_group(const host::SampledGroup& group) {
  planner_ = plan_of(group);
  if (!group.after_prefill) wait_for([this](auto done) { drain(std::move(done)); });
  // The groups before may have simulated more layers than this one.
  router_.tensors().forget_tensors();
  materialise(group, *planner_);
  group_ = &group;
  place_left_out(group.after_prefill ? 0 : group.first_step + 1);
  for (const auto& feature : *features_) feature->set_inputs(inputs_of(group));
  meter_.begin(group);
  if (steps_ == 0) requests_.begin(start_ = sim_time_now());
  wait_for([&](auto done) {
    executor_.run(
        *planner_, router_, [this](const host::OperationRecord& r) { observe(r); }, std::move(done));
  });
  if (!open_ended()) estimator_.add(executor_.report(), meter_.step_work_s(setup_.plan.gpus));
}

void GenerationProgram::observe(const host::OperationRecord& record) {
  if (hooks_.operation) hooks_.operation(record);
  if (setup_.plan.workload.own_outputs()) requests_.observe(record, planner_->requests());
  if (!meter_.observe(record)) return;
  ++steps_;
  place_left_out(record.tag.phase == host::Phase::prefill ? 1 : record.tag.step + 2);
  if (!hooks_.progress) return;
  const host::BatchLengths& workload = setup_.plan.workload;
  if (workload.served()) return hooks_.progress(requests_.ended(), workload.size());
  std::size_t total = 0;
  for (const host::SampledGroup& group : plan_.groups())
    if (!measured_before(group)) total += group.steps() + (group.after_prefill ? 1 : 0);
  hooks_.progress(steps_, std::max(steps_, total));
}

}  // namespace csdsim::experiment
