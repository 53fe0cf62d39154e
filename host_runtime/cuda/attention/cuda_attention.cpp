#include "host_runtime/cuda/attention/cuda_attention.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <type_traits>

#include "base/error.h"
#include "host_runtime/core/decoder/decoder.h"

namespace csdsim::host::cuda {
namespace {

constexpr std::size_t kLeastCapacity = 64;

DeviceBuffer<__half> on_device(Context& context, std::span<const Half> values) {
  static_assert(sizeof(Half) == sizeof(__half));
  DeviceBuffer<__half> copy(context.pool, values.size());
  copy_to_device(context.stream, std::span(reinterpret_cast<const __half*>(values.data()), values.size()), copy.data());
  return copy;
}

DeviceBuffer<float> on_device(Context& context, std::span<const float> values) {
  DeviceBuffer<float> copy(context.pool, values.size());
  copy_to_device(context.stream, values, copy.data());
  return copy;
}

template <class V>
std::vector<V> on_host(Context& context, const DeviceBuffer<V>& buffer) {
  std::vector<V> values(buffer.size());
  copy_to_host(context.stream, static_cast<const V*>(buffer.data()), std::span<V>(values));
  return values;
}

}  // namespace

DeviceAttention::DeviceAttention(Context& context, const ModelConfig& config, const MethodOptions& options)
    : context_(context),
      config_(config),
      method_(make_device_method(context, config, options)),
      layers_(made(config.layers, [&] {
        return Layer{SlotArray<__half>(config.kv_heads, config.head_dim),
                     SlotArray<__half>(config.kv_heads, config.head_dim),
                     {}};
      })) {}

void DeviceAttention::create_sequence(SequenceId sequence) {
  if (free_slots_.empty()) {
    const std::size_t before = slots_;
    make_room(std::max<std::size_t>(1, 2 * slots_), capacity_);
    for (std::size_t slot = slots_; slot > before; --slot) free_slots_.push_back(static_cast<std::uint32_t>(slot - 1));
  }
  if (!sequences_.emplace(sequence, free_slots_.back()).second) {
    throw InternalError("cuda attention: the sequence exists already");
  }
  for (Layer& layer : layers_) layer.lengths[free_slots_.back()] = 0;
  free_slots_.pop_back();
}

void DeviceAttention::free_sequence(SequenceId sequence) {
  const auto it = sequences_.find(sequence);
  if (it == sequences_.end()) throw InternalError("cuda attention: no such sequence");
  method_->forget(it->second);
  free_slots_.push_back(it->second);
  sequences_.erase(it);
}

void DeviceAttention::make_room(std::size_t slots, std::size_t tokens) {
  std::size_t capacity = std::max(kLeastCapacity, capacity_);
  while (capacity < tokens) capacity *= 2;
  slots = std::max(slots, slots_);
  if (slots == slots_ && capacity == capacity_) return;
  for (Layer& layer : layers_) {
    layer.keys.reserve(context_.stream, context_.pool, slots, capacity);
    layer.values.reserve(context_.stream, context_.pool, slots, capacity);
    layer.lengths.resize(slots, 0);
  }
  method_->reserve(slots, capacity);
  slots_ = slots;
  capacity_ = capacity;
}

std::vector<std::uint32_t> DeviceAttention::slots_of(std::span<const SequenceId> sequences) const {
  std::vector<std::uint32_t> slots;
  for (const SequenceId sequence : sequences) {
    const auto it = sequences_.find(sequence);
    if (it == sequences_.end()) throw InternalError("cuda attention: no such sequence");
    slots.push_back(it->second);
  }
  return slots;
}

LayerCache DeviceAttention::cache(LayerId layer) const {
  const Layer& l = layers_.at(layer.value);
  return {layer,
          {config_.heads, config_.kv_heads, config_.head_dim, static_cast<std::uint32_t>(capacity_)},
          l.keys.data(),
          l.values.data()};
}

Batch DeviceAttention::batch_of(LayerId layer, std::vector<std::uint32_t> slots,
                                std::span<const std::uint32_t> counts) const {
  Batch batch;
  batch.slots = std::move(slots);
  std::uint32_t row = 0;
  for (std::size_t i = 0; i < batch.slots.size(); ++i) {
    const std::uint32_t length = layers_.at(layer.value).lengths[batch.slots[i]];
    batch.rows.push_back(row);
    batch.firsts.push_back(length - counts[i]);
    batch.lengths.push_back(length);
    row += counts[i];
  }
  const std::size_t n = batch.slots.size();
  std::vector<std::uint32_t> all;
  for (const auto* part : {&batch.slots, &batch.rows, &batch.firsts, &batch.lengths}) {
    all.insert(all.end(), part->begin(), part->end());
  }
  batch.on_device = DeviceBuffer<std::uint32_t>(context_.pool, all.size());
  copy_to_device(context_.stream, std::span<const std::uint32_t>(all), batch.on_device.data());
  const std::uint32_t* first = batch.on_device.data();
  batch.view = {first,
                first + n,
                first + 2 * n,
                first + 3 * n,
                static_cast<std::uint32_t>(n),
                *std::max_element(batch.lengths.begin(), batch.lengths.end()),
                *std::max_element(counts.begin(), counts.end())};
  return batch;
}

Batch DeviceAttention::append(LayerId layer, std::vector<std::uint32_t> slots, std::span<const std::uint32_t> counts,
                              const __half* k, const __half* v) {
  std::vector<std::uint32_t>& lengths = layers_.at(layer.value).lengths;
  for (std::size_t i = 0; i < slots.size(); ++i) lengths[slots[i]] += counts[i];
  make_room(slots_, *std::max_element(lengths.begin(), lengths.end()));
  Batch batch = batch_of(layer, std::move(slots), counts);
  Layer& l = layers_[layer.value];
  extend_cache(context_.stream, batch.view, k, v, cache(layer).shape, l.keys.data(), l.values.data());
  method_->extend(cache(layer), batch);
  return batch;
}

void DeviceAttention::store(LayerId layer, std::span<const SequenceSlice> slices, std::span<const Half> k,
                            std::span<const Half> v) {
  std::vector<SequenceId> sequences;
  std::vector<std::uint32_t> counts;
  for (const SequenceSlice& slice : slices) {
    sequences.push_back(slice.sequence);
    counts.push_back(slice.tokens);
  }
  const std::size_t rows = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
  if (rows * config_.kv_width() > k.size() || k.size() != v.size()) {
    throw InternalError("cuda attention: rows are missing");
  }
  if (rows == 0) return;
  append(layer, slots_of(sequences), counts, on_device(context_, k).data(), on_device(context_, v).data());
}

void DeviceAttention::learn(LayerId layer, std::span<const SequenceSlice> slices, std::span<const float> q) {
  std::vector<SequenceId> sequences;
  std::vector<std::uint32_t> counts;
  for (const SequenceSlice& slice : slices) {
    sequences.push_back(slice.sequence);
    counts.push_back(slice.tokens);
  }
  const DeviceBuffer<float> wide = on_device(context_, q);
  const DeviceBuffer<__half> rows = halves(static_cast<const float*>(wide.data()), q.size());
  convert(context_.stream, static_cast<const __half*>(rows.data()), wide.data(), q.size());
  const std::vector<float> rounded = on_host(context_, wide);
  method_->learn(cache(layer), batch_of(layer, slots_of(sequences), counts), rounded, rows.data());
}

void DeviceAttention::speculate(LayerId layer, std::span<const SequenceId> sequences, std::span<const float> q) {
  const DeviceBuffer<float> wide = on_device(context_, q);
  speculate_on_device(layer, sequences, halves(static_cast<const float*>(wide.data()), q.size()).data());
}

void DeviceAttention::speculate_on_device(LayerId layer, std::span<const SequenceId> sequences, const __half* q) {
  method_->speculate(layer, slots_of(sequences), q);
}

void DeviceAttention::attend(LayerId layer, std::span<const SequenceId> sequences, std::span<const float> q,
                             std::span<const Half> k, std::span<const Half> v, std::span<Half> out) {
  const std::size_t rows = sequences.size();
  if (q.size() != rows * config_.q_width() || out.size() != q.size() || k.size() != rows * config_.kv_width() ||
      v.size() != k.size()) {
    throw InternalError("cuda attention: one row a sequence is needed");
  }
  if (rows == 0) return;
  const DeviceBuffer<float> wide = on_device(context_, q), attended(context_.pool, q.size());
  const DeviceBuffer<__half> queries = halves(static_cast<const float*>(wide.data()), q.size());
  attend_on_device(layer, sequences, queries.data(), on_device(context_, k).data(), on_device(context_, v).data(),
                   attended.data());
  const DeviceBuffer<__half> rounded = halves(static_cast<const float*>(attended.data()), q.size());
  copy_to_host(context_.stream, static_cast<const __half*>(rounded.data()),
               std::span(reinterpret_cast<__half*>(out.data()), out.size()));
}

void DeviceAttention::attend_on_device(LayerId layer, std::span<const SequenceId> sequences, const __half* q,
                                       const __half* k, const __half* v, float* out) {
  const std::vector<std::uint32_t> ones(sequences.size(), 1);
  const Batch batch = append(layer, slots_of(sequences), ones, k, v);
  const LayerCache at = cache(layer);
  const Choice choice = method_->choose(at, batch, q);
  const DeviceBuffer<float2> softmax(context_.pool, observer_ ? sequences.size() * config_.heads : 0);
  DecodeQuery<__half, float> query;
  query.q = q;
  query.q_stride = query.out_stride = config_.q_width();
  query.out = out;
  query.sequences = sequences.size();
  query.keys = at.keys;
  query.values = at.values;
  query.slots = batch.view.slots;
  query.lengths = batch.view.lengths;
  if (choice.lists > 0) {
    query.chosen = choice.chosen.data();
    query.chosen_counts = choice.counts.data();
    query.chosen_lists = choice.lists;
    query.chosen_stride = choice.stride;
  }
  if (observer_) query.softmax = softmax.data();
  decode_attention(context_.stream, context_.pool, context_.device, query, at.shape,
                   choice.lists > 0 ? choice.most : batch.view.longest);
  method_->finish(at, batch, choice, q, out);
  if (observer_) observe(layer, sequences, batch, choice, query);
}

void DeviceAttention::observe(LayerId layer, std::span<const SequenceId> sequences, const Batch& batch,
                              const Choice& choice, const DecodeQuery<__half, float>& query) {
  const std::uint32_t group = config_.group_size();
  std::vector<HeadSelection> selections(sequences.size() * config_.kv_heads);
  std::vector<std::uint32_t> chosen, counts;
  std::vector<float2> part, all;
  if (choice.lists > 0) {
    chosen = on_host(context_, choice.chosen);
    counts = on_host(context_, choice.counts);
    // The mass of what was chosen follows from the softmax over everything.
    const DeviceBuffer<float> ignored(context_.pool, sequences.size() * config_.q_width());
    const DeviceBuffer<float2> softmax(context_.pool, sequences.size() * config_.heads);
    DecodeQuery<__half, float> dense = query;
    dense.chosen = dense.chosen_counts = nullptr;
    dense.out = ignored.data();
    dense.softmax = softmax.data();
    decode_attention(context_.stream, context_.pool, context_.device, dense, cache(layer).shape, batch.view.longest);
    all = on_host(context_, softmax);
    part.resize(all.size());
    copy_to_host(context_.stream, static_cast<const float2*>(query.softmax), std::span<float2>(part));
  }
  for (std::size_t i = 0; i < selections.size(); ++i) {
    const std::size_t sequence = i / config_.kv_heads;
    std::vector<TokenIndex>& tokens = selections[i].tokens;
    if (choice.lists == 0) {
      for (std::uint32_t t = 0; t < batch.lengths[sequence]; ++t) tokens.push_back(TokenIndex{t});
      continue;
    }
    const std::size_t list = choice.lists == 1 ? sequence : i;
    for (std::uint32_t t = 0; t < counts[list]; ++t) tokens.push_back(TokenIndex{chosen[list * choice.stride + t]});
    std::sort(tokens.begin(), tokens.end());
  }
  method_->describe(batch, selections);
  for (std::size_t i = 0; i < selections.size(); ++i) {
    const std::size_t sequence = i / config_.kv_heads;
    std::vector<float> mass(group, 1.0f);
    for (std::uint32_t g = 0; g < group && selections[i].tokens.size() < batch.lengths[sequence]; ++g) {
      const float2 kept = part[i * group + g], whole = all[i * group + g];
      mass[g] = std::min(kept.y * std::exp(kept.x - whole.x) / whole.y, 1.0f);  // rounding may make it exceed 1
    }
    observer_({sequences[sequence], layer, KvHead{static_cast<std::uint32_t>(i % config_.kv_heads)},
               batch.lengths[sequence], mass, selections[i]});
  }
}

namespace {

// As fp16; without a copy if they are fp16 already.
template <class T>
struct Halves {
  DeviceBuffer<__half> made;
  const __half* data = nullptr;

  Halves(Context& context, const Tensor& tensor) {
    const T* values = static_cast<const CudaTensor<T>&>(*tensor.storage).values.data();
    if constexpr (std::is_same_v<T, __half>) {
      data = values;
    } else {
      made = DeviceBuffer<__half>(context.pool, tensor.rows * tensor.cols);
      convert(context.stream, values, made.data(), made.size());
      data = made.data();
    }
  }
};

}  // namespace

template <class T>
void CudaAttention<T>::speculate_rows(const Decoder& decoder, LayerId layer, std::span<const SequenceId> sequences,
                                      const Tensor& q) {
  if (&decoder.backend() != &backend_) return DeviceAttention::speculate_rows(decoder, layer, sequences, q);
  speculate_on_device(layer, sequences, Halves<T>(context_, q).data);
}

template <class T>
Tensor CudaAttention<T>::attend_rows(const Decoder& decoder, LayerId layer, std::span<const SequenceId> sequences,
                                     const AttentionInputs& inputs) {
  if (&decoder.backend() != &backend_) return DeviceAttention::attend_rows(decoder, layer, sequences, inputs);
  const std::size_t count = inputs.q.rows * inputs.q.cols;
  const Halves<T> q(context_, inputs.q), k(context_, inputs.k), v(context_, inputs.v);
  const DeviceBuffer<float> attended(context_.pool, count);
  attend_on_device(layer, sequences, q.data, k.data, v.data, attended.data());
  Tensor out = backend_.allocate(inputs.q.rows, inputs.q.cols);
  T* const to = static_cast<CudaTensor<T>&>(*out.storage).values.data();
  if constexpr (std::is_same_v<T, __half>) {
    convert(context_.stream, static_cast<const float*>(attended.data()), to, count);
  } else {
    convert(context_.stream,
            static_cast<const __half*>(halves(static_cast<const float*>(attended.data()), count).data()), to, count);
  }
  return out;
}

template class CudaAttention<__half>;
template class CudaAttention<__nv_bfloat16>;

}  // namespace csdsim::host::cuda
