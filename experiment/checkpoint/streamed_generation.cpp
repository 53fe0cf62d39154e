#include "experiment/checkpoint/streamed_generation.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "experiment/checkpoint/loaded_model.h"
#include "experiment/generation/generation_result.h"
#include "experiment/generation/generation_workload.h"
#include "experiment/platform_rates.h"
#include "experiment/result.h"
#include "host_runtime/core/plan/streamed_system.h"
#include "host_runtime/cuda/loader/cuda_module.h"
#include "report/table.h"

namespace csdsim::experiment {

using nlohmann::ordered_json;

namespace {

const host::StreamedSystem* streamed(const host::OffloadSystem& system) {
  return dynamic_cast<const host::StreamedSystem*>(&system);
}

ordered_json bytes_of(const host::OffloadReport& report) {
  ordered_json streams;
  for (std::size_t i = 0; i < host::kCopyStreams; ++i)
    streams[std::string(host::kCopyStreamNames[i])] = {{"bytes", report.copies[i].bytes}};
  return streams;
}

ordered_json times_of(const host::OffloadReport& report) {
  ordered_json busy;
  for (std::size_t i = 0; i < host::kCopyStreams; ++i)
    busy[std::string(host::kCopyStreamNames[i])] = report.copies[i].seconds;
  busy["compute"] = report.compute.seconds;
  return busy;
}

std::string table_of(const host::OffloadReport& report) {
  report::Table table({"stream", "bytes", "busy s"});
  for (std::size_t i = 0; i < host::kCopyStreams; ++i)
    table.add_row({std::string(host::kCopyStreamNames[i]), fmt::format("{}", report.copies[i].bytes),
                   fmt::format("{:.6f}", report.copies[i].seconds)});
  table.add_row({"compute", "", fmt::format("{:.6f}", report.compute.seconds)});
  return table.to_text();
}

/// How much is recomputed in a step: "3 of 12 cached tokens".
std::string split_in(const host::OffloadReport& report, std::size_t step) {
  return fmt::format("{} of {}", report.recomputed[step], report.cached[step]);
}

struct StatedRates {
  host::StreamRates rates;
  std::string source;
};

host::StreamRates rates_of_platform(const scenario::Scenario& s) {
  const host::PlatformRates platform = platform_rates(s);
  return {.link = platform.host_to_gpu, .gemm = platform.gpu_gemm, .by_rows = platform.gpu.gemm_by_rows};
}

std::string summary_of(const host::OffloadReport& report, const std::string& device,
                       const std::optional<StatedRates>& rates, bool recomputes) {
  std::string text = fmt::format("Ran on the streams of {}: nothing was simulated.", device);
  if (rates)
    text += fmt::format(" Rates {}: link {:.4g} GB/s, matrix products {:.4g} TFLOPS.", rates->source,
                        static_cast<double>(rates->rates.link.bytes_per_second) * 1e-9,
                        static_cast<double>(rates->rates.gemm.flop_per_second) * 1e-12);
  if (recomputes && !report.recomputed.empty())
    text += fmt::format(" Recomputed in the first step: {} cached tokens, in the last: {}.", split_in(report, 0),
                        split_in(report, report.recomputed.size() - 1));
  return text +
         fmt::format(" Prefill {:.6f} s, decode {:.6f} s.\n{}", report.prefill_s, report.decode_s, table_of(report));
}

}  // namespace

bool runs_on_streams(const host::OffloadSystem& system) { return streamed(system) != nullptr; }

scenario::RunResult generate_on_streams(const scenario::Scenario& s, const scenario::RunOptions& options,
                                        RateSource source) {
  const WallClock clock;
  const GenerationWorkload& workload = generation_of(s);
  const host::StreamedSystem* const system = streamed(*s.system);
  if (system == nullptr) throw InternalError("a system that does not run on streams");
  if (options.processor == host::Processor::cpu) throw InternalError("the cpu has no streams");
  if (s.platform.gpu.count > 1)
    throw UserError(fmt::format("platform.gpu.count: {} GPUs: a run on streams has one", s.platform.gpu.count));
  if (s.model.fatrelu)
    throw UserError("model.fatrelu: a run on streams computes SiLU: take --backend cpu, which simulates the system");

  LoadedModel model(s.model.path.value().path, options.processor);
  if (options.logprobs || options.logits || options.stop_at_eos)
    throw UserError("--logprobs, --logits and --stop-at-eos: a run on streams has none of them");
  const Tokens prompts = options.prompt_tokens.empty() ? Tokens{model.tokenizer().encode(options.prompt_text.value())}
                                                       : options.prompt_tokens;
  const host::ModelConfig& config = model.checkpoint.config;
  const host::ModelShape shape = host::ModelShape::of(config);

  const std::shared_ptr<host::CudaModule> gpu = host::load_cuda_module();
  const std::string device = gpu->describe().name;
  std::optional<StatedRates> rates;
  if (system->needs_rates(shape))
    rates = source == RateSource::measured
                ? StatedRates{gpu->measure_rates(config, prompts.front().size()), "measured on " + device}
                : StatedRates{rates_of_platform(s), "of the scenario's platform"};
  host::OffloadPlan plan =
      system->stream_plan(shape, rates ? std::optional<host::StreamRates>(rates->rates) : std::nullopt);
  plan.mini_batches = workload.mini_batches_of(s, static_cast<std::uint32_t>(prompts.size()));
  const host::GenerationOptions generation{.max_new_tokens = workload.output_tokens,
                                           .sampling = {.temperature = static_cast<float>(workload.temperature.value()),
                                                        .top_k = workload.top_k.value_or(0),
                                                        .top_p = static_cast<float>(workload.top_p.value()),
                                                        .seed = s.seed},
                                           .stop = {}};
  const host::CudaModule::Offloaded run =
      gpu->generate_offloaded(config, model.weights(),
                              options.processor == host::Processor::cuda ? host::GpuFormat::f16 : host::GpuFormat::bf16,
                              prompts, generation, plan);

  scenario::RunResult result;
  const host::OffloadReport& report = run.report;
  result.document = result_frame(s);
  const double decoded = static_cast<double>(prompts.size()) * (workload.output_tokens - 1);
  result.document["metrics"] = ordered_json::object();
  result.document["streams"] = bytes_of(report);
  ordered_json& stats = result.document["stats"];
  stats["gpu"] = device;
  stats["recomputed_tokens"] = report.recomputed;
  stats["cached_tokens"] = report.cached;
  if (rates)
    stats["rates"] = {{"link", rates->rates.link.bytes_per_second},
                      {"gemm", rates->rates.gemm.flop_per_second},
                      {"source", rates->source}};
  result.meaning = summary_of(report, device, rates, plan.split != nullptr);
  result.document["prompt_tokens"] = to_json(prompts);
  result.document["tokens"] = to_json(run.tokens);
  add_texts(model, run.tokens, result);
  ordered_json wall = wall_figures(clock, 0);
  wall["streams_busy_s"] = times_of(report);
  wall["prefill_s"] = report.prefill_s;
  wall["decode_s"] = report.decode_s;
  if (report.decode_s > 0) wall["decode_tokens_per_s"] = decoded / report.decode_s;
  result.document["wall"] = std::move(wall);
  return result;
}

}  // namespace csdsim::experiment
