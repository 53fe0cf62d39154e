#include "host_runtime/cuda/attention/device_method.h"

#include <algorithm>

namespace csdsim::host::cuda {
namespace {

class Dense final : public DeviceMethod {
 public:
  using DeviceMethod::DeviceMethod;
  void reserve(std::size_t, std::size_t) override {}
  Choice choose(const LayerCache&, const Batch&, const __half*) override { return {}; }
  void describe(const Batch& batch, std::span<HeadSelection> selections) override {
    DeviceMethod::describe(batch, selections);
    for (HeadSelection& s : selections) s.alpha.assign(config_.group_size(), 1.0f);
  }
};

class Local final : public DeviceMethod {
 public:
  Local(Context& context, const ModelConfig& config, const LocalOptions& options)
      : DeviceMethod(context, config), options_(options) {}
  void reserve(std::size_t, std::size_t) override {}
  Choice choose(const LayerCache&, const Batch& batch, const __half*) override {
    Choice choice = empty_choice(batch, 1);
    const std::vector<std::uint32_t> counts = budgets(options_.tokens, batch);
    choice.counts = on_device(counts);
    choice.most = *std::max_element(counts.begin(), counts.end());
    choose_window(stream(), batch.view, options_.sinks, choice.stride, choice.counts.data(), choice.chosen.data());
    return choice;
  }

 private:
  LocalOptions options_;
};

/// Makes a method from its options.
struct Maker {
  Context& context;
  const ModelConfig& config;
  using Made = std::unique_ptr<DeviceMethod>;

  Made operator()(const DenseOptions&) const { return std::make_unique<Dense>(context, config); }
  Made operator()(const SparqOptions& o) const { return make_sparq(context, config, o); }
  Made operator()(const H2oOptions& o) const { return make_h2o(context, config, o); }
  Made operator()(const LocalOptions& o) const { return std::make_unique<Local>(context, config, o); }
  Made operator()(const InfinigenOptions& o) const { return make_infinigen(context, config, o); }
  Made operator()(const ChunkOptions& o) const { return make_chunks(context, config, o); }
  Made operator()(const ImportanceOptions& o) const { return make_importance(context, config, o); }
};

}  // namespace

void DeviceMethod::describe(const Batch&, std::span<HeadSelection> selections) {
  for (HeadSelection& s : selections) s.elements = 2 * s.tokens.size() * config_.head_dim;
}

DeviceBuffer<std::uint32_t> DeviceMethod::on_device(std::span<const std::uint32_t> values) const {
  DeviceBuffer<std::uint32_t> copy(pool(), values.size());
  copy_to_device(stream(), values, copy.data());
  return copy;
}

std::vector<std::uint32_t> DeviceMethod::budgets(const TokenBudget& budget, const Batch& batch) const {
  std::vector<std::uint32_t> counts;
  for (const std::uint32_t length : batch.lengths) counts.push_back(budget.at(length));
  return counts;
}

Choice DeviceMethod::empty_choice(const Batch& batch, std::uint32_t lists) const {
  Choice choice;
  choice.lists = lists;
  choice.stride = choice.most = batch.view.longest;
  choice.chosen = DeviceBuffer<std::uint32_t>(pool(), std::size_t{batch.view.count} * lists * choice.stride);
  choice.counts = DeviceBuffer<std::uint32_t>(pool(), std::size_t{batch.view.count} * lists);
  return choice;
}

std::vector<std::uint32_t> DeviceMethod::repeated(std::span<const std::uint32_t> values, std::uint32_t times) {
  std::vector<std::uint32_t> all;
  for (const std::uint32_t value : values) all.insert(all.end(), times, value);
  return all;
}

bool supports_on_device(const MethodOptions& options, const ModelConfig& config) {
  if (config.head_dim > 256) return false;
  // The dot product handles four bytes at a time.
  const auto* const importance = std::get_if<ImportanceOptions>(&options);
  return importance == nullptr || (config.head_dim % 4 == 0 && !importance->ahead);
}

std::unique_ptr<DeviceMethod> make_device_method(Context& context, const ModelConfig& config,
                                                 const MethodOptions& options) {
  return std::visit(Maker{context, config}, options);
}

}  // namespace csdsim::host::cuda
