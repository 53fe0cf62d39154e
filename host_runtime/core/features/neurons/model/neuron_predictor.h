// Predicts which neurons of a feed-forward block will fire, from what enters the block.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "host_runtime/core/decoder/decoder.h"
#include "host_runtime/core/model/weight_source.h"

namespace csdsim::host {

/// For each token, the neurons of one layer, ascending.
using ActiveNeurons = std::vector<std::vector<std::uint32_t>>;

class NeuronPredictor {
 public:
  virtual ~NeuronPredictor() = default;
  NeuronPredictor() = default;
  NeuronPredictor(const NeuronPredictor&) = delete;
  NeuronPredictor& operator=(const NeuronPredictor&) = delete;

  /// The neurons that will fire. `inputs` is Decoder::feed_forward_inputs() of `layer`, [tokens][width].
  virtual ActiveNeurons predict(LayerId layer, const Tensor& inputs) const = 0;
};

/// The neurons that do fire: those whose activation is not 0. No real system has it without reading all weights.
class OraclePredictor final : public NeuronPredictor {
 public:
  /// `decoder` must outlive the predictor.
  explicit OraclePredictor(const Decoder& decoder) : decoder_(decoder) {}
  ActiveNeurons predict(LayerId layer, const Tensor& inputs) const override;

 private:
  const Decoder& decoder_;
};

/// The parameters of a low-rank predictor: sigmoid(up (down x) + bias) of a layer is the score of its neurons. The
/// first r of `rank` components are a predictor of rank r. In fp32, whatever the file has.
struct LowRankWeights {
  struct Layer {
    std::vector<float> down;  ///< [width][rank]
    std::vector<float> up;    ///< [rank][ffn]
    std::vector<float> bias;  ///< [ffn]
  };
  std::uint32_t rank = 0;
  std::uint32_t ffn = 0;
  std::vector<Layer> layers;

  /// Reads `layers.I.down` [rank][width], `layers.I.up` [ffn][rank] and `layers.I.bias` [ffn]. UserError if a tensor is
  /// missing, has another shape than the model implies, or holds a value that is not finite.
  static LowRankWeights load(const WeightSource& source, const ModelConfig& config);
  /// UserError unless there is one rank, or one per layer, and each is in [1, rank].
  void check_ranks(std::span<const std::uint32_t> ranks) const;
};

/// LLM in a flash (arXiv 2312.11514), 3.1, after Deja Vu (arXiv 2310.17157).
class LowRankPredictor final : public NeuronPredictor {
 public:
  /// Predicts neurons whose score is above `threshold`, with the first components: `ranks` says how many, for all
  /// layers or for each one. `decoder` must outlive the predictor. UserError unless 0 < threshold < 1, and each rank is
  /// in [1, weights->rank], and there are as many as layers or one.
  LowRankPredictor(const Decoder& decoder, std::shared_ptr<const LowRankWeights> weights, double threshold,
                   std::vector<std::uint32_t> ranks);
  ActiveNeurons predict(LayerId layer, const Tensor& inputs) const override;

  /// The same for rows on the host, [tokens][width].
  ActiveNeurons predict(LayerId layer, std::span<const float> inputs) const;

 private:
  const Decoder& decoder_;
  std::shared_ptr<const LowRankWeights> weights_;
  float least_logit_;
  std::vector<std::uint32_t> ranks_;  ///< [layer]
};

}  // namespace csdsim::host
