#include <algorithm>

#include "host_runtime/cuda/attention/device_method.h"

namespace csdsim::host::cuda {
namespace {

class Importance final : public DeviceMethod {
 public:
  Importance(Context& context, const ModelConfig& config, const ImportanceOptions& options)
      : DeviceMethod(context, config), options_(options) {
    if (options_.ahead) ahead_ = made(config.layers, [&] { return SlotArray<__half>(1, config.q_width()); });
    if (exact()) return;
    layers_ = made(config.layers, [&] {
      return Layer{SlotArray<std::int8_t>(config.kv_heads, config.head_dim), SlotArray<float>(config.kv_heads, 1)};
    });
  }

  void reserve(std::size_t slots, std::size_t capacity) override {
    for (SlotArray<__half>& q : ahead_) q.reserve(stream(), pool(), slots, 1);
    for (Layer& layer : layers_) {
      layer.keys.reserve(stream(), pool(), slots, capacity);
      layer.scales.reserve(stream(), pool(), slots, capacity);
    }
  }

  void extend(const LayerCache& cache, const Batch& batch) override {
    if (exact()) return;
    const Layer& layer = layers_[cache.layer.value];
    quantise_keys(stream(), batch.view, cache.shape, cache.keys, options_.bits, layer.keys.data(), layer.scales.data());
  }

  bool speculates() const override { return options_.ahead; }
  void speculate(LayerId layer, std::span<const std::uint32_t> slots, const __half* q) override {
    for (std::size_t i = 0; i < slots.size(); ++i) copy_row(q, i, ahead_[layer.value].data(), slots[i]);
  }

  Choice choose(const LayerCache& cache, const Batch& batch, const __half* q) override {
    const bool ahead = options_.ahead && cache.layer.value > 0;
    const DeviceBuffer<__half> speculated(pool(), ahead ? batch.slots.size() * config_.q_width() : 1);
    for (std::size_t i = 0; ahead && i < batch.slots.size(); ++i)
      copy_row(ahead_[cache.layer.value].data(), batch.slots[i], speculated.data(), i);
    if (ahead) q = speculated.data();
    const bool per_head = options_.aggregate == ScoreAggregate::per_head;
    Choice choice = empty_choice(batch, per_head ? config_.kv_heads : 1);
    const std::size_t rows = std::size_t{batch.view.count} * config_.heads;
    const DeviceBuffer<std::int8_t> queries(pool(), rows * config_.head_dim);
    const DeviceBuffer<float> query_scales(pool(), rows), scores(pool(), choice.chosen.size());
    ImportanceQuery query;
    if (exact()) {
      query.exact_q = q;
      query.exact_keys = cache.keys;
    } else {
      const Layer& layer = layers_[cache.layer.value];
      quantise(stream(), q, rows, config_.head_dim, queries.data(), query_scales.data());
      query.q = queries.data();
      query.q_scales = query_scales.data();
      query.keys = layer.keys.data();
      query.key_scales = layer.scales.data();
    }
    query.per_head = per_head;
    query.largest = options_.aggregate == ScoreAggregate::max_raw;
    importance(stream(), batch.view, cache.shape, query, choice.stride, scores.data());
    counts_ = budgets(options_.tokens, batch);
    choice.counts = on_device(repeated(counts_, choice.lists));
    choice.most = *std::max_element(counts_.begin(), counts_.end());
    const std::vector<std::uint32_t> newest(counts_.size(), 1);
    choose_best(stream(), batch.view, choice.lists, choice.stride, scores.data(), on_device(newest).data(),
                choice.counts.data(), choice.chosen.data());
    return choice;
  }

  void describe(const Batch& batch, std::span<HeadSelection> selections) override {
    DeviceMethod::describe(batch, selections);
    for (std::size_t i = 0; i < selections.size(); ++i) {
      const std::size_t sequence = i / config_.kv_heads;
      const std::uint64_t length = batch.lengths[sequence];
      if (counts_[sequence] < length) selections[i].elements += length * config_.head_dim * options_.bits / 16;
    }
  }

 private:
  struct Layer {
    SlotArray<std::int8_t> keys;
    SlotArray<float> scales;
  };
  bool exact() const { return options_.bits == 16; }
  /// The queries of a sequence.
  void copy_row(const __half* from, std::size_t row, __half* to, std::size_t to_row) {
    const std::size_t width = config_.q_width();
    CSDSIM_CUDA(cudaMemcpyAsync(to + to_row * width, from + row * width, width * sizeof(__half),
                                cudaMemcpyDeviceToDevice, stream().get()));
  }

  ImportanceOptions options_;
  std::vector<Layer> layers_;
  std::vector<SlotArray<__half>> ahead_;  // [layer], queries computed from the input of the layer before, by slot
  std::vector<std::uint32_t> counts_;     // counts of the step under way
};

}  // namespace

std::unique_ptr<DeviceMethod> make_importance(Context& context, const ModelConfig& config,
                                              const ImportanceOptions& options) {
  return std::make_unique<Importance>(context, config, options);
}

}  // namespace csdsim::host::cuda
