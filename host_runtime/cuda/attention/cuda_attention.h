// Decoding attention on the GPU by any method: KV cache, choice of tokens and attention stay there.
#pragma once

#include <map>

#include "host_runtime/cuda/attention/device_method.h"

namespace csdsim::host::cuda {

/// Keys, values, queries in fp16, sums and outputs in fp32, rounded to fp16 like those of every provider. The cache of
/// every sequence has room for as many tokens as the longest one needs, by doubling.
class DeviceAttention : public MethodAttention {
 public:
  DeviceAttention(Context& context, const ModelConfig& config, const MethodOptions& options);

  void create_sequence(SequenceId sequence) override;
  void free_sequence(SequenceId sequence) override;
  void store(LayerId layer, std::span<const SequenceSlice> slices, std::span<const Half> k,
             std::span<const Half> v) override;
  bool learns_from_prompt() const override { return method_->learns_from_prompt(); }
  void learn(LayerId layer, std::span<const SequenceSlice> slices, std::span<const float> q) override;
  bool speculates() const override { return method_->speculates(); }
  void speculate(LayerId layer, std::span<const SequenceId> sequences, std::span<const float> q) override;
  void attend(LayerId layer, std::span<const SequenceId> sequences, std::span<const float> q, std::span<const Half> k,
              std::span<const Half> v, std::span<Half> out) override;

  /// attend() of rows on the device, not rounded; out is [sequences][heads * d].
  void attend_on_device(LayerId layer, std::span<const SequenceId> sequences, const __half* q, const __half* k,
                        const __half* v, float* out);

 protected:
  void speculate_on_device(LayerId layer, std::span<const SequenceId> sequences, const __half* q);
  template <class From>
  DeviceBuffer<__half> halves(const From* values, std::size_t count) {
    DeviceBuffer<__half> narrow(context_.pool, count);
    convert(context_.stream, values, narrow.data(), count);
    return narrow;
  }

  Context& context_;
  ModelConfig config_;

 private:
  struct Layer {
    SlotArray<__half> keys, values;      // [slot][kv head][capacity][d]
    std::vector<std::uint32_t> lengths;  // by slot
  };

  std::vector<std::uint32_t> slots_of(std::span<const SequenceId> sequences) const;
  void make_room(std::size_t slots, std::size_t tokens);
  LayerCache cache(LayerId layer) const;
  /// The sequences at `slots`, the last counts[i] of whose tokens are new, with rows that follow one another.
  Batch batch_of(LayerId layer, std::vector<std::uint32_t> slots, std::span<const std::uint32_t> counts) const;
  Batch append(LayerId layer, std::vector<std::uint32_t> slots, std::span<const std::uint32_t> counts, const __half* k,
               const __half* v);
  void observe(LayerId layer, std::span<const SequenceId> sequences, const Batch& batch, const Choice& choice,
               const DecodeQuery<__half, float>& query);

  std::unique_ptr<DeviceMethod> method_;
  std::vector<Layer> layers_;
  std::size_t slots_ = 0, capacity_ = 0;
  std::map<SequenceId, std::uint32_t> sequences_;
  std::vector<std::uint32_t> free_slots_;
};

/// The same for a backend that computes in T: rows of its tensors stay on the device.
template <class T>
class CudaAttention final : public DeviceAttention {
 public:
  CudaAttention(CudaBackend<T>& backend, Context& context, const ModelConfig& config, const MethodOptions& options)
      : DeviceAttention(context, config, options), backend_(backend) {}

  void speculate_rows(const Decoder& decoder, LayerId layer, std::span<const SequenceId> sequences,
                      const Tensor& q) override;
  Tensor attend_rows(const Decoder& decoder, LayerId layer, std::span<const SequenceId> sequences,
                     const AttentionInputs& inputs) override;

 private:
  CudaBackend<T>& backend_;
};

}  // namespace csdsim::host::cuda
