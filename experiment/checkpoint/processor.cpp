#include "experiment/checkpoint/processor.h"

#include <algorithm>

#include "base/error.h"
#include "host_runtime/cpu/cpu_backend.h"
#include "host_runtime/cuda/loader/cuda_module.h"

namespace csdsim::experiment {

using namespace csdsim::host;

Processor processor_named(std::string_view name) {
  const auto* const found = std::find(kProcessorNames.begin(), kProcessorNames.end(), name);
  if (found == kProcessorNames.end()) throw InternalError("no such processor");
  return static_cast<Processor>(found - kProcessorNames.begin());
}

namespace {

GpuFormat format_of(Processor processor) {
  if (processor == Processor::cpu) throw InternalError("the cpu has no GPU format");
  return processor == Processor::cuda ? GpuFormat::f16 : GpuFormat::bf16;
}

}  // namespace

std::unique_ptr<Backend> make_backend(Processor processor) {
  if (processor == Processor::cpu) return std::make_unique<CpuBackend>();
  return load_cuda_module()->make_backend(format_of(processor));
}

std::unique_ptr<Decoder> make_decoder(Processor processor, const ModelConfig& config, const WeightSource& weights,
                                      Backend& backend) {
  if (processor == Processor::cpu) return host::make_decoder(config, weights, backend);
  return load_cuda_module()->make_decoder(config, weights, backend);
}

std::vector<std::vector<TokenId>> generate_on_gpu(Processor processor, const ModelConfig& config,
                                                  const WeightSource& weights,
                                                  const std::vector<std::vector<TokenId>>& prompts,
                                                  const GenerationOptions& options, ConfiguredMethod method) {
  const GpuFormat format = format_of(processor);
  // Dense attention has a model of its own, a decode step one graph.
  if (std::holds_alternative<DenseOptions>(method.options) && !config.fatrelu) {
    return load_cuda_module()->generate(config, weights, format, prompts, options);
  }
  const std::unique_ptr<Backend> backend = make_backend(processor);
  const std::unique_ptr<Decoder> decoder = make_decoder(processor, config, weights, *backend);
  const auto attention = backend->make_attention(config, std::move(method), QueryPrecision::f16);
  return generate(*decoder, *attention, prompts, options);
}

}  // namespace csdsim::experiment
