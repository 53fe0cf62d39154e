#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "experiment/assemble.h"
#include "experiment/evaluation/recorded_selection.h"
#include "experiment/generation/background_io.h"
#include "experiment/generation/generation_result.h"
#include "experiment/generation/loaded_model.h"
#include "experiment/generation/operator_times.h"
#include "experiment/kinds.h"
#include "experiment/result.h"
#include "host_runtime/core/carried/decoder_data.h"
#include "host_runtime/core/carried/host_reference.h"
#include "host_runtime/core/planner/systems/systems.h"
#include "report/operation_trace.h"

namespace csdsim::experiment {

using host::TokenId;
using nlohmann::ordered_json;

namespace {

/// The system's attention as a method of the host.
host::ConfiguredMethod method_of(const scenario::SystemConfig& system, std::uint32_t head_dim) {
  const auto* const sparf = std::get_if<scenario::InstinferSparf>(&system);
  if (sparf == nullptr) return host::configure_method("dense", {}, head_dim);
  const host::SparfParameters p = scenario::sparf_parameters(*sparf);
  const bool traffic = p.mode == host::RatioMode::traffic;
  return host::configure_method("sparf",
                                {.ratio = Ratio::of(p.ratio.numerator, p.ratio.denominator),
                                 .meaning = traffic ? host::RatioMeaning::traffic : host::RatioMeaning::tokens,
                                 .r = p.r,
                                 .k = p.k,
                                 .local = p.local},
                                head_dim);
}

/// Tokens and, where the checkpoint has a tokenizer, their text.
void add_text(RunResult& result, const Tokens& generated, const LoadedModel& model) {
  result.document["tokens"] = to_json(generated);
  if (model.no_tokenizer().empty()) {
    ordered_json texts = ordered_json::array();
    for (const auto& tokens : generated) texts.push_back(model.text(tokens));
    result.document["text"] = std::move(texts);
  } else {
    result.meaning += fmt::format(" No text: {}.", model.no_tokenizer());
  }
}

void add_digest(RunResult& result, const host::DecoderData& data) {
  result.document["stats"]["attention_digest"] = fmt::format("{:016x}", data.attention_digest());
}

/// What SparF heads touch where that is not computed. Checked here that a recording is of the run's budget.
std::unique_ptr<engine::SelectionSource> make_selection(const scenario::Scenario& s, const GenerationSetup& setup) {
  if (const auto* recorded = std::get_if<scenario::RecordedSelection>(&s.simulation.selection);
      recorded && s.simulation.data == scenario::DataMode::timing) {
    auto selection = std::make_unique<engine::RecordedSelection>(read_selection(recorded->file.path));
    if (!std::holds_alternative<scenario::InstinferSparf>(s.system)) return selection;
    const host::PlannerInputs& plan = setup.plan;
    const host::SparfBudget budget(plan.system.sparf, plan.model.head_dim);
    for (const std::uint32_t prompt : plan.workload.prompt_tokens)
      for (const std::uint32_t context : {prompt + 1, prompt + plan.workload.output_tokens})
        selection->check(context, plan.model.head_dim,
                         {.r = budget.components(), .k = budget.top_k(context), .l = budget.local(context)});
    return selection;
  }
  const auto* clustered = std::get_if<scenario::ClusteredSelection>(&s.simulation.selection);
  return std::make_unique<engine::ClusteredSelection>(
      clustered ? clustered->token_page_fraction.value() : scenario::ClusteredSelection{}.token_page_fraction.value(),
      s.seed);
}

std::vector<std::uint32_t> lengths_of(const Tokens& prompts) {
  std::vector<std::uint32_t> lengths;
  for (const auto& prompt : prompts) lengths.push_back(static_cast<std::uint32_t>(prompt.size()));
  return lengths;
}

}  // namespace

RunResult run_generation_scenario(const scenario::Scenario& s, const RunOptions& options) {
  const WallClock clock;
  const auto& workload = std::get<scenario::GenerationWorkload>(s.workload);
  const bool carried = s.simulation.data == scenario::DataMode::carried;

  std::unique_ptr<LoadedModel> model;
  Tokens prompts;
  std::vector<std::uint32_t> lengths(workload.batch, workload.input_tokens);
  if (carried || workload.prompts) {
    model = std::make_unique<LoadedModel>(s.model.path.value().path, options.processor);
    if (options.prompt_tokens)
      prompts = {*options.prompt_tokens};
    else if (options.prompt_text)
      prompts = {model->tokenizer().encode(*options.prompt_text)};
    else
      prompts = workload.prompts ? read_prompts(workload.prompts->path, model->tokenizer())
                                 : make_prompts(workload, model->checkpoint.config.vocab, s.seed);
    lengths = lengths_of(prompts);
  }

  const host::SamplingOptions sampling{.temperature = static_cast<float>(workload.temperature.value()),
                                       .top_k = workload.top_k.value_or(0),
                                       .top_p = static_cast<float>(workload.top_p.value()),
                                       .seed = s.seed};
  const std::shared_ptr<host::OperatorTable> gpu_times =
      options.attention_on_host ? nullptr : operator_times(s.platform.gpu);
  const auto decode = [&](const scenario::SystemConfig& system, const GenerationHooks& hooks,
                          std::unique_ptr<host::DecoderData>& data) {
    scenario::Scenario variant = s;
    variant.system = system;
    GenerationSetup setup = generation_setup(variant, lengths);
    setup.gpu_times = gpu_times;
    const std::unique_ptr<engine::SelectionSource> selection = make_selection(variant, setup);
    setup.platform.drive.selection = selection.get();
    if (carried) {
      data = std::make_unique<host::DecoderData>(model->decoder(), prompts, workload.output_tokens,
                                                 setup.plan.system.mini_batches, sampling);
      setup.data = data.get();
    }
    return run_generation(setup, hooks);
  };

  const auto decode_on_host = [&] {
    GenerationSetup setup = generation_setup(s, lengths);
    setup.plan.drives = 1;
    setup.plan.span = {.prefill = true, .first_step = 0, .decode_steps = workload.output_tokens - 1};
    auto data = std::make_unique<host::DecoderData>(model->decoder(), prompts, workload.output_tokens,
                                                    setup.plan.system.mini_batches, sampling);
    const std::unique_ptr<host::Planner> planner = host::make_planner(setup.system, setup.plan);
    host::run_on_host(*planner, model->checkpoint.config, static_cast<std::uint32_t>(prompts.size()), *data);
    return data;
  };

  RunResult result;
  result.document = result_frame(s);
  if (options.attention_on_host) {
    result.document["metrics"] = ordered_json::object();
    result.meaning = "Attention ran on the host: nothing was simulated.";
    if (options.processor != Processor::cpu) {
      add_text(result,
               generate_on_gpu(options.processor, model->checkpoint.config, *model->checkpoint.weights, prompts,
                               {.max_new_tokens = workload.output_tokens, .sampling = sampling, .stop = {}},
                               method_of(s.system, model->checkpoint.config.head_dim)),
               *model);
    } else {
      const std::unique_ptr<host::DecoderData> data = decode_on_host();
      add_text(result, data->generated(), *model);
      add_digest(result, *data);
    }
    result.document["wall"] = wall_figures(clock, 0);
    return result;
  }

  std::unique_ptr<report::OperationTrace> trace;
  if (options.trace) trace = std::make_unique<report::OperationTrace>(*options.trace);
  GenerationHooks hooks;
  if (trace) hooks.operation = [&](const host::OperationRecord& r) { trace->add(r); };
  if (options.progress)
    hooks.progress = [&](std::size_t done, std::size_t total) { options.progress("steps", done, total); };
  std::unique_ptr<BackgroundIo> background;
  if (workload.background) {
    background = std::make_unique<BackgroundIo>(s, *workload.background);
    hooks.before_start = [&](platform::Platform& platform) { background->join(platform); };
    hooks.after_last = [&](std::function<void()> done) { background->stop(std::move(done)); };
    hooks.before_end = [&] { background->leave(); };
  }
  std::unique_ptr<host::DecoderData> data;
  const GenerationOutcome out = decode(s.system, hooks, data);
  if (trace) trace->close();

  add_metrics(result.document, out, s);
  if (background) result.failure = background->add_result(result.document);
  result.document["stats"] = {{"simulated", out.statement},
                              {"simulated_dram_peak_bytes", out.dram_peak.value},
                              {"integrity_errors", out.integrity_errors},
                              {"drives", out.drive_statistics}};
  result.meaning = meaning(out, result.document);
  if (std::holds_alternative<scenario::InstinferSparf>(s.system)) {
    const host::PlannerInputs plan = generation_setup(s, lengths).plan;
    const std::uint32_t longest = *std::max_element(lengths.begin(), lengths.end()) + workload.output_tokens - 1;
    result.document["stats"]["sparf"] = host::SparfBudget(plan.system.sparf, plan.model.head_dim).describe(longest);
    if (!carried)
      result.document["stats"]["selection"] =
          std::holds_alternative<scenario::RecordedSelection>(s.simulation.selection)
              ? "recorded on a checkpoint, see scenario"
              : "clustered: share of token pages touched is assumed, see scenario";
  }

  if (carried) {
    add_text(result, data->generated(), *model);
    add_digest(result, *data);
  }

  for (const scenario::Comparison other : s.simulation.compare) {
    std::unique_ptr<host::DecoderData> reference;
    std::string name;
    bool must_agree = false;
    if (other == scenario::Comparison::host) {
      name = "host";
      must_agree = true;
      reference = decode_on_host();
    } else {
      const bool dense = other == scenario::Comparison::instinfer_dense;
      name = dense ? scenario::InstinferDense::kKind : scenario::InstinferSparf::kKind;
      // The scenario's own parameters where it is of that kind, the defaults otherwise.
      scenario::SystemConfig system = s.system;
      if (dense != std::holds_alternative<scenario::InstinferDense>(s.system))
        system = dense ? scenario::SystemConfig(scenario::InstinferDense{})
                       : scenario::SystemConfig(scenario::InstinferSparf{});
      const GenerationOutcome alternative = decode(system, {}, reference);
      ordered_json metrics;
      for (const auto& [metric, value] : host::generation_metrics(alternative.times).flat()) metrics[metric] = value;
      metrics["bytes_flash_channel"] = alternative.prefill.flash_channel_bytes + alternative.decode.flash_channel_bytes;
      result.document["comparison"][name]["metrics"] = std::move(metrics);
    }
    ordered_json& entry = result.document["comparison"][name];
    const ordered_json same = agreement(data->generated(), reference->generated());
    for (const auto& [key, value] : same.items()) entry[key] = value;
    const bool identical = reference->attention_digest() == data->attention_digest();
    entry["attention_outputs_identical"] = identical;
    result.meaning +=
        fmt::format(" Against {}: {} of {} tokens equal.", name, entry["tokens_equal"].get<std::uint64_t>(),
                    entry["tokens_compared"].get<std::uint64_t>());
    if (must_agree && entry["tokens_equal"] != entry["tokens_compared"])
      result.failure = fmt::format("attention in the drive and on the host give different tokens, first at {}",
                                   entry["first_difference"].dump());
  }

  if (gpu_times) result.document["gpu_operators"] = to_json(*gpu_times);
  result.document["wall"] = wall_figures(clock, out.simulated_page_ops);
  if (out.integrity_errors > 0)
    result.failure = fmt::format("{} pages read were not what was written there; the first: {}", out.integrity_errors,
                                 out.integrity_messages.front());
  if (out.requests_issued != out.requests_completed)
    result.failure =
        fmt::format("{} commands were issued and {} completed", out.requests_issued, out.requests_completed);
  return result;
}

}  // namespace csdsim::experiment
