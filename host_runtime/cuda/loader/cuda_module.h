// CUDA on demand: the GPU functions for the rest of the program. Nothing here includes CUDA; the module that does is
// loaded at its first use.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "host_runtime/core/decoder/backend.h"
#include "host_runtime/core/decoder/decoder.h"
#include "host_runtime/core/decoder/generation.h"
#include "host_runtime/core/plan/layer_work.h"
#include "host_runtime/core/plan/offload_plan.h"
#include "host_runtime/core/plan/streamed_system.h"

namespace csdsim::host {

/// The current GPU.
struct GpuDescription {
  std::string name;
  std::uint32_t compute_capability = 0;  ///< 90 for 9.0
  Bytes memory = {};
  Bandwidth memory_bandwidth = {};  ///< peak, as the driver states it; 0 where it does not
  std::uint32_t cuda_version = 0;   ///< newest version that the driver supports: 13000 for 13.0
};

/// Clocks and power limit of the current GPU at this moment; 0 where nobody states them.
struct GpuConditions {
  double sm_mhz = 0, memory_mhz = 0;
  double most_sm_mhz = 0, most_memory_mhz = 0;
  double power_limit_w = 0;
  std::string source;  ///< "NVML", or "CUDA" (the highest clocks only) on a machine without it
};

/// Median and extremes of several runs.
struct MeasuredTime {
  SimTime median, fastest, slowest;
};

/// Measures work on the GPU by CUDA events, with kernel launches and from a cold L2 cache, in memory of its own.
class WorkTimer {
 public:
  virtual ~WorkTimer() = default;
  /// An operator of the timer's model is timed on one layer of the model, with all kernels of the operator. Other work,
  /// and all work if there is no model, is timed on kernels of the same class with as many operations and bytes
  /// (cuda::OperatorTimer).
  virtual MeasuredTime time(const ComputeWork& work, const std::optional<LayerWork>& layer = {}) = 0;
};

/// The format of weights and activations.
enum class GpuFormat : std::uint8_t { f16, bf16 };

class CudaModule {
 public:
  virtual ~CudaModule() = default;
  virtual GpuDescription describe() const = 0;

  /// The operators of a decoder; the module must outlive it. UserError if the GPU does not have the format.
  virtual std::unique_ptr<Backend> make_backend(GpuFormat format) = 0;

  /// A decoder for attention elsewhere, with fused products where the model allows. `backend` was made by
  /// make_backend() and must outlive it. UserError as host::make_decoder().
  virtual std::unique_ptr<Decoder> make_decoder(const ModelConfig& config, const WeightSource& weights,
                                                Backend& backend) = 0;

  /// As host::generate() with dense attention, everything on the GPU and a decode step one graph.
  virtual std::vector<std::vector<TokenId>> generate(const ModelConfig& config, const WeightSource& weights,
                                                     GpuFormat format, const std::vector<std::vector<TokenId>>& prompts,
                                                     const GenerationOptions& options) = 0;

  /// As generate(), with K and V in pinned host memory, on streams that copy beside the one that computes. UserError if
  /// host memory does not suffice, and for a plan that does not fit the prompts.
  struct Offloaded {
    std::vector<std::vector<TokenId>> tokens;
    OffloadReport report;
  };
  virtual Offloaded generate_offloaded(const ModelConfig& config, const WeightSource& weights, GpuFormat format,
                                       const std::vector<std::vector<TokenId>>& prompts,
                                       const GenerationOptions& options, const OffloadPlan& plan) = 0;

  /// The rates of copies from pinned host memory, and of the products that compute K and V of a layer from `tokens`
  /// activations, by CUDA events.
  virtual StreamRates measure_rates(const ModelConfig& config, std::uint64_t tokens) = 0;

  virtual GpuConditions conditions() const = 0;

  /// With the configuration of a model: its layer has made-up weights. The module must outlive the timer.
  virtual std::unique_ptr<WorkTimer> make_timer(const std::optional<ModelConfig>& model) = 0;

  /// Time of a copy between pinned host memory and GPU memory, by CUDA events.
  virtual MeasuredTime measure_copy(Bytes bytes, bool to_gpu) = 0;
};

/// The one module of the process. UserError if the program was built without CUDA, the module is not beside the program
/// (or where CSDSIM_CUDA_MODULE says), or there is no GPU.
std::shared_ptr<CudaModule> load_cuda_module();

}  // namespace csdsim::host
