#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <memory>

#include "base/error.h"
#include "base/rng.h"
#include "base/trace.h"
#include "csd_model/eval/recorded_selection.h"
#include "csd_model/generation/decoder_data.h"
#include "csd_model/generation/host_backend.h"
#include "csd_model/runner/assemble.h"
#include "csd_model/runner/background_io.h"
#include "csd_model/runner/kinds.h"
#include "csd_model/runner/operator_times.h"
#include "csd_model/runner/result.h"
#include "host_runtime/checkpoint/checkpoint.h"
#include "host_runtime/core/planner/systems/systems.h"

namespace csd_model {

using namespace csdsim;
using host::TokenId;
using nlohmann::ordered_json;

namespace {

using Tokens = std::vector<std::vector<TokenId>>;

/// A checkpoint that is ready to decode.
class LoadedModel {
 public:
  host::Checkpoint checkpoint;

  LoadedModel(const std::filesystem::path& directory, Processor processor)
      : checkpoint(host::open_checkpoint(directory)), processor_(processor) {
    try {
      tokenizer_.emplace(host::open_tokenizer(directory, checkpoint.config));
    } catch (const UserError& error) {
      no_tokenizer_ = error.what();
    }
  }

  /// Made when first asked for: what runs on a GPU from end to end does not need it.
  host::Decoder& decoder() {
    if (!decoder_) {
      backend_ = make_backend(processor_);
      decoder_ = host::make_decoder(checkpoint.config, *checkpoint.weights, *backend_);
    }
    return *decoder_;
  }

  /// UserError if the checkpoint has none that can be read: only text needs it.
  const host::Tokenizer& tokenizer() const {
    if (!tokenizer_) throw UserError(no_tokenizer_);
    return *tokenizer_;
  }
  /// Why there is no text; empty if there is.
  const std::string& no_tokenizer() const { return no_tokenizer_; }

  /// Ids that the tokenizer does not know (a padded vocabulary, random weights) become U+FFFD.
  std::string text(const std::vector<TokenId>& tokens) const {
    std::string text;
    for (auto from = tokens.begin(); from != tokens.end();) {
      const auto to = std::find_if(from, tokens.end(), [&](TokenId t) { return t.value >= tokenizer().vocabulary(); });
      if (to != from) text += tokenizer().decode({from, to});
      from = to;
      if (to != tokens.end()) text += "\uFFFD", ++from;
    }
    return text;
  }

 private:
  Processor processor_;
  std::unique_ptr<host::Backend> backend_;
  std::unique_ptr<host::Decoder> decoder_;
  std::optional<host::Tokenizer> tokenizer_;
  std::string no_tokenizer_;
};

Tokens read_prompts(const std::filesystem::path& path, const host::Tokenizer& tokenizer) {
  std::ifstream file(path);
  if (!file) throw UserError(fmt::format("{}: cannot be read", path.string()));
  Tokens prompts;
  std::string line;
  while (std::getline(file, line)) {
    if (line.ends_with('\r')) line.pop_back();
    if (line.find_first_not_of(" \t") != std::string::npos) prompts.push_back(tokenizer.encode(line));
  }
  if (prompts.empty()) throw UserError(fmt::format("{}: holds no prompt; write one a line", path.string()));
  return prompts;
}

/// Prompts of a given length for a workload that names none: token ids drawn from the seed.
Tokens make_prompts(const scenario::GenerationWorkload& workload, std::uint32_t vocabulary, std::uint64_t seed) {
  Rng rng(seed, "prompts");
  Tokens prompts(workload.batch);
  for (auto& prompt : prompts)
    for (std::uint32_t i = 0; i < workload.input_tokens; ++i)
      prompt.emplace_back(static_cast<std::uint32_t>(rng.below(vocabulary)));
  return prompts;
}

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

ordered_json to_json(const Tokens& tokens) {
  ordered_json all = ordered_json::array();
  for (const auto& sequence : tokens) {
    ordered_json ids = ordered_json::array();
    for (const TokenId id : sequence) ids.push_back(id.value);
    all.push_back(std::move(ids));
  }
  return all;
}

/// Share of positions at which both agree, and the first at which they do not.
ordered_json agreement(const Tokens& a, const Tokens& b) {
  std::uint64_t same = 0;
  std::uint64_t total = 0;
  ordered_json first = nullptr;
  for (std::size_t s = 0; s < a.size(); ++s)
    for (std::size_t i = 0; i < a[s].size(); ++i) {
      ++total;
      if (a[s][i] == b[s][i]) {
        ++same;
      } else if (first.is_null()) {
        first = {{"prompt", s}, {"token", i}};
      }
    }
  return {{"tokens_compared", total}, {"tokens_equal", same}, {"first_difference", std::move(first)}};
}

/// The operations of a run as a Chrome trace: a row a resource and mini-batch.
class OperationTrace {
 public:
  explicit OperationTrace(const std::filesystem::path& path) : sink_(path) {}
  void add(const host::OperationRecord& r) {
    const auto [process, fresh] = processes_.try_emplace(r.resource, 0);
    if (fresh) process->second = sink_.process(host::resource_name(r.resource));
    const auto key = std::pair(r.resource, r.tag.mini_batch.value);
    auto track = tracks_.find(key);
    if (track == tracks_.end())
      track = tracks_.emplace(key, sink_.track(process->second, fmt::format("mini-batch {}", key.second))).first;
    sink_.complete(track->second, host::operation_name(r.kind, r.tag), r.start, r.end - r.start);
  }
  void close() { sink_.close(); }

 private:
  TraceSink sink_;
  std::map<host::Resource, std::uint32_t> processes_;
  std::map<std::pair<host::Resource, std::uint32_t>, TraceTrack> tracks_;
};

/// Utilisations of a phase, and the resource that bounds it.
ordered_json phase_breakdown(const PhaseTotals& t, const scenario::Scenario& s) {
  const scenario::DeviceConfig& device = s.platform.device;
  const FlashGeometry& g = device.flash.geometry;
  const double drives = device.count;
  const std::pair<const char*, double> shares[] = {
      {"gpu", t.gpu_busy_s / t.seconds},
      {"flash_channels", t.channel_busy_s / (t.seconds * g.channels * drives)},
      {"flash_arrays", t.array_busy_s() / (t.seconds * g.planes() * drives)},
      {"link", std::max(t.to_host_busy_s, t.to_drive_busy_s) / (t.seconds * drives)}};
  ordered_json utilization;
  std::pair<const char*, double> bound = shares[0];
  for (const auto& share : shares) {
    utilization[share.first] = share.second;
    if (share.second > bound.second) bound = share;
  }
  return {{"seconds", t.seconds},
          {"bound_by", bound.first},
          {"utilization", std::move(utilization)},
          {"page_ops", t.page_ops},
          {"bytes_flash_channel", t.flash_channel_bytes},
          {"bytes_engine", t.engine_bytes},
          {"bytes_host_link", t.link_bytes},
          {"flash_program_bytes_per_s", t.programmed_bytes / t.seconds}};
}

void add_metrics(ordered_json& document, const GenerationOutcome& out, const scenario::Scenario& s) {
  ordered_json& metrics = document["metrics"];
  for (const auto& [name, value] : host::generation_metrics(out.times).flat()) metrics[name] = value;
  metrics["bytes_host_link"] = out.prefill.link_bytes + out.decode.link_bytes;
  metrics["bytes_flash_channel"] = out.prefill.flash_channel_bytes + out.decode.flash_channel_bytes;
  metrics["bytes_engine"] = out.prefill.engine_bytes + out.decode.engine_bytes;
  metrics["requests_issued"] = out.requests_issued;
  metrics["requests_completed"] = out.requests_completed;
  metrics["simulated_s"] = out.simulated.seconds();
  metrics["page_ops"] = out.simulated_page_ops;
  if (out.error_estimated) metrics["relative_error_estimate"] = out.relative_error;
  ordered_json& breakdown = document["breakdown"];
  add_energy(document, s, out.energy,
             {.tokens = double(out.times.batch) * out.times.output_tokens, .bytes = out.energy.channel_bytes});
  breakdown["prefill"] = phase_breakdown(out.prefill, s);
  if (out.decode.seconds > 0) {
    breakdown["decode"] = phase_breakdown(out.decode, s);
    ordered_json path;
    for (std::size_t i = 0; i < host::kPathParts; ++i)
      path[std::string(host::kPathPartNames[i])] = out.times.decode_path_s[i];
    breakdown["decode"]["critical_path_s"] = std::move(path);
  }
}

/// "channel-bound: 97 % of channels x bandwidth".
std::string meaning(const GenerationOutcome& out, const ordered_json& document) {
  const ordered_json& breakdown = document["breakdown"];
  const auto share = [](const ordered_json& phase) {
    const std::string bound = phase["bound_by"];
    return fmt::format("{} ({:.0f} % busy)", bound, phase["utilization"][bound].get<double>() * 100);
  };
  const double programmed = breakdown["prefill"]["flash_program_bytes_per_s"];
  const bool programs = breakdown["prefill"]["bound_by"] == "flash_arrays";
  std::string text = fmt::format(
      "Prefill is bound by {}",
      programs ? fmt::format("programming, {:.2f} GB/s ({})", programmed * 1e-9, share(breakdown["prefill"]))
               : share(breakdown["prefill"]));
  if (breakdown.contains("decode")) text += fmt::format(", decode by {}", share(breakdown["decode"]));
  return text + ". " + out.statement + ".";
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

void add_digest(RunResult& result, const DecoderData& data) {
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
                          std::unique_ptr<DecoderData>& data) {
    scenario::Scenario variant = s;
    variant.system = system;
    GenerationSetup setup = generation_setup(variant, lengths);
    setup.gpu_times = gpu_times;
    const std::unique_ptr<engine::SelectionSource> selection = make_selection(variant, setup);
    setup.platform.drive.selection = selection.get();
    if (carried) {
      data = std::make_unique<DecoderData>(model->decoder(), prompts, workload.output_tokens,
                                           setup.plan.system.mini_batches, sampling);
      setup.data = data.get();
    }
    return run_generation(setup, hooks);
  };

  const auto decode_on_host = [&] {
    GenerationSetup setup = generation_setup(s, lengths);
    setup.plan.drives = 1;
    setup.plan.span = {.prefill = true, .first_step = 0, .decode_steps = workload.output_tokens - 1};
    auto data = std::make_unique<DecoderData>(model->decoder(), prompts, workload.output_tokens,
                                              setup.plan.system.mini_batches, sampling);
    const std::unique_ptr<host::Planner> planner = host::make_planner(setup.system, setup.plan);
    run_on_host(*planner, model->checkpoint.config, static_cast<std::uint32_t>(prompts.size()), *data);
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
      const std::unique_ptr<DecoderData> data = decode_on_host();
      add_text(result, data->generated(), *model);
      add_digest(result, *data);
    }
    result.document["wall"] = wall_figures(clock, 0);
    return result;
  }

  std::unique_ptr<OperationTrace> trace;
  if (options.trace) trace = std::make_unique<OperationTrace>(*options.trace);
  GenerationHooks hooks;
  if (trace) hooks.operation = [&](const host::OperationRecord& r) { trace->add(r); };
  if (options.progress)
    hooks.progress = [&](std::size_t done, std::size_t total) { options.progress("steps", done, total); };
  std::unique_ptr<BackgroundIo> background;
  if (workload.background) {
    background = std::make_unique<BackgroundIo>(s, *workload.background);
    hooks.before_start = [&](Platform& platform) { background->join(platform); };
    hooks.after_last = [&](std::function<void()> done) { background->stop(std::move(done)); };
    hooks.before_end = [&] { background->leave(); };
  }
  std::unique_ptr<DecoderData> data;
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
    std::unique_ptr<DecoderData> reference;
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

}  // namespace csd_model
