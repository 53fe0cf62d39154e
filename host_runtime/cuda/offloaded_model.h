// A whole decoder on the GPU with its KV cache in pinned host memory, on one stream that computes and six that copy
// (KVPR, arXiv 2411.17089, section 3.3). Events order what depends on each other; everything else overlaps.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "host_runtime/core/decoder/generation.h"
#include "host_runtime/core/plan/offload_plan.h"
#include "host_runtime/cuda/decoder_parts.h"
#include "host_runtime/cuda/timed_stream.h"

namespace csdsim::host::cuda {

/// A step visits every layer with every mini-batch; such a pair is an item. Items are counted over all steps, the
/// prefill being the first. Copies of the items ahead are put into their streams before an item is computed, as many as
/// there are buffers. In decode, for each item: activations of the first l tokens of its sequences travel to the GPU,
/// which computes K and V from them while those of the other tokens travel. K and V of the new token travel back.
template <class T>
class OffloadedModel {
 public:
  /// Room for prompts of these lengths, each continued by `new_tokens`. UserError as DecoderParts, for a plan that does
  /// not fit the prompts, for contexts longer than the model's, and if host memory does not suffice.
  OffloadedModel(Context& context, const ModelConfig& config, const WeightSource& weights,
                 std::vector<std::uint32_t> prompts, std::uint32_t new_tokens, OffloadPlan plan);
  /// Waits for copies that nobody needed.
  ~OffloadedModel();

  /// As host::generate(), for prompts of the lengths that were announced. Call once.
  std::vector<std::vector<TokenId>> generate(const std::vector<std::vector<TokenId>>& prompts,
                                             const GenerationOptions& options);
  OffloadReport report();
  /// Logits of the latest step, [sequences][vocab].
  std::span<const float> latest_logits() const { return host_logits_.span(); }

 private:
  /// Sequences of a batch that are computed together.
  struct MiniBatch {
    std::uint32_t first = 0, count = 0;
    std::uint32_t rows = 0, longest = 0;  ///< rows of the prompts
    PinnedBuffer<T> hidden;               ///< hidden states while other mini-batches are computed
    DeviceBuffer<std::uint32_t> prompt_tokens, prompt_positions, prompt_starts;
  };
  /// K, V and activations of one sequence and layer in host memory: K and V [kv head][capacity][d].
  struct HostCache {
    PinnedBuffer<T> keys, values, activations;
  };
  struct Layer {
    LayerWeights<T> weights;
    PinnedBuffer<T> block;  ///< their matrices, if they are on the host
    std::vector<HostCache> caches;
    DeviceBuffer<T> activations;  ///< activations of all prompts, if they are kept on the GPU
  };
  /// K and V of an item on the GPU, and activations from which a part of them is computed, or which leave the GPU.
  struct KvBuffer {
    DeviceBuffer<T> keys, values, activations;
    std::vector<std::uint32_t> recomputed;  ///< tokens by sequence
    Event activations_in, recomputed_all, kv_in, made, attended, kv_out, activations_out;
  };
  struct WeightBuffer {
    DeviceBuffer<T> block;
    Event kv_in, all_in, used;
  };
  struct HiddenBuffer {
    DeviceBuffer<T> values;
    Event in, made, out;
  };
  struct Item {
    std::uint32_t layer = 0, mini_batch = 0;
    std::uint32_t visit = 0;    ///< number of the visit to a layer's weights, counted in the step
    bool last_visitor = false;  ///< the next item uses other weights
  };

  void lay_out(std::span<const std::uint32_t> prompts);
  void load_layers();
  void allocate_buffers();

  Item item(std::uint64_t number) const { return items_[number % items_.size()]; }
  std::uint32_t capacity_of(std::uint32_t sequence) const { return prompts_[sequence] + new_tokens_ - 1; }
  std::uint32_t cached(std::uint64_t number, std::uint32_t sequence) const;
  KvBuffer& kv_buffer(std::uint64_t number) { return kv_buffers_[number % kv_buffers_.size()]; }
  HiddenBuffer& hidden_buffer(std::uint64_t number) { return hidden_buffers_[number % hidden_buffers_.size()]; }
  bool moves_hidden() const { return hidden_buffers_.size() > 1; }
  bool keeps_activations() const { return static_cast<bool>(plan_.split); }

  /// Counts and copies in a copy stream.
  void copy(CopyStream stream, void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
            std::size_t width, std::size_t rows);
  TimedStream& stream(CopyStream stream) { return copy_timers_[static_cast<std::size_t>(stream)]; }
  void copy_kv(CopyStream stream, std::uint64_t number, std::uint32_t sequence, std::uint32_t first,
               std::uint32_t tokens);

  void copy_ahead(std::uint64_t number);
  void copy_weights(std::uint64_t visit);
  void copy_kv_in(std::uint64_t number);
  void copy_hidden_in(std::uint64_t number);
  void copy_out(std::uint64_t number);

  void run_step(std::uint64_t step);
  void compute(std::uint64_t number);
  void enter(std::uint64_t number, bool prompts);
  void recompute(std::uint64_t number);
  void project_prompts(std::uint64_t number);
  void project_tokens(std::uint64_t number);
  void leave(std::uint64_t number, bool prompts);
  std::span<const float> logits();
  void send_inputs(std::span<const TokenId> tokens, std::uint64_t step);

  Context& context_;
  DecoderParts<T> parts_;
  OffloadPlan plan_;
  std::vector<std::uint32_t> prompts_;
  std::uint32_t new_tokens_, capacity_ = 0;
  CacheShape shape_;
  std::vector<MiniBatch> mini_batches_;
  std::vector<Item> items_;   ///< work items of a step
  std::uint64_t visits_ = 0;  ///< visits to layers' weights in a step
  std::vector<Layer> layers_;
  std::vector<KvBuffer> kv_buffers_;
  std::vector<WeightBuffer> weight_buffers_;
  std::vector<HiddenBuffer> hidden_buffers_;
  std::vector<Activations<T>> activations_;  ///< activations of a step: prefill, decode
  DeviceBuffer<T> recomputed_kv_, last_rows_;
  DeviceBuffer<std::uint32_t> tokens_, positions_, lengths_, counting_;
  DeviceBuffer<float> logits_;
  PinnedBuffer<std::uint32_t> step_inputs_;
  PinnedBuffer<float> host_logits_;
  std::vector<Stream> copy_streams_;
  std::deque<TimedStream> copy_timers_;
  TimedStream compute_;
  std::uint64_t kv_copies_ = 0, hidden_copies_ = 0, weight_copies_ = 0;  ///< items and visits that were copied ahead
  OffloadReport report_;
};

}  // namespace csdsim::host::cuda
