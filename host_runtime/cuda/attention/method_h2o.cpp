#include <algorithm>

#include "host_runtime/cuda/attention/device_method.h"

namespace csdsim::host::cuda {
namespace {

class H2o final : public DeviceMethod {
 public:
  H2o(Context& context, const ModelConfig& config, const H2oOptions& options)
      : DeviceMethod(context, config), options_(options), layers_(made(config.layers, [&] {
          return Layer{SlotArray<std::uint32_t>(config.kv_heads, 1), SlotArray<float>(config.kv_heads, 1),
                       SlotArray<std::uint32_t>(config.kv_heads, 1)};
        })) {}

  void reserve(std::size_t slots, std::size_t capacity) override {
    for (Layer& layer : layers_) {
      layer.kept.reserve(stream(), pool(), slots, capacity);
      layer.weights.reserve(stream(), pool(), slots, capacity);
      layer.counts.reserve(stream(), pool(), slots, 1);
    }
  }

  void extend(const LayerCache& cache, const Batch& batch) override {
    keep_new(stream(), batch.view, cache.shape, state(cache.layer));
  }

  bool learns_from_prompt() const override { return true; }
  void learn(const LayerCache& cache, const Batch& batch, std::span<const float>, const __half* q) override {
    if (options_.rank != H2oRank::decoded) {
      weigh_prompt(stream(), pool(), batch.view, cache.shape, q, cache.keys, state(cache.layer));
    }
    evict_lightest(cache, batch);
  }

  Choice choose(const LayerCache& cache, const Batch& batch, const __half*) override {
    Choice choice = empty_choice(batch, config_.kv_heads);
    list_kept(stream(), batch.view, cache.shape, state(cache.layer), choice.stride, choice.chosen.data(),
              choice.counts.data());
    return choice;
  }

  void finish(const LayerCache& cache, const Batch& batch, const Choice& choice, const __half* q, float*) override {
    const std::size_t heads = std::size_t{batch.view.count} * config_.heads;
    const DeviceBuffer<float> scores(pool(), heads * choice.stride);
    const DeviceBuffer<float2> softmax(pool(), heads);
    listed_scores(stream(), batch.view, cache.shape, q, cache.keys, choice.chosen.data(), choice.counts.data(),
                  choice.stride, scores.data());
    softmax_scales(stream(), batch.view.count, cache.shape, scores.data(), choice.stride, choice.counts.data(),
                   choice.lists, softmax.data());
    weigh_listed(stream(), batch.view, cache.shape, scores.data(), softmax.data(), choice.stride, state(cache.layer));
    evict_lightest(cache, batch);
  }

 private:
  struct Layer {
    SlotArray<std::uint32_t> kept;
    SlotArray<float> weights;
    SlotArray<std::uint32_t> counts;
  };

  KeptTokens state(LayerId layer) const {
    const Layer& l = layers_[layer.value];
    return {l.kept.data(), l.weights.data(), l.counts.data()};
  }

  void evict_lightest(const LayerCache& cache, const Batch& batch) {
    const std::vector<std::uint32_t> capacities = budgets(options_.capacity, batch);
    std::vector<std::uint32_t> recents;
    for (const std::uint32_t c : capacities) recents.push_back(std::min(options_.recent.value_or(c - c / 2), c));
    evict(stream(), pool(), batch.view, cache.shape, on_device(capacities).data(), on_device(recents).data(),
          options_.rank == H2oRank::mean, state(cache.layer));
  }

  H2oOptions options_;
  std::vector<Layer> layers_;
};

}  // namespace

std::unique_ptr<DeviceMethod> make_h2o(Context& context, const ModelConfig& config, const H2oOptions& options) {
  return std::make_unique<H2o>(context, config, options);
}

}  // namespace csdsim::host::cuda
