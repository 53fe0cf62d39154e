#include <algorithm>
#include <bit>

#include "base/error.h"
#include "host_runtime/cuda/attention/device_method.h"

namespace csdsim::host::cuda {
namespace {

class Chunks final : public DeviceMethod {
 public:
  Chunks(Context& context, const ModelConfig& config, const ChunkOptions& options)
      : DeviceMethod(context, config), options_(options) {
    shape_.count = static_cast<std::uint32_t>(std::bit_width(options.chunk / options.leaf));
    shape_.leaf = options.leaf;
    if (shape_.count > ChunkLevels::kMost) throw InternalError("cuda: too many sizes of chunks");
    layers_ = made(config.layers, [&] {
      return made(shape_.count, [&] { return SlotArray<__half>(config.kv_heads, std::size_t{2} * config.head_dim); });
    });
  }

  void reserve(std::size_t slots, std::size_t capacity) override {
    shape_.capacity = static_cast<std::uint32_t>(capacity);
    for (auto& levels : layers_) {
      for (std::uint32_t i = 0; i < shape_.count; ++i) {
        levels[i].reserve(stream(), pool(), slots, shape_.chunks(i, shape_.capacity));
      }
    }
  }

  void extend(const LayerCache& cache, const Batch& batch) override {
    extend_chunks(stream(), batch.view, cache.shape, cache.keys, levels(cache.layer));
  }

  Choice choose(const LayerCache& cache, const Batch& batch, const __half* q) override {
    Choice choice = empty_choice(batch, config_.kv_heads);
    examined_ = DeviceBuffer<std::uint32_t>(pool(), choice.counts.size());
    const std::vector<std::uint32_t> counts = budgets(options_.tokens, batch);
    choice.most = *std::max_element(counts.begin(), counts.end());
    choose_by_chunks(stream(), pool(), batch.view, cache.shape, q, levels(cache.layer), on_device(counts).data(),
                     choice.stride, choice.chosen.data(), choice.counts.data(), examined_.data());
    return choice;
  }

  void describe(const Batch& batch, std::span<HeadSelection> selections) override {
    DeviceMethod::describe(batch, selections);
    std::vector<std::uint32_t> examined(examined_.size());
    copy_to_host(stream(), static_cast<const std::uint32_t*>(examined_.data()), std::span(examined));
    for (std::size_t i = 0; i < selections.size(); ++i) {
      selections[i].elements += std::uint64_t{2} * config_.head_dim * examined[i];
    }
  }

 private:
  ChunkLevels levels(LayerId layer) const {
    ChunkLevels result = shape_;
    for (std::uint32_t i = 0; i < shape_.count; ++i) result.abstracts[i] = layers_[layer.value][i].data();
    return result;
  }

  ChunkOptions options_;
  ChunkLevels shape_;
  std::vector<std::vector<SlotArray<__half>>> layers_;  // by layer and level
  DeviceBuffer<std::uint32_t> examined_;                // keys examined in the step under way
};

}  // namespace

std::unique_ptr<DeviceMethod> make_chunks(Context& context, const ModelConfig& config, const ChunkOptions& options) {
  return std::make_unique<Chunks>(context, config, options);
}

}  // namespace csdsim::host::cuda
