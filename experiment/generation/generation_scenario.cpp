#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "experiment/block_io/background_io.h"
#include "experiment/checkpoint/loaded_model.h"
#include "experiment/checkpoint/operator_times.h"
#include "experiment/checkpoint/token_record.h"
#include "experiment/checkpoint/trained_predictor.h"
#include "experiment/generation/generation_result.h"
#include "experiment/generation/generation_setup.h"
#include "experiment/generation/generation_workload.h"
#include "experiment/generation/modelled_sources.h"
#include "experiment/generation/planned_result.h"
#include "experiment/generation/request_result.h"
#include "experiment/measure/host_time.h"
#include "experiment/memory/kv_format.h"
#include "experiment/result.h"
#include "experiment/runner.h"
#include "host_runtime/core/carried/decoder_data.h"
#include "host_runtime/core/carried/host_reference.h"
#include "host_runtime/core/plan/searched_system.h"
#include "host_runtime/core/plan/tiered_kv_planner.h"
#include "host_runtime/core/systems/systems.h"
#include "host_runtime/sysc/sums_on_host.h"
#include "report/run_trace.h"

namespace csdsim::experiment {

using nlohmann::ordered_json;

namespace {

/// The plan that a run on the host follows. Dense attention has a reference that shares nothing with the plan of the
/// system: K and V stay on the GPU, which attends. Other methods, partial outputs of several drives and neurons
/// that are chosen (`asked`) follow the system's own plan, in which the host does the work of the drives.
std::unique_ptr<host::Planner> plan_on_host(const GenerationSetup& setup, bool asked) {
  const RowQuantisation format = setup.system->traits().kv_format;
  // Quantised and recomputed K and V of a step are not the same, so the host has to recompute those of the plan.
  const bool follows_plan = format.quantised() && setup.system->traits().recomputes_kv;
  if (setup.system->traits().method.name != "dense" || kv_division(setup).by_tokens() || asked || follows_plan)
    return setup.system->plan(setup.plan);
  const host::TieredKv on_gpu{.shards = host::tier_heads(setup.plan.model.kv_heads, Ratio{1, 1}, Ratio{0, 1}),
                              .format = format};
  return std::make_unique<host::TieredKvPlanner>(setup.plan, on_gpu);
}

/// What the features ask of a run on the host that a carried run is compared with.
host::HostRun on_host(const host::OffloadSystem& system, const host::PlannerInputs& inputs) {
  host::HostRun all;
  for (const auto& feature : system.features(inputs)) {
    const host::HostRun one = feature->on_host();
    all.follows_plan |= one.follows_plan;
    all.needs_drives |= one.needs_drives;
    all.speculation &= one.speculation;
    if (one.weights.quantised()) all.weights = one.weights;
  }
  return all;
}

/// One run of a scenario that generates: the drive's, and the ways to decode that it is compared with.
class GenerationScenario {
 public:
  GenerationScenario(const scenario::Scenario& s, const scenario::RunOptions& options);

  scenario::RunResult run();

 private:
  /// With a record, of the tokens that it chooses.
  std::unique_ptr<host::DecoderData> decoder_data(const GenerationSetup& setup, TokenRecord* record = nullptr);
  /// What features find beside the decoder.
  host::CheckpointSources checkpoint_sources(const GenerationSetup& setup);
  /// Fills the inputs of a carried run's plan that depend on the checkpoint.
  void complete_plan(GenerationSetup& setup);
  /// Decodes by a system; `data` gets the decoder's part of a carried run.
  GenerationOutcome decode(const std::shared_ptr<const host::OffloadSystem>& system, const GenerationHooks& hooks,
                           std::unique_ptr<host::DecoderData>& data, TokenRecord* record = nullptr);
  std::unique_ptr<host::DecoderData> decode_on_host(TokenRecord* record = nullptr);

  scenario::RunResult run_on_host_only();
  void add_text(Tokens generated);
  void add_digest(const host::DecoderData& data);
  void add_remarks();
  void compare(const host::DecoderData& data, std::string_view with);
  void check_outcome(const GenerationOutcome& out);
  void verify(const host::RunFeatures& features);

  const WallClock clock_;
  const scenario::Scenario& scenario_;
  const scenario::RunOptions& options_;
  const GenerationWorkload& workload_;
  const bool carried_;
  host::SamplingOptions sampling_;
  std::unique_ptr<LoadedModel> model_;                   ///< null where nothing of a checkpoint is needed
  std::shared_ptr<const host::LowRankWeights> trained_;  ///< the predictor beside it, if a system asks it
  Tokens prompts_;
  host::BatchLengths lengths_;
  std::shared_ptr<host::OperatorTable> gpu_times_;
  std::optional<TokenRecord> record_;  ///< if the result states more of the tokens than which they are
  scenario::RunResult result_;
};

GenerationScenario::GenerationScenario(const scenario::Scenario& s, const scenario::RunOptions& options)
    : scenario_(s),
      options_(options),
      workload_(generation_of(s)),
      carried_(s.simulation.data == ftl::DataMode::carried),
      sampling_{.temperature = static_cast<float>(workload_.temperature.value()),
                .top_k = workload_.top_k.value_or(0),
                .top_p = static_cast<float>(workload_.top_p.value()),
                .seed = s.seed},
      lengths_(workload_.lengths()) {
  if (!carried_ && !workload_.prompts) return;
  model_ = std::make_unique<LoadedModel>(s.model.path.value().path, options.processor, s.model.fatrelu,
                                         on_host(*s.system, planned_run(s, lengths_)).weights);
  if (!options.prompt_tokens.empty())
    prompts_ = options.prompt_tokens;
  else if (options.prompt_text)
    prompts_ = {model_->tokenizer().encode(*options.prompt_text)};
  else
    prompts_ = workload_.prompts ? read_prompts(workload_.prompts->path, model_->tokenizer())
                                 : make_prompts(workload_, model_->checkpoint.config.vocab, s.seed);
  lengths_.set_prompts(lengths_of(prompts_));
  if (options.logprobs || options.logits)
    record_.emplace(prompts_.size(), model_->checkpoint.config.vocab, options.logprobs, options.logits.has_value());
}

std::unique_ptr<host::DecoderData> GenerationScenario::decoder_data(const GenerationSetup& setup, TokenRecord* record) {
  std::vector<std::uint32_t> outputs;
  for (std::size_t i = 0; i < prompts_.size(); ++i) outputs.push_back(lengths_.output_of(i));
  auto data = std::make_unique<host::DecoderData>(model_->decoder(), prompts_, outputs, setup.plan.mini_batches,
                                                  sampling_, kv_division(setup));
  if (record != nullptr)
    data->set_watcher([record](std::uint32_t sequence, std::span<const float> logits, host::TokenId chosen) {
      record->add(sequence, logits, chosen);
    });
  data->set_kv_format(setup.system->traits().kv_format);
  host::PlannerInputs inputs = setup.plan;
  inputs.drives = setup.platform.drives;
  data->set_features(host::features_of(*setup.system, inputs, setup.lost_kv), checkpoint_sources(setup));
  return data;
}

host::CheckpointSources GenerationScenario::checkpoint_sources(const GenerationSetup& setup) {
  return {.weights = model_->checkpoint.weights.get(),
          .trained =
              [this] {
                if (!trained_) trained_ = trained_predictor(scenario_);
                return trained_;
              },
          .sums = host::sums_on_host(setup.platform.drive.nvme.controller.mdts)};
}

void GenerationScenario::complete_plan(GenerationSetup& setup) {
  if (!carried_) return;
  for (const auto& feature : setup.system->features(setup.plan))
    feature->complete(setup.plan, checkpoint_sources(setup));
}

GenerationOutcome GenerationScenario::decode(const std::shared_ptr<const host::OffloadSystem>& system,
                                             const GenerationHooks& hooks, std::unique_ptr<host::DecoderData>& data,
                                             TokenRecord* record) {
  GenerationSetup setup = generation_setup(scenario_, lengths_.prompts());
  setup.system = system;
  setup.gpu_times = gpu_times_;
  if (!system->traits().verifies_drafts) setup.plan.workload.speculation = {};
  complete_plan(setup);
  const std::unique_ptr<engine::SelectionSource> selection = make_selection(scenario_, setup);
  setup.platform.drive.selection = selection.get();
  if (!carried_ && system->traits().chooses_tokens) setup.sources.tokens = important_tokens(scenario_);
  if (scenario_.simulation.neurons) setup.sources.neurons = recorded_neurons(scenario_);
  if (carried_) {
    data = decoder_data(setup, record);
    setup.data = data.get();
  }
  return run_generation(setup, hooks);
}

std::unique_ptr<host::DecoderData> GenerationScenario::decode_on_host(TokenRecord* record) {
  GenerationSetup setup = generation_setup(scenario_, lengths_.prompts());
  // A drive's partial output is rounded before it is merged, and sums of several drives have an order: to get the same
  // bits, the host computes part by part, too.
  const host::HostRun host = on_host(*setup.system, setup.plan);
  if (!host.needs_drives) setup.platform.drives = setup.plan.drives = kv_division(setup).token_parts();
  complete_plan(setup);
  if (!host.speculation) setup.plan.workload.speculation = {};
  auto data = decoder_data(setup, record);
  setup.plan.progress = data->progress();
  setup.plan.span = {.prefill = true, .first_step = 0, .decode_steps = setup.plan.workload.decode_steps()};
  const std::unique_ptr<host::Planner> planner = plan_on_host(setup, host.follows_plan);
  host::run_on_host(*planner, model_->checkpoint.config, static_cast<std::uint32_t>(prompts_.size()), *data,
                    host::sums_on_host(setup.platform.drive.nvme.controller.mdts));
  return data;
}

/// Prompts, tokens and, where the checkpoint has a tokenizer, their text.
void GenerationScenario::add_text(Tokens generated) {
  if (options_.stop_at_eos) {
    const std::size_t ended = end_texts(generated, scenario_.model.path.value().path, record_ ? &*record_ : nullptr);
    result_.document["stats"]["ended_texts"] = ended;
    result_.meaning += fmt::format(" {} of {} texts ended with an end token; what followed was computed and left out.",
                                   ended, generated.size());
  }
  result_.document["prompt_tokens"] = to_json(prompts_);
  result_.document["tokens"] = to_json(generated);
  if (options_.logprobs) result_.document["logprobs"] = record_->logprobs();
  if (options_.logits) record_->write_logits(*options_.logits);
  add_texts(*model_, generated, result_);
}

void GenerationScenario::add_digest(const host::DecoderData& data) {
  result_.document["stats"]["attention_digest"] = fmt::format("{:016x}", data.attention_digest());
}

scenario::RunResult GenerationScenario::run_on_host_only() {
  result_.document["metrics"] = ordered_json::object();
  result_.meaning = "Attention ran on the host: nothing was simulated.";
  if (options_.processor != host::Processor::cpu) {
    if (record_) throw UserError("--logprobs and --logits: attention on a GPU of this machine records no logits");
    const host::OffloadSystem& system = *scenario_.system;
    if (system.traits().kv_format.quantised())
      throw UserError("system.kv_bits: attention on a GPU of this machine keeps K and V of 16 bits");
    Tokens generated =
        generate_on_gpu(options_.processor, model_->checkpoint.config, model_->weights(), prompts_,
                        {.max_new_tokens = lengths_.output_tokens, .sampling = sampling_, .stop = {}},
                        host::configure_method(system.traits().method.name, system.traits().method.settings,
                                               model_->checkpoint.config.head_dim));
    for (std::size_t i = 0; i < generated.size(); ++i) generated[i].resize(lengths_.output_of(i));
    add_text(generated);
  } else {
    const std::unique_ptr<host::DecoderData> data = decode_on_host(record_ ? &*record_ : nullptr);
    add_text(data->generated());
    add_digest(*data);
  }
  result_.document["wall"] = wall_figures(clock_, 0);
  return std::move(result_);
}

/// What the system's parameters came to, and where its selections are from.
void GenerationScenario::add_remarks() {
  ordered_json& stats = result_.document["stats"];
  const host::ModelShape model = scenario_.model.shape();
  const auto longest = static_cast<std::uint32_t>(lengths_.longest_sequence() - 1);
  if (const auto* const searched = dynamic_cast<const host::SearchedSystem*>(&*scenario_.system))
    for (const auto& [key, text] : searched->remarks(model, longest)) stats[key] = text;
  const host::SystemMethod method = scenario_.system->traits().method;
  if (method.describe) stats[std::string(method.name)] = method.describe(model, longest);
  if (!carried_ && scenario_.system->traits().chooses_tokens)
    stats["tokens"] = std::holds_alternative<scenario::RecordedTokensConfig>(scenario_.simulation.tokens)
                          ? "recorded on a checkpoint, see scenario"
                          : "modelled: locality fitted to a recording, see scenario";
  if (carried_ || !method.sparse_budget(model, longest)) return;
  stats["selection"] = std::holds_alternative<scenario::RecordedSelectionConfig>(scenario_.simulation.selection)
                           ? "recorded on a checkpoint, see scenario"
                           : "clustered: share of token pages touched is assumed, see scenario";
}

/// Decodes the same prompts in another way and says how far the tokens agree. With attention on the host they must.
void GenerationScenario::compare(const host::DecoderData& data, std::string_view with) {
  const std::string name(with);
  const bool on_host = with == scenario::kHostComparison;
  std::unique_ptr<host::DecoderData> other;
  ordered_json& entry = result_.document["comparison"][name];
  entry["same_method"] = true;
  if (on_host) {
    other = decode_on_host();
  } else {
    // The scenario's own parameters where it is of that kind, the defaults otherwise.
    const std::shared_ptr<const host::OffloadSystem> system =
        with == scenario_.system.kind() ? scenario_.system->clone() : scenario_.system.kinds().make(with);
    entry["same_method"] = system->traits().method.name == scenario_.system->traits().method.name;
    const GenerationOutcome alternative = decode(system, {}, other);
    ordered_json metrics;
    add_metrics(metrics, speed_metrics(), MeasuredGeneration(alternative, scenario_, *system));
    metrics["bytes_flash_channel"] = alternative.prefill.channel_bytes + alternative.decode.channel_bytes;
    entry["metrics"] = std::move(metrics);
  }
  const ordered_json same = agreement(data.generated(), other->generated());
  for (const auto& [key, value] : same.items()) entry[key] = value;
  entry["attention_outputs_identical"] = other->attention_digest() == data.attention_digest();
  result_.meaning += fmt::format(" Against {}{}: {} of {} tokens equal.", name,
                                 entry["same_method"] == true ? "" : " (another attention method)",
                                 entry["tokens_equal"].dump(), entry["tokens_compared"].dump());
  // Where the drive has dropped tokens, a difference is what that cost.
  const bool dropped = result_.document["metrics"].value("kv_rows_dropped", 0) > 0;
  if (on_host && !dropped && entry["tokens_equal"] != entry["tokens_compared"])
    result_.failure = fmt::format("attention in the drive and on the host give different tokens, first at {}",
                                  entry["first_difference"].dump());
}

void GenerationScenario::check_outcome(const GenerationOutcome& out) {
  if (out.integrity_errors > 0)
    result_.failure = fmt::format("{} pages read were not what was written there; the first: {}", out.integrity_errors,
                                  out.integrity_messages.front());
  if (out.requests_issued != out.requests_completed)
    result_.failure =
        fmt::format("{} commands were issued and {} completed", out.requests_issued, out.requests_completed);
}

void GenerationScenario::verify(const host::RunFeatures& features) {
  for (const auto& feature : features)
    if (std::string wrong = feature->verify(result_.document["stats"]); !wrong.empty())
      result_.failure = std::move(wrong);
}

scenario::RunResult GenerationScenario::run() {
  if (!scenario_.attention_on_host) gpu_times_ = operator_times(scenario_.platform.gpu, scenario_.model.shape());
  result_.document = result_frame(scenario_);
  if (scenario_.attention_on_host) return run_on_host_only();
  std::optional<report::RunTrace> trace;
  if (options_.trace) trace.emplace(*options_.trace, options_.trace_limit);
  GenerationHooks hooks;
  if (trace) {
    hooks.operation = [&](const host::OperationRecord& r) { trace->add(r); };
    hooks.shared_link = [&](const auto& link, const auto& period) { trace->add_shared(link.name(), period); };
  }
  if (options_.progress)
    hooks.progress = [&](std::size_t done, std::size_t total) {
      options_.progress(workload_.served() ? "requests" : "steps", done, total);
    };
  hooks.notice = options_.notice;
  hooks.waveforms = options_.waveforms;
  std::optional<BackgroundIo> background;
  if (workload_.background) background.emplace(scenario_, *workload_.background);
  if (background) hooks.after_last = [&](std::function<void()> done) { background->stop(std::move(done)); };
  hooks.before_start = [&](platform::Platform& platform) {
    if (trace) trace->watch(platform);
    if (background) background->join(platform);
  };
  hooks.before_end = [&](platform::Platform& platform) {
    if (trace) trace->leave(platform);
    if (background) background->leave();
  };
  std::unique_ptr<host::DecoderData> data;
  const WallClock running;
  const GenerationOutcome out = decode(scenario_.system->clone(), hooks, data, record_ ? &*record_ : nullptr);
  const double run_s = running.seconds();
  const auto device = carried_ ? model_->decoder().backend().device_times() : std::nullopt;
  if (trace) trace->close(options_.notice);

  add_metrics(result_.document, out, scenario_);
  add_sizes(result_.document["metrics"], scenario_, lengths_);
  if (out.requests) result_.files.push_back({.name = "requests.csv", .text = requests_csv(*out.requests)});
  if (background) result_.failure = background->add_result(result_.document);
  result_.document["stats"] = {{"simulated", out.statement},
                               {"simulated_dram_peak_bytes", out.dram_peak.value},
                               {"integrity_errors", out.integrity_errors},
                               {"drives", out.drive_statistics}};
  if (scenario_.platform.device.has_engine()) result_.document["resources"] = fpga_resources(scenario_.platform.device);
  if (out.files) result_.document["stats"]["files"] = to_json(*out.files);
  if (!out.shared_links.empty()) result_.document["stats"]["shared_links"] = out.shared_links;
  result_.meaning = meaning(out, result_.document);
  add_remarks();
  if (carried_) {
    add_text(data->generated());
    add_digest(*data);
  }
  if (data) verify(*data->features());
  for (const std::string& other : scenario_.simulation.compare) compare(*data, other);
  if (gpu_times_) result_.document["gpu_operators"] = to_json(*gpu_times_);
  result_.document["wall"] = wall_figures(clock_, out.simulated_page_ops);
  if (device) add_host_time(result_, *device, run_s, out);
  check_outcome(out);
  return std::move(result_);
}

}  // namespace

scenario::RunResult GenerationWorkload::run(const scenario::Scenario& s, const scenario::RunOptions& options) const {
  return GenerationScenario(s, options).run();
}

}  // namespace csdsim::experiment
