// The entry of libcsdsim_cuda.so.
#include <algorithm>
#include <cmath>

#include "host_runtime/cuda/conditions.h"
#include "host_runtime/cuda/dense_model.h"
#include "host_runtime/cuda/fused_decoder.h"
#include "host_runtime/cuda/layer_timer.h"
#include "host_runtime/cuda/loader/cuda_module.h"
#include "host_runtime/cuda/measuring.h"
#include "host_runtime/cuda/offloaded_model.h"
#include "host_runtime/cuda/operator_timer.h"

namespace csdsim::host::cuda {
namespace {

SimTime sim_time(double seconds) { return SimTime::picoseconds(std::llround(seconds * 1e12)); }

MeasuredTime measured(const MeasuredSeconds& s) {
  return {.median = sim_time(s.median), .fastest = sim_time(s.fastest), .slowest = sim_time(s.slowest)};
}

/// Its stream and memory are not those of the backends.
class ModuleTimer final : public WorkTimer {
 public:
  explicit ModuleTimer(const std::optional<ModelConfig>& model) {
    if (model && DecoderParts<__half>::unsupported(*model).empty()) of_layer_.emplace(context_, *model);
  }
  MeasuredTime time(const ComputeWork& work, const std::optional<LayerWork>& layer) override {
    return measured(layer && of_layer_ ? of_layer_->seconds(*layer) : by_size_.seconds(work));
  }

 private:
  Context context_;
  OperatorTimer by_size_{context_};
  std::optional<LayerTimer> of_layer_;
};

class Module final : public CudaModule {
 public:
  GpuDescription describe() const override {
    const DeviceInfo& d = context_.device;
    return {d.name, static_cast<std::uint32_t>(d.compute_capability), Bytes{d.memory_bytes},
            Bandwidth{static_cast<std::uint64_t>(d.memory_bytes_per_second)},
            static_cast<std::uint32_t>(d.driver_version)};
  }

  std::unique_ptr<Backend> make_backend(GpuFormat format) override {
    if (format == GpuFormat::bf16) return std::make_unique<CudaBackend<__nv_bfloat16>>(context_);
    return std::make_unique<CudaBackend<__half>>(context_);
  }

  std::unique_ptr<Decoder> make_decoder(const ModelConfig& config, const WeightSource& weights,
                                        Backend& backend) override {
    if (auto* const bf16 = dynamic_cast<CudaBackend<__nv_bfloat16>*>(&backend))
      return make_gpu_decoder(*bf16, context_, config, weights);
    return make_gpu_decoder(dynamic_cast<CudaBackend<__half>&>(backend), context_, config, weights);
  }

  std::vector<std::vector<TokenId>> generate(const ModelConfig& config, const WeightSource& weights, GpuFormat format,
                                             const std::vector<std::vector<TokenId>>& prompts,
                                             const GenerationOptions& options) override {
    std::size_t longest = 1;
    for (const auto& prompt : prompts) longest = std::max(longest, prompt.size());
    const auto slots = static_cast<std::uint32_t>(std::max<std::size_t>(1, prompts.size()));
    const auto capacity = static_cast<std::uint32_t>(longest + options.max_new_tokens);
    if (format == GpuFormat::bf16) {
      return DenseModel<__nv_bfloat16>(context_, config, weights, slots, capacity).generate(prompts, options);
    }
    return DenseModel<__half>(context_, config, weights, slots, capacity).generate(prompts, options);
  }

  Offloaded generate_offloaded(const ModelConfig& config, const WeightSource& weights, GpuFormat format,
                               const std::vector<std::vector<TokenId>>& prompts, const GenerationOptions& options,
                               const OffloadPlan& plan) override {
    std::vector<std::uint32_t> lengths;
    for (const auto& prompt : prompts) lengths.push_back(static_cast<std::uint32_t>(prompt.size()));
    const auto run = [&](auto&& model) {
      Offloaded result{.tokens = model.generate(prompts, options), .report = {}};
      result.report = model.report();
      return result;
    };
    if (format == GpuFormat::bf16) {
      return run(OffloadedModel<__nv_bfloat16>(context_, config, weights, lengths, options.max_new_tokens, plan));
    }
    return run(OffloadedModel<__half>(context_, config, weights, lengths, options.max_new_tokens, plan));
  }

  StreamRates measure_rates(const ModelConfig& config, std::uint64_t tokens) override {
    const MeasuredRates rates = recomputation_rates(context_, config.width, 2 * config.kv_width(), tokens);
    return {.link = {static_cast<std::uint64_t>(std::llround(rates.link))},
            .gemm = {static_cast<std::uint64_t>(std::llround(rates.gemm))}};
  }

  GpuConditions conditions() const override {
    const Conditions c = present_conditions();
    return {c.sm_mhz, c.memory_mhz, c.most_sm_mhz, c.most_memory_mhz, c.power_limit_w, c.source};
  }

  std::unique_ptr<WorkTimer> make_timer(const std::optional<ModelConfig>& model) override {
    return std::make_unique<ModuleTimer>(model);
  }

  MeasuredTime measure_copy(Bytes bytes, bool to_gpu) override {
    return measured(copy_seconds(context_, bytes.value, to_gpu));
  }

 private:
  Context context_;
};

}  // namespace
}  // namespace csdsim::host::cuda

extern "C" csdsim::host::CudaModule* csdsim_cuda_module() { return new csdsim::host::cuda::Module; }
