#include <algorithm>

#include "host_runtime/cuda/attention/device_method.h"

namespace csdsim::host::cuda {
namespace {

class Infinigen final : public DeviceMethod {
 public:
  Infinigen(Context& context, const ModelConfig& config, const InfinigenOptions& options)
      : DeviceMethod(context, config),
        options_(options),
        columns_(infinigen_columns(options, config.head_dim)),
        layers_(made(config.layers, [&] {
          return Layer{SlotArray<float>(config.kv_heads, columns_ * config.head_dim),
                       SlotArray<float>(config.kv_heads, columns_),
                       SlotArray<__half>(1, config.q_width()),
                       {},
                       {}};
        })) {}

  void reserve(std::size_t slots, std::size_t capacity) override {
    for (Layer& layer : layers_) {
      layer.skew.reserve(stream(), pool(), slots, 1);
      layer.projected.reserve(stream(), pool(), slots, capacity);
      layer.q.reserve(stream(), pool(), slots, 1);
      layer.learned.resize(slots, false);
      layer.speculated.resize(slots, false);
    }
  }

  void extend(const LayerCache& cache, const Batch& batch) override {
    const Layer& layer = layers_[cache.layer.value];
    const auto learned = [&](std::uint32_t slot) { return bool{layer.learned[slot]}; };
    if (std::none_of(batch.slots.begin(), batch.slots.end(), learned)) return;
    project(cache, batch);
  }

  bool learns_from_prompt() const override { return true; }
  void learn(const LayerCache& cache, const Batch& batch, std::span<const float> q, const __half*) override {
    Layer& layer = layers_[cache.layer.value];
    const std::size_t d = config_.head_dim, group = config_.group_size(), size = columns_ * d;
    for (std::size_t i = 0; i < batch.slots.size(); ++i) {
      std::vector<float> skew;
      for (std::uint32_t head = 0; head < config_.kv_heads; ++head) {
        const float* first = q.data() + std::size_t{batch.rows[i]} * config_.q_width() + head * group * d;
        const std::vector<float> of_head =
            infinigen_skew(first, config_.q_width(), batch.lengths[i] - batch.firsts[i], group, d, columns_);
        skew.insert(skew.end(), of_head.begin(), of_head.end());
      }
      copy_to_device(stream(), std::span<const float>(skew),
                     layer.skew.data() + std::size_t{batch.slots[i]} * config_.kv_heads * size);
      // The source is pageable memory, so the copy has been made when the call returns.
      layer.learned[batch.slots[i]] = true;
    }
    project(cache, batch);
  }

  bool speculates() const override { return true; }
  void speculate(LayerId layer_id, std::span<const std::uint32_t> slots, const __half* q) override {
    Layer& layer = layers_[layer_id.value];
    for (std::size_t i = 0; i < slots.size(); ++i) {
      CSDSIM_CUDA(cudaMemcpyAsync(layer.q.data() + std::size_t{slots[i]} * config_.q_width(), q + i * config_.q_width(),
                                  config_.q_width() * sizeof(__half), cudaMemcpyDeviceToDevice, stream().get()));
      layer.speculated[slots[i]] = true;
    }
  }

  void forget(std::uint32_t slot) override {
    for (Layer& layer : layers_) layer.learned[slot] = layer.speculated[slot] = false;
  }

  Choice choose(const LayerCache& cache, const Batch& batch, const __half*) override {
    const Layer& layer = layers_[cache.layer.value];
    dense_.clear();
    for (const std::uint32_t slot : batch.slots) {
      dense_.push_back(cache.layer.value < options_.dense_layers || !layer.learned[slot] || !layer.speculated[slot]);
    }
    if (std::find(dense_.begin(), dense_.end(), 0u) == dense_.end()) return {};
    Choice choice = empty_choice(batch, config_.kv_heads);
    const std::vector<std::uint32_t> most_tokens = budgets(options_.tokens, batch);
    const DeviceBuffer<float> scores(pool(), choice.chosen.size());
    const DeviceBuffer<std::uint32_t> dense = on_device(dense_), most = on_device(most_tokens);
    SpeculationArguments s;
    s.q = layer.q.data();
    s.skew = layer.skew.data();
    s.projected = layer.projected.data();
    s.dense = dense.data();
    s.budgets = most.data();
    s.columns = static_cast<std::uint32_t>(columns_);
    s.stride = choice.stride;
    s.threshold = options_.threshold;
    speculate_scores(stream(), pool(), batch.view, cache.shape, s, scores.data(), choice.counts.data());
    const std::vector<std::uint32_t> newest(batch.slots.size(), 1);
    choose_best(stream(), batch.view, choice.lists, choice.stride, scores.data(), on_device(newest).data(),
                choice.counts.data(), choice.chosen.data());
    return choice;
  }

  void describe(const Batch& batch, std::span<HeadSelection> selections) override {
    DeviceMethod::describe(batch, selections);
    for (std::size_t i = 0; i < selections.size(); ++i) {
      const std::size_t sequence = i / config_.kv_heads;
      if (dense_[sequence] == 0) selections[i].elements += std::uint64_t{batch.lengths[sequence]} * columns_;
    }
  }

 private:
  struct Layer {
    SlotArray<float> skew;       // [slot][kv head][columns][d]
    SlotArray<float> projected;  // [slot][kv head][capacity][columns]
    SlotArray<__half> q;         // [slot][heads * d]
    std::vector<bool> learned, speculated;
  };

  void project(const LayerCache& cache, const Batch& batch) {
    const Layer& layer = layers_[cache.layer.value];
    project_keys(stream(), batch.view, cache.shape, cache.keys, layer.skew.data(), static_cast<std::uint32_t>(columns_),
                 layer.projected.data());
  }

  InfinigenOptions options_;
  std::size_t columns_;
  std::vector<Layer> layers_;
  std::vector<std::uint32_t> dense_;  // sequences that attend to all tokens in the step under way
};

}  // namespace

std::unique_ptr<DeviceMethod> make_infinigen(Context& context, const ModelConfig& config,
                                             const InfinigenOptions& options) {
  return std::make_unique<Infinigen>(context, config, options);
}

}  // namespace csdsim::host::cuda
