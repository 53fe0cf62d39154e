#include "experiment/generation/generation_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <map>
#include <memory>
#include <utility>

#include "base/error.h"
#include "experiment/generation/phase_totals.h"
#include "host_runtime/core/planner/router.h"
#include "host_runtime/core/planner/systems/systems.h"
#include "host_runtime/sysc/executor_module.h"
#include "nfc/sysc/sim_time.h"
#include "simulation/failure.h"
#include "simulation/simulation_context.h"

namespace csdsim::experiment {

using host::Operation;

namespace {

/// Time and work of `drives` drives over both phases, as the run reports them.
csd_model::EnergyInputs energy_inputs(const PhaseTotals& prefill, const PhaseTotals& decode, double seconds,
                                      double drives) {
  const PhaseTotals sum = combine(prefill, 1, decode);
  return {.drive_seconds = seconds * drives,
          .read_s = sum.read_busy_s,
          .program_s = sum.program_busy_s,
          .erase_s = sum.erase_busy_s,
          .channel_bytes = sum.flash_channel_bytes,
          .dram_bytes = sum.dram_bytes,
          .macs = sum.macs,
          .link_bytes = sum.link_bytes};
}

/// The host's program: one SC_THREAD that runs the groups of a sampling plan one after another.
class GenerationProgram : public sc_core::sc_module {
 public:
  GenerationProgram(const sc_core::sc_module_name& name, const GenerationSetup& setup, const GenerationHooks& hooks,
                    platform::Platform& platform)
      : sc_module(name),
        setup_(setup),
        hooks_(hooks),
        platform_(platform),
        policy_(csd_model::make_mapping(setup.platform.drive)),
        kv_shape_(kv_shape()),
        layout_(policy_->layout(kv_shape_, setup.platform.drive.geometry.page_size, setup.platform.drive.kv.layout)),
        grouping_(grouping()),
        plan_(setup.plan.workload, setup.plan.model.layers, grouping_, setup.sampling),
        estimator_(plan_, setup.plan.workload),
        gpu_(host::GpuModel(setup.gpu, setup.gpu_times), setup.data),
        link_(setup.gpu_link, setup.data),
        executor_("executor"),
        commands_(
            platform, setup.queues_of_others,
            [this](host::OperationId id, SimTime at, const host::DriveSplit& split) {
              executor_.complete(id, at, split);
            },
            [this](const std::string& message) { fail(message); }),
        drives_(commands_, shape(), setup.data),
        router_(setup.data) {
    router_.add(host::ResourceKind::gpu, gpu_);
    router_.add(host::ResourceKind::host_to_gpu, link_);
    router_.add(host::ResourceKind::gpu_to_host, link_);
    router_.add(host::ResourceKind::drive_kv, drives_);
    SC_THREAD(main_thread);
  }
  SC_HAS_PROCESS(GenerationProgram);

  /// What a sampled run would not run into, because it holds a few layers only. UserError, before anything is
  /// simulated.
  void check_sampled() const {
    if (plan_.exact()) return;
    check_dram();
    if (setup_.platform.drive.write_buffer.value > 0)
      throw UserError(
          "platform.device.write_buffer.capacity: the layers of a sampled run fit into a buffer that all layers would "
          "fill; set it to 0 B, or use sampling: off");
  }

  GenerationOutcome outcome() {
    if (failure_) std::rethrow_exception(failure_);
    if (executor_.failure()) std::rethrow_exception(executor_.failure());
    if (!finished_) throw InternalError("the simulation ran out of events before the run had ended");
    GenerationOutcome out;
    const host::GenerationEstimate estimate = estimator_.result();
    out.times = estimate.times;
    out.relative_error = estimate.relative_error;
    out.error_estimated = estimate.error_estimated;
    out.statement = estimate.statement;
    out.prefill = prefill_;
    for (const auto field : kPhaseFields) {
      std::vector<host::LayeredCost> costs;
      for (std::size_t i = 0; i < measured_.size(); ++i) {
        // Of all that is counted only the GPU also works outside the layers.
        const double fixed = field == &PhaseTotals::gpu_busy_s ? gpu_outside_layers_[i] : 0;
        costs.push_back({.layered = measured_[i].*field - fixed, .fixed = fixed});
      }
      out.decode.*field = measured_.empty() ? 0 : plan_.decode_total(costs);
    }
    out.decode.seconds = estimate.times.decode_s;
    out.energy =
        energy_inputs(out.prefill, out.decode, out.times.ttft_s + out.times.decode_s, double(platform_.drives()));
    return out;
  }

 private:
  /// Layers that any of the groups has.
  std::uint32_t most_layers() const {
    std::uint32_t most = 0;
    for (const host::SampledGroup& group : plan_.groups()) most = std::max(most, group.layers);
    return most;
  }

  host::DriveKvBackend::Shape shape() const {
    const host::ModelShape& model = setup_.plan.model;
    return {.kv_heads = model.kv_heads,
            .group = model.heads / model.kv_heads,
            .head_dim = model.head_dim,
            .layers = most_layers(),
            .max_tokens = max_tokens(),
            .component_major = component_major(),
            .granularity = setup_.granularity};
  }

  /// Dense attention never reads embedding pages: InstI-Dense keeps K once.
  bool component_major() const { return setup_.component_major.value_or(setup_.system != "instinfer-dense"); }

  std::uint32_t max_tokens() const {
    const auto& prompts = setup_.plan.workload.prompt_tokens;
    return *std::max_element(prompts.begin(), prompts.end()) + setup_.plan.workload.output_tokens;
  }

  /// A sequence on the first drive, which has the most heads.
  ftl::KvShape kv_shape() const {
    const host::ModelShape& model = setup_.plan.model;
    return {.layers = model.layers,
            .kv_heads = (model.kv_heads + setup_.platform.drives - 1) / setup_.platform.drives,
            .head_dim = model.head_dim,
            .max_tokens = max_tokens(),
            .component_major = component_major()};
  }

  host::KvGrouping grouping() const {
    if (!layout_.component_major) return {.page_tokens = layout_.group_tokens};
    const ftl::KvFtlConfig& kv = setup_.platform.drive.kv;
    const std::uint32_t rewrites = kv.tail == ftl::TailPolicy::partial_program ? kv.tail_rewrites : 0;
    return {.page_tokens = layout_.group_tokens,
            .window_tokens = layout_.window_tokens,
            .windowed = [this, rewrites](std::uint64_t tokens) { return layout_.windowed(tokens, rewrites); }};
  }

  void fail(const std::string& message) {
    if (!failure_) failure_ = std::make_exception_ptr(UserError(message));
    sc_core::sc_stop();
  }

  /// No exception may leave an SC_THREAD.
  void main_thread() {
    try {
      run();
    } catch (...) {
      if (!failure_) failure_ = std::current_exception();
      sc_core::sc_stop();
    }
  }

  /// Lets time pass until `start` calls back what it is given.
  void wait_for(const std::function<void(std::function<void()>)>& start) {
    bool reached = false;
    start([this, &reached] {
      reached = true;
      continue_.notify(sc_core::SC_ZERO_TIME);
    });
    while (!reached) wait(continue_);
  }

  /// Sampled runs hold few layers: whether controller DRAM would hold all of them has to be worked out.
  void check_dram() const {
    const ftl::TailPolicy tail = setup_.platform.drive.kv.tail;
    const auto& work = setup_.plan.workload;
    const ftl::KvSequenceInfo sequence{SequenceId{0}, kv_shape_, layout_};
    const std::uint64_t heads = kv_shape_.kv_heads;
    const std::uint64_t tiles = (heads + layout_.page_heads - 1) / layout_.page_heads;
    std::vector<std::uint32_t> written(work.prompt_tokens.size());  // groups
    std::uint64_t most = 0;
    for (std::uint32_t step = 0; step < work.output_tokens; ++step) {
      std::uint64_t bytes = 0;
      for (std::size_t s = 0; s < written.size(); ++s) {
        const std::uint32_t tokens = work.prompt_tokens[s] + step;
        written[s] += policy_->groups_to_write(sequence, tokens, written[s]);
        const std::uint64_t held = tokens - std::uint64_t{written[s]} * layout_.group_tokens;
        bytes += heads * (2 * held * layout_.row().value + sizeof(float) * layout_.head_dim) +
                 tiles * policy_->table_bytes(sequence, layout_.pages(tokens).total()).value;
        if (tail == ftl::TailPolicy::dram) bytes += heads * layout_.component_tail(tokens).value;
      }
      most = std::max(most, bytes);
    }
    most *= plan_.model_layers();
    const Bytes capacity = setup_.platform.drive.dram;
    if (most > capacity.value)
      throw UserError(
          fmt::format("platform.device.dram.capacity: the tails and maps of {} sequences need up to {:.2f} GiB of "
                      "controller DRAM a "
                      "drive, it has {:.2f} GiB; give it more, use tail: token_index, or fewer sequences",
                      work.prompt_tokens.size(), static_cast<double>(most) * 0x1p-30,
                      static_cast<double>(capacity.value) * 0x1p-30));
  }

  void run() {
    wait_for([this](auto done) { platform_.on_ready(std::move(done)); });
    const auto sequences = static_cast<std::uint32_t>(setup_.plan.workload.prompt_tokens.size());
    wait_for([&](auto done) { drives_.create_sequences(sequences, std::move(done)); });
    for (const host::SampledGroup& group : plan_.groups()) run_group(group);
    if (hooks_.after_last) wait_for(hooks_.after_last);
    wait_for([this](auto done) { drain(std::move(done)); });
    finished_ = true;
  }

  void drain(const std::function<void()>& done) {
    const auto left = std::make_shared<std::uint32_t>(platform_.drives());
    for (std::uint32_t i = 0; i < platform_.drives(); ++i)
      platform_.drive(i).when_drained([left, done] {
        if (--*left == 0) done();
      });
  }

  void run_group(const host::SampledGroup& group) {
    if (!group.after_prefill) {
      wait_for([this](auto done) { drain(std::move(done)); });
      materialise(group);
    }
    host::PlannerInputs inputs = setup_.plan;
    inputs.model.layers = group.layers;
    inputs.span = group.span();
    inputs.drives = platform_.drives();
    const std::unique_ptr<host::Planner> planner = host::make_planner(setup_.system, inputs);
    group_ = &group;
    gpu_busy_ = gpu_outside_ = gpu_outside_before_ = {};
    before_ = totals();
    layer_marks_.clear();
    wait_for([&](auto done) {
      executor_.run(
          *planner, router_, [this](const host::OperationRecord& r) { observe(r); }, std::move(done));
    });
    estimator_.add(executor_.report());
  }

  /// The state that the steps skipped since the last group would have left.
  void materialise(const host::SampledGroup& group) {
    const auto& prompts = setup_.plan.workload.prompt_tokens;
    for (std::uint32_t i = 0; i < platform_.drives(); ++i)
      for (std::uint32_t s = 0; s < prompts.size(); ++s)
        for (std::uint32_t layer = 0; layer < group.layers; ++layer)
          platform_.drive(i).materialise(SequenceId{s}, LayerId{layer}, prompts[s] + group.first_step);
  }

  PhaseTotals totals() {
    PhaseTotals sum = totals_of(platform_);
    sum.gpu_busy_s = gpu_busy_.seconds();
    return sum;
  }

  void observe(const host::OperationRecord& record) {
    if (hooks_.operation) hooks_.operation(record);
    if (record.resource.kind == host::ResourceKind::gpu) {
      gpu_busy_ += record.end - record.start;
      if (!record.tag.layer) gpu_outside_ += record.end - record.start;
    }
    if (record.kind == host::OpKind::append_kv) layer_marks_[record.tag.layer->value] = totals();
    if (record.kind != host::OpKind::sample) return;
    // A step ends with the last of its mini-batches; one with short prompts may be steps ahead of another.
    const bool prefill = record.tag.phase == host::Phase::prefill;
    std::uint32_t& parts_done = samples_[prefill ? 0 : record.tag.step + std::uint64_t{1}];
    if (++parts_done != std::max<std::uint32_t>(1, setup_.plan.system.mini_batches)) return;
    const PhaseTotals now = totals();
    const bool measured = !prefill && record.tag.step >= group_->first_measured() &&
                          record.tag.step < group_->first_measured() + group_->measured;
    if (prefill) end_prefill(now);
    if (measured) {
      measured_.push_back(now - before_);
      gpu_outside_layers_.push_back((gpu_outside_ - gpu_outside_before_).seconds());
    }
    before_ = now;
    gpu_outside_before_ = gpu_outside_;
    ++steps_;
    if (hooks_.progress) {
      std::size_t total = 0;
      for (const host::SampledGroup& group : plan_.groups()) total += group.steps() + (group.after_prefill ? 1 : 0);
      hooks_.progress(steps_, total);
    }
  }

  /// Further layers cost what a layer does once the pipeline is full: between the first and the last layer whose K and
  /// V had arrived when the prefill ended.
  void end_prefill(const PhaseTotals& now) {
    prefill_ = now - before_;
    const double missing = double(plan_.model_layers()) - plan_.groups().front().layers;
    if (missing == 0) return;
    const auto first = layer_marks_.begin();
    const auto last = std::prev(layer_marks_.end());
    const bool steady = layer_marks_.size() >= 2;
    const PhaseTotals more = steady ? last->second - first->second : prefill_;
    const double layers = steady ? double(last->first - first->first) : double(plan_.groups().front().layers);
    prefill_ = combine(prefill_, missing / layers, more);
  }

  const GenerationSetup& setup_;
  const GenerationHooks& hooks_;
  platform::Platform& platform_;
  std::unique_ptr<ftl::KvMappingPolicy> policy_;  ///< of a drive, to ask what it would do
  ftl::KvShape kv_shape_;
  ftl::KvLayout layout_;
  host::KvGrouping grouping_;
  host::SamplingPlan plan_;
  host::GenerationEstimator estimator_;
  host::GpuBackend gpu_;
  host::LinkBackend link_;
  host::ExecutorModule executor_;
  host::DriveCommands commands_;
  host::DriveKvBackend drives_;
  host::Router router_;
  sc_core::sc_event continue_;

  const host::SampledGroup* group_ = nullptr;
  SimTime gpu_busy_;
  SimTime gpu_outside_;  ///< of gpu_busy_: embedding and sampling
  SimTime gpu_outside_before_;
  std::vector<double> gpu_outside_layers_;          ///< [measured step], seconds
  std::map<std::uint64_t, std::uint32_t> samples_;  ///< of the prefill, and of decode steps from 1 on
  std::size_t steps_ = 0;
  PhaseTotals before_;
  PhaseTotals prefill_;
  std::map<std::uint32_t, PhaseTotals> layer_marks_;  ///< by layer: when its K and V were in the drives
  std::vector<PhaseTotals> measured_;
  bool finished_ = false;
  std::exception_ptr failure_;
};

}  // namespace

GenerationOutcome run_generation(const GenerationSetup& setup, const GenerationHooks& hooks) {
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
    out.simulated_page_ops += drive.counters().page_ops;
    out.integrity_errors += drive.backing_store().integrity_errors();
    for (const ftl::IntegrityError& error : drive.backing_store().kept_integrity_errors())
      out.integrity_messages.push_back(fmt::format("drive {}: {}", i, ftl::to_string(error)));
    Statistics statistics;
    drive.register_statistics(statistics);
    out.drive_statistics.push_back(statistics.dump());
    out.dram_peak = std::max(out.dram_peak, drive.dram().peak());
    out.requests_issued += platform.driver(i).issued();
    out.requests_completed += platform.driver(i).completed();
  }
  return out;
}

}  // namespace csdsim::experiment
