// The steps of OffloadedModel: what is put into which stream, and what waits for what.
#include <algorithm>
#include <chrono>
#include <numeric>

#include "base/error.h"
#include "host_runtime/cuda/offloaded_model.h"

namespace csdsim::host::cuda {

template <class T>
std::uint32_t OffloadedModel<T>::cached(std::uint64_t number, std::uint32_t sequence) const {
  return prompts_[sequence] + static_cast<std::uint32_t>(number / items_.size()) - 1;
}

template <class T>
void OffloadedModel<T>::copy(CopyStream stream, void* to, std::size_t to_pitch, const void* from,
                             std::size_t from_pitch, std::size_t width, std::size_t rows) {
  if (width == 0 || rows == 0) return;
  const bool in = stream != CopyStream::kv_out && stream != CopyStream::activations_out;
  CSDSIM_CUDA(cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, width, rows,
                                in ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost,
                                copy_streams_[static_cast<std::size_t>(stream)].get()));
  report_.copies[static_cast<std::size_t>(stream)].bytes += width * rows;
}

/// K and V of tokens of a sequence, between its caches in host memory and the buffer of the item.
template <class T>
void OffloadedModel<T>::copy_kv(CopyStream stream, std::uint64_t number, std::uint32_t sequence, std::uint32_t first,
                                std::uint32_t tokens) {
  const std::size_t row = std::size_t{shape_.d} * sizeof(T), host_pitch = capacity_of(sequence) * row,
                    pitch = capacity_ * row;
  const Item at = item(number);
  KvBuffer& buffer = kv_buffer(number);
  HostCache& cache = layers_[at.layer].caches[sequence];
  const std::size_t slot = (sequence - mini_batches_[at.mini_batch].first) * std::size_t{shape_.kv_heads} * capacity_;
  const auto both = [&](T* host, T* device) {
    host += std::size_t{first} * shape_.d;
    device += (slot + first) * shape_.d;
    if (stream == CopyStream::kv_in) {
      copy(stream, device, pitch, host, host_pitch, tokens * row, shape_.kv_heads);
    } else {
      copy(stream, host, host_pitch, device, pitch, tokens * row, shape_.kv_heads);
    }
  };
  both(cache.keys.data(), buffer.keys.data());
  both(cache.values.data(), buffer.values.data());
}

template <class T>
void OffloadedModel<T>::copy_weights(std::uint64_t visit) {
  const auto at = std::ranges::find(items_, visit % visits_, &Item::visit);
  Layer& layer = layers_[at->layer];
  WeightBuffer& buffer = weight_buffers_[visit % weight_buffers_.size()];
  TimedStream& timed = stream(CopyStream::weights_in);
  timed.stream().wait(buffer.used);
  const std::size_t q = std::size_t{parts_.config().q_width()} * parts_.config().width;
  const auto range = [&](std::size_t from, std::size_t to) {
    const std::size_t bytes = (to - from) * sizeof(T);
    copy(CopyStream::weights_in, buffer.block.data() + from, bytes, layer.block.data() + from, bytes, bytes, 1);
  };
  // W_K and W_V before W_Q, W_O and the feed-forward network.
  timed.run([&] { range(q, layer.weights.qkv.elements()); });
  buffer.kv_in.record(timed.stream());
  timed.run([&] {
    range(0, q);
    range(layer.weights.qkv.elements(), layer.weights.block_elements());
  });
  buffer.all_in.record(timed.stream());
}

template <class T>
void OffloadedModel<T>::copy_kv_in(std::uint64_t number) {
  const Item at = item(number);
  const MiniBatch& mb = mini_batches_[at.mini_batch];
  KvBuffer& buffer = kv_buffer(number);
  std::vector<std::uint32_t> tokens;
  for (std::uint32_t s = mb.first; s < mb.first + mb.count; ++s) tokens.push_back(cached(number, s));
  buffer.recomputed.assign(mb.count, 0);
  if (plan_.split) buffer.recomputed = plan_.split(tokens, std::span(prompts_).subspan(mb.first, mb.count));
  for (std::uint32_t i = 0; i < mb.count; ++i)
    if (buffer.recomputed.at(i) > prompts_[mb.first + i])
      throw InternalError("cuda: a split beyond the prompt, whose activations alone are kept");
  const std::uint64_t recomputed =
      std::accumulate(buffer.recomputed.begin(), buffer.recomputed.end(), std::uint64_t{0});
  if (at.layer == 0) {
    const std::uint64_t step = number / items_.size() - 1;
    report_.recomputed.resize(std::max<std::size_t>(report_.recomputed.size(), step + 1));
    report_.cached.resize(report_.recomputed.size());
    report_.recomputed[step] += recomputed;
    report_.cached[step] += std::accumulate(tokens.begin(), tokens.end(), std::uint64_t{0});
  }
  // Activations first: what they are for takes long.
  if (recomputed > 0 && !plan_.activations_on_gpu) {
    TimedStream& timed = stream(CopyStream::recomputation_in);
    timed.stream().wait(buffer.activations_out);
    timed.stream().wait(buffer.recomputed_all);
    timed.run([&] {
      T* to = buffer.activations.data();
      for (std::uint32_t i = 0; i < mb.count; ++i) {
        const std::size_t elements = std::size_t{buffer.recomputed[i]} * parts_.config().width,
                          bytes = elements * sizeof(T);
        copy(CopyStream::recomputation_in, to, bytes, layers_[at.layer].caches[mb.first + i].activations.data(), bytes,
             bytes, 1);
        to += elements;
      }
    });
    buffer.activations_in.record(timed.stream());
  }
  TimedStream& timed = stream(CopyStream::kv_in);
  timed.stream().wait(buffer.attended);
  timed.stream().wait(buffer.kv_out);
  timed.run([&] {
    for (std::uint32_t i = 0; i < mb.count; ++i)
      copy_kv(CopyStream::kv_in, number, mb.first + i, buffer.recomputed[i], tokens[i] - buffer.recomputed[i]);
  });
  buffer.kv_in.record(timed.stream());
}

template <class T>
void OffloadedModel<T>::copy_hidden_in(std::uint64_t number) {
  const Item at = item(number);
  if (at.layer == 0) return;  // embedded
  const MiniBatch& mb = mini_batches_[at.mini_batch];
  HiddenBuffer& buffer = hidden_buffer(number);
  TimedStream& timed = stream(CopyStream::activations_in);
  // After the last layer, the hidden states that were in the buffer do not leave the GPU.
  timed.stream().wait(buffer.made);
  timed.stream().wait(buffer.out);
  timed.run([&] {
    const std::size_t rows = number < items_.size() ? mb.rows : mb.count,
                      bytes = rows * parts_.config().width * sizeof(T);
    copy(CopyStream::activations_in, buffer.values.data(), bytes, mb.hidden.data(), bytes, bytes, 1);
  });
  buffer.in.record(timed.stream());
}

/// Puts the copies of this item and of those ahead of it into their streams.
template <class T>
void OffloadedModel<T>::copy_ahead(std::uint64_t number) {
  const std::uint64_t steps = new_tokens_, all = steps * items_.size();
  if (plan_.weights_on_host) {
    const std::uint64_t visit = number / items_.size() * visits_ + item(number).visit;
    while (weight_copies_ < std::min(visit + weight_buffers_.size(), steps * visits_)) copy_weights(weight_copies_++);
  }
  // The hidden states of an item are those of the same mini-batch one layer before it, which must have been computed.
  const std::uint64_t end_of_step = (number / items_.size() + 1) * items_.size();
  while (moves_hidden() && hidden_copies_ < std::min(number + hidden_buffers_.size(), end_of_step))
    copy_hidden_in(hidden_copies_++);
  while (kv_copies_ < std::min(number + kv_buffers_.size(), all)) copy_kv_in(kv_copies_++);
}

template <class T>
void OffloadedModel<T>::run_step(std::uint64_t step) {
  const auto start = std::chrono::steady_clock::now();
  for (std::uint64_t number = step * items_.size(); number < (step + 1) * items_.size(); ++number) {
    copy_ahead(number);
    compute(number);
    copy_out(number);
    if (!plan_.waits_for_layers) continue;
    compute_.stream().synchronise();
    stream(CopyStream::kv_out).stream().synchronise();
  }
  compute_.stream().synchronise();
  for (TimedStream& timed : copy_timers_) timed.end_step();
  compute_.end_step();
  (step == 0 ? report_.prefill_s : report_.decode_s) +=
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Puts the hidden states that enter an item into its buffer, or waits for them.
template <class T>
void OffloadedModel<T>::enter(std::uint64_t number, bool prompts) {
  HiddenBuffer& hidden = hidden_buffer(number);
  const MiniBatch& mb = mini_batches_[item(number).mini_batch];
  if (item(number).layer > 0) {
    if (moves_hidden()) compute_.stream().wait(hidden.in);
    return;
  }
  compute_.stream().wait(hidden.out);
  compute_.run([&] {
    if (prompts) {
      parts_.embed(mb.prompt_tokens.data(), mb.prompt_positions.data(), mb.rows, hidden.values.data());
    } else {
      parts_.embed(tokens_.data() + mb.first, positions_.data() + mb.first, mb.count, hidden.values.data());
    }
  });
}

/// K and V of the first tokens of each sequence from their activations, into the item's buffer.
template <class T>
void OffloadedModel<T>::recompute(std::uint64_t number) {
  const ModelConfig& c = parts_.config();
  const Item at = item(number);
  const MiniBatch& mb = mini_batches_[at.mini_batch];
  KvBuffer& buffer = kv_buffer(number);
  const std::uint64_t rows = std::accumulate(buffer.recomputed.begin(), buffer.recomputed.end(), std::uint64_t{0});
  if (rows == 0) return;
  if (!plan_.activations_on_gpu) compute_.stream().wait(buffer.activations_in);
  // The item before used this buffer, too: its rows may still be on their way to the host.
  compute_.stream().wait(buffer.kv_out);
  compute_.run([&] {
    if (plan_.activations_on_gpu) {
      const T* from = layers_[at.layer].activations.data() +
                      std::accumulate(prompts_.begin(), prompts_.begin() + mb.first, std::size_t{0}) * c.width;
      T* to = buffer.activations.data();
      for (std::uint32_t i = 0; i < mb.count; ++i) {
        const std::size_t elements = std::size_t{buffer.recomputed[i]} * c.width;
        CSDSIM_CUDA(cudaMemcpyAsync(to, from, elements * sizeof(T), cudaMemcpyDeviceToDevice, compute_.stream().get()));
        from += std::size_t{prompts_[mb.first + i]} * c.width;
        to += elements;
      }
    }
    T* const kv = recomputed_kv_.data();
    const std::size_t width = std::size_t{2} * c.kv_width();
    parts_.project_kv(layers_[at.layer].weights, buffer.activations.data(), rows, kv);
    std::size_t row = 0;
    for (std::uint32_t i = 0; i < mb.count; ++i) {
      const std::uint32_t tokens = buffer.recomputed[i];
      if (tokens == 0) continue;
      T* const k = kv + row * width;
      if (parts_.gated())
        rotate<T>(compute_.stream(), k, counting_.data(), parts_.rotation(), tokens, c.kv_width(), width,
                  c.head_dim / 2);
      const std::size_t slot = std::size_t{i} * c.kv_width() * capacity_;
      store<T>(compute_.stream(), k, k + c.kv_width(), width, tokens, 0, shape_, buffer.keys.data() + slot,
               buffer.values.data() + slot);
      row += tokens;
    }
  });
  buffer.recomputed_all.record(compute_.stream());
}

/// Everything up to attention, of whole prompts.
template <class T>
void OffloadedModel<T>::project_prompts(std::uint64_t number) {
  const ModelConfig& c = parts_.config();
  const Item at = item(number);
  const MiniBatch& mb = mini_batches_[at.mini_batch];
  KvBuffer& buffer = kv_buffer(number);
  Layer& layer = layers_[at.layer];
  Activations<T>& a = activations_[0];
  T* normed = a.normed.data();
  if (keeps_activations()) {
    compute_.stream().wait(buffer.activations_out);
    normed = plan_.activations_on_gpu
                 ? layer.activations.data() +
                       std::accumulate(prompts_.begin(), prompts_.begin() + mb.first, std::size_t{0}) * c.width
                 : buffer.activations.data();
  }
  compute_.stream().wait(buffer.kv_out);
  compute_.run([&] {
    parts_.normalise(hidden_buffer(number).values.data(), layer.weights.attention_norm, mb.rows, normed);
    parts_.prompt_projections(layer.weights, normed, mb.prompt_positions.data(), mb.rows, a.qkv.data());
    const T* row = a.qkv.data() + c.q_width();
    for (std::uint32_t i = 0; i < mb.count; ++i) {
      const std::size_t slot = std::size_t{i} * c.kv_width() * capacity_;
      store<T>(compute_.stream(), row, row + c.kv_width(), parts_.qkv_width(), prompts_[mb.first + i], 0, shape_,
               buffer.keys.data() + slot, buffer.values.data() + slot);
      row += prompts_[mb.first + i] * parts_.qkv_width();
    }
  });
  buffer.made.record(compute_.stream());
  compute_.run([&] { parts_.prompt_attention(a, mb.prompt_starts.data(), mb.count, mb.longest, mb.rows); });
}

/// Everything up to attention, of one token per sequence.
template <class T>
void OffloadedModel<T>::project_tokens(std::uint64_t number) {
  const Item at = item(number);
  const MiniBatch& mb = mini_batches_[at.mini_batch];
  KvBuffer& buffer = kv_buffer(number);
  const LayerWeights<T>& weights = layers_[at.layer].weights;
  Activations<T>& a = activations_[1];
  compute_.run([&] {
    parts_.normalise(hidden_buffer(number).values.data(), weights.attention_norm, mb.count, a.normed.data());
    parts_.project(weights, a.normed.data(), mb.count, a.qkv.data());
  });
  compute_.stream().wait(buffer.kv_in);
  compute_.run([&] {
    append<T>(compute_.stream(), a.qkv.data(), positions_.data() + mb.first, parts_.rotation(), mb.count, shape_,
              buffer.keys.data(), buffer.values.data());
  });
  buffer.made.record(compute_.stream());
  compute_.run([&] {
    parts_.step_attention(a, mb.count, lengths_.data() + mb.first, shape_, buffer.keys.data(), buffer.values.data());
  });
  buffer.attended.record(compute_.stream());
}

/// The rest of the layer; after the last one, the logits.
template <class T>
void OffloadedModel<T>::leave(std::uint64_t number, bool prompts) {
  const ModelConfig& c = parts_.config();
  const Item at = item(number);
  const MiniBatch& mb = mini_batches_[at.mini_batch];
  HiddenBuffer& hidden = hidden_buffer(number);
  T* const x = hidden.values.data();
  compute_.run([&] {
    parts_.finish_layer(layers_[at.layer].weights, activations_[prompts ? 0 : 1], x, prompts ? mb.rows : mb.count);
    if (at.layer + 1 < c.layers) return;
    std::size_t end = 0;
    for (std::uint32_t i = 0; i < mb.count; ++i) {
      end += prompts ? prompts_[mb.first + i] : 1;
      CSDSIM_CUDA(cudaMemcpyAsync(last_rows_.data() + std::size_t{i} * c.width, x + (end - 1) * c.width,
                                  c.width * sizeof(T), cudaMemcpyDeviceToDevice, compute_.stream().get()));
    }
    parts_.logits(last_rows_.data(), mb.count, activations_[1].normed.data(),
                  logits_.data() + std::size_t{mb.first} * c.vocab);
  });
  hidden.made.record(compute_.stream());
}

template <class T>
void OffloadedModel<T>::compute(std::uint64_t number) {
  const bool prompts = number < items_.size();
  const Item at = item(number);
  enter(number, prompts);
  WeightBuffer* weights = nullptr;
  if (plan_.weights_on_host) {
    const std::uint64_t visit = number / items_.size() * visits_ + at.visit;
    weights = &weight_buffers_[visit % weight_buffers_.size()];
    layers_[at.layer].weights.move_to(weights->block.data());
    compute_.stream().wait(!prompts && plan_.hides_recomputation ? weights->kv_in : weights->all_in);
  }
  if (!prompts) recompute(number);
  if (weights != nullptr) compute_.stream().wait(weights->all_in);
  if (prompts) {
    project_prompts(number);
  } else {
    project_tokens(number);
  }
  leave(number, prompts);
  if (weights != nullptr && at.last_visitor) weights->used.record(compute_.stream());
}

/// K and V of the item's new tokens, activations of its prompts and its hidden states, to host memory.
template <class T>
void OffloadedModel<T>::copy_out(std::uint64_t number) {
  const bool prompts = number < items_.size();
  const Item at = item(number);
  const MiniBatch& mb = mini_batches_[at.mini_batch];
  const std::size_t width = parts_.config().width;
  KvBuffer& buffer = kv_buffer(number);
  TimedStream& kv = stream(CopyStream::kv_out);
  kv.stream().wait(buffer.made);
  kv.run([&] {
    for (std::uint32_t s = mb.first; s < mb.first + mb.count; ++s)
      copy_kv(CopyStream::kv_out, number, s, prompts ? 0 : cached(number, s), prompts ? prompts_[s] : 1);
  });
  buffer.kv_out.record(kv.stream());

  TimedStream& activations = stream(CopyStream::activations_out);
  if (prompts && keeps_activations() && !plan_.activations_on_gpu) {
    activations.stream().wait(buffer.made);
    activations.run([&] {
      const T* from = buffer.activations.data();
      for (std::uint32_t s = mb.first; s < mb.first + mb.count; ++s) {
        const std::size_t elements = prompts_[s] * width, bytes = elements * sizeof(T);
        copy(CopyStream::activations_out, layers_[at.layer].caches[s].activations.data(), bytes, from, bytes, bytes, 1);
        from += elements;
      }
    });
    buffer.activations_out.record(activations.stream());
  }
  if (!moves_hidden() || at.layer + 1 == parts_.config().layers) return;
  HiddenBuffer& hidden = hidden_buffer(number);
  activations.stream().wait(hidden.made);
  activations.run([&] {
    const std::size_t bytes = (prompts ? mb.rows : mb.count) * width * sizeof(T);
    copy(CopyStream::activations_out, mb.hidden.data(), bytes, hidden.values.data(), bytes, bytes, 1);
  });
  hidden.out.record(activations.stream());
}

template class OffloadedModel<__half>;
template class OffloadedModel<__nv_bfloat16>;

}  // namespace csdsim::host::cuda
