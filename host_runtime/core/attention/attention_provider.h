// The interface to what keeps the KV cache and computes the attention of decode steps: the host or a drive.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "host_runtime/core/attention/attention.h"

namespace csdsim::host {

class Decoder;
struct AttentionInputs;
struct Tensor;

/// A sequence and how many rows of a batch belong to it.
struct SequenceSlice {
  SequenceId sequence;
  std::uint32_t tokens = 0;
};

/// Rows of a batch: q and out are [rows][heads][head_dim], k and v are [rows][kv_heads][head_dim].
class AttentionProvider {
 public:
  virtual ~AttentionProvider() = default;
  virtual void create_sequence(SequenceId sequence) = 0;
  virtual void free_sequence(SequenceId sequence) = 0;
  /// Appends the K and V of a prefill; the attention itself was dense, on the backend.
  virtual void store(LayerId layer, std::span<const SequenceSlice> slices, std::span<const Half> k,
                     std::span<const Half> v) = 0;
  /// True if the queries of a prefill are to be handed over, after store() of the same layer: some methods learn from
  /// them. q is [rows][heads][head_dim].
  virtual bool learns_from_prompt() const { return false; }
  virtual void learn(LayerId, std::span<const SequenceSlice>, std::span<const float>) {}
  /// Whether, before attend() of a layer other than 0, queries of that layer are to be handed over that were computed
  /// from the input of the layer before it.
  virtual bool speculates() const { return false; }
  virtual void speculate(LayerId, std::span<const SequenceId>, std::span<const float>) {}
  /// One decode step of a layer, one token per sequence: appends its k and v, then attends over the whole sequence. The
  /// output is rounded to fp16.
  virtual void attend(LayerId layer, std::span<const SequenceId> sequences, std::span<const float> q,
                      std::span<const Half> k, std::span<const Half> v, std::span<Half> out) = 0;

  /// speculate() and attend() of rows in the memory of the decoder's backend. As they stand here, rows pass through the
  /// host's memory; who attends where the backend computes leaves them there.
  virtual void speculate_rows(const Decoder& decoder, LayerId layer, std::span<const SequenceId> sequences,
                              const Tensor& q);
  virtual Tensor attend_rows(const Decoder& decoder, LayerId layer, std::span<const SequenceId> sequences,
                             const AttentionInputs& inputs);
};

/// fp16 is the format of the wire to a drive: with it, attention on the host equals attention in the drive. fp32 leaves
/// q as the backend computed it.
enum class QueryPrecision : std::uint8_t { f16, f32 };

/// What a KV head attended to in a decode step.
struct HeadObservation {
  SequenceId sequence;
  LayerId layer;
  KvHead head;
  std::uint32_t tokens = 0;     ///< in the cache
  std::span<const float> mass;  ///< exact softmax mass of each query head on the tokens attended to: attention_mass()
  const HeadSelection& selection;
};

/// Decoding attention by a method, which can be watched.
class MethodAttention : public AttentionProvider {
 public:
  /// Called for every (sequence, layer, KV head) of every decode step, in order.
  using Observer = std::function<void(const HeadObservation&)>;

  void set_observer(Observer observer) { observer_ = std::move(observer); }

 protected:
  Observer observer_;
};

/// Attention on the host's processor, over a HostKvCache.
class HostAttention final : public MethodAttention {
 public:
  HostAttention(const ModelConfig& config, std::unique_ptr<AttentionMethod> method,
                QueryPrecision precision = QueryPrecision::f16);

  const HostKvCache& cache() const { return cache_; }

  void create_sequence(SequenceId sequence) override { cache_.create(sequence); }
  void free_sequence(SequenceId sequence) override;
  void store(LayerId layer, std::span<const SequenceSlice> slices, std::span<const Half> k,
             std::span<const Half> v) override;
  bool learns_from_prompt() const override { return method_->learns_from_prompt(); }
  void learn(LayerId layer, std::span<const SequenceSlice> slices, std::span<const float> q) override;
  bool speculates() const override { return method_->speculates(); }
  void speculate(LayerId layer, std::span<const SequenceId> sequences, std::span<const float> q) override;
  void attend(LayerId layer, std::span<const SequenceId> sequences, std::span<const float> q, std::span<const Half> k,
              std::span<const Half> v, std::span<Half> out) override;

 private:
  std::vector<float> as_attended(std::span<const float> q) const;
  std::vector<KvView> views(SequenceId sequence, LayerId layer) const;

  ModelConfig config_;
  std::unique_ptr<AttentionMethod> method_;
  QueryPrecision precision_;
  HostKvCache cache_;
};

}  // namespace csdsim::host
