#include <algorithm>

#include "host_runtime/cuda/attention/device_method.h"

namespace csdsim::host::cuda {
namespace {

class Sparq final : public DeviceMethod {
 public:
  Sparq(Context& context, const ModelConfig& config, const SparqOptions& options)
      : DeviceMethod(context, config),
        options_(options),
        r_(std::min(options.components, config.head_dim)),
        layers_(made(config.layers, [&] {
          return Layer{SlotArray<__half>(std::size_t{config.kv_heads} * config.head_dim, 1),
                       SlotArray<float>(config.kv_heads, config.head_dim)};
        })) {}

  void reserve(std::size_t slots, std::size_t capacity) override {
    for (Layer& layer : layers_) {
      layer.components.reserve(stream(), pool(), slots, capacity);
      layer.means.reserve(stream(), pool(), slots, 1);
    }
  }

  void extend(const LayerCache& cache, const Batch& batch) override {
    const Layer& layer = layers_[cache.layer.value];
    extend_components(stream(), batch.view, cache.shape, cache.keys, cache.values, layer.components.data(),
                      layer.means.data());
  }

  Choice choose(const LayerCache& cache, const Batch& batch, const __half* q) override {
    const std::uint32_t stride = batch.view.longest;
    const std::size_t lists = std::size_t{batch.view.count} * config_.kv_heads,
                      heads = std::size_t{batch.view.count} * config_.heads;
    counts_ = budgets(options_.tokens, batch);
    std::vector<std::uint32_t> newest;
    for (const std::uint32_t count : counts_) newest.push_back(std::min(options_.local.value_or(count / 4), count));
    chosen_components_ = DeviceBuffer<std::uint32_t>(pool(), lists * r_);
    logits_ = DeviceBuffer<float>(pool(), heads * stride);
    softmax_ = DeviceBuffer<float2>(pool(), heads);
    const DeviceBuffer<float> tau(pool(), heads), scores(pool(), lists * stride);
    choose_components(stream(), batch.view, cache.shape, q, r_, chosen_components_.data(), tau.data());
    component_logits(stream(), batch.view, cache.shape, q, layers_[cache.layer.value].components.data(),
                     chosen_components_.data(), tau.data(), r_, stride, logits_.data());
    softmax_scales(stream(), batch.view.count, cache.shape, logits_.data(), stride, batch.view.lengths, 1,
                   softmax_.data());
    const bool probabilities = options_.group_top_k == GroupTopK::sum_probabilities && config_.group_size() > 1;
    combine_logits(stream(), batch.view, cache.shape, logits_.data(), stride, softmax_.data(), probabilities,
                   scores.data());
    Choice choice = empty_choice(batch, config_.kv_heads);
    choice.counts = on_device(repeated(counts_, config_.kv_heads));
    choice.most = *std::max_element(counts_.begin(), counts_.end());
    choose_best(stream(), batch.view, config_.kv_heads, stride, scores.data(), on_device(newest).data(),
                choice.counts.data(), choice.chosen.data());
    return choice;
  }

  void finish(const LayerCache& cache, const Batch& batch, const Choice& choice, const __half*, float* out) override {
    alpha_ = DeviceBuffer<float>(pool(), std::size_t{batch.view.count} * config_.heads);
    BlendArguments blend;
    blend.logits = logits_.data();
    blend.softmax = softmax_.data();
    blend.chosen = choice.chosen.data();
    blend.counts = choice.counts.data();
    blend.values = cache.values;
    blend.means = layers_[cache.layer.value].means.data();
    blend.stride = choice.stride;
    blend.reallocate = options_.reallocate;
    blend.mean_of_rest = options_.mean == MeanValue::rest;
    blend.alpha = alpha_.data();
    blend_mean(stream(), batch.view, cache.shape, blend, out);
  }

  void describe(const Batch& batch, std::span<HeadSelection> selections) override {
    std::vector<std::uint32_t> components(chosen_components_.size());
    std::vector<float> alpha(alpha_.size());
    copy_to_host(stream(), static_cast<const std::uint32_t*>(chosen_components_.data()), std::span(components));
    copy_to_host(stream(), static_cast<const float*>(alpha_.data()), std::span(alpha));
    DeviceMethod::describe(batch, selections);
    const std::uint32_t group = config_.group_size();
    for (std::size_t i = 0; i < selections.size(); ++i) {
      HeadSelection& s = selections[i];
      s.alpha.assign(alpha.begin() + static_cast<std::ptrdiff_t>(i * group),
                     alpha.begin() + static_cast<std::ptrdiff_t>((i + 1) * group));
      const std::uint32_t length = batch.lengths[i / config_.kv_heads];
      if (counts_[i / config_.kv_heads] >= length) continue;  // dense
      s.components.assign(components.begin() + static_cast<std::ptrdiff_t>(i * r_),
                          components.begin() + static_cast<std::ptrdiff_t>((i + 1) * r_));
      s.elements += std::uint64_t{length} * r_;
    }
  }

 private:
  struct Layer {
    SlotArray<__half> components;  // [slot][kv head][d][capacity]
    SlotArray<float> means;        // [slot][kv head][d]
  };
  SparqOptions options_;
  std::uint32_t r_;
  std::vector<Layer> layers_;
  // State of the step under way.
  std::vector<std::uint32_t> counts_;
  DeviceBuffer<std::uint32_t> chosen_components_;
  DeviceBuffer<float> logits_, alpha_;
  DeviceBuffer<float2> softmax_;
};

}  // namespace

std::unique_ptr<DeviceMethod> make_sparq(Context& context, const ModelConfig& config, const SparqOptions& options) {
  return std::make_unique<Sparq>(context, config, options);
}

}  // namespace csdsim::host::cuda
