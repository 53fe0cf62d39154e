#include "host_runtime/cuda/offloaded_model.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "base/error.h"

namespace csdsim::host::cuda {
namespace {

template <class T>
PinnedBuffer<T> pinned(std::size_t count, const char* what) {
  try {
    return PinnedBuffer<T>(count);
  } catch (const CudaError& error) {
    throw UserError("host memory has no " + std::to_string(count * sizeof(T)) + " pinned bytes for " + what + " (" +
                    error.what() + "): take fewer or shorter sequences");
  }
}

}  // namespace

template <class T>
OffloadedModel<T>::OffloadedModel(Context& context, const ModelConfig& config, const WeightSource& weights,
                                  std::vector<std::uint32_t> prompts, std::uint32_t new_tokens, OffloadPlan plan)
    : context_(context),
      parts_(context, config, weights),
      plan_(std::move(plan)),
      prompts_(std::move(prompts)),
      new_tokens_(new_tokens),
      copy_streams_(kCopyStreams),
      compute_(context.stream) {
  for (const Stream& stream : copy_streams_) copy_timers_.emplace_back(stream);
  const auto batch = static_cast<std::uint32_t>(prompts_.size());
  if (plan_.mini_batches == 0 || plan_.mini_batches > batch) {
    throw UserError("mini_batches is " + std::to_string(plan_.mini_batches) + ", must be 1 to " +
                    std::to_string(batch) + " (the sequences)");
  }
  if (plan_.kv_buffers == 0 || plan_.weight_buffers == 0)
    throw UserError("a buffer of K and V and of weights is needed");
  if (new_tokens_ == 0) throw InternalError("cuda: nothing to generate");
  for (std::uint32_t i = 0; i < batch; ++i) {
    if (prompts_[i] == 0) throw UserError("prompt " + std::to_string(i) + " is empty: at least one token is needed");
    if (capacity_of(i) > config.max_positions) {
      throw UserError("prompt " + std::to_string(i) + " has " + std::to_string(prompts_[i]) + " tokens; with " +
                      std::to_string(new_tokens_) + " new ones the context is longer than the model's " +
                      std::to_string(config.max_positions) + " positions");
    }
    capacity_ = std::max(capacity_, capacity_of(i));
  }
  if (config.rotary.changes_at(capacity_))
    throw UserError("a context of " + std::to_string(capacity_) +
                    " tokens changes the dynamic rotary positions of this model, which a run on CUDA streams does not "
                    "do: take fewer tokens (max_position_embeddings), --system gpu-only, or --backend cpu");
  if (std::size_t{config.q_width()} * config.width % 128 != 0)
    throw UserError("W_K starts in the middle of 256 bytes: this model runs with --system gpu-only only");
  shape_ = {config.heads, config.kv_heads, config.head_dim, capacity_};
  lay_out(prompts_);
  load_layers();
  parts_.check_all_loaded();
  allocate_buffers();
  // Memory of the pool is safe for one stream only: the others begin when all that was loaded is there.
  context.stream.synchronise();
}

template <class T>
OffloadedModel<T>::~OffloadedModel() {
  for (const Stream& stream : copy_streams_) cudaStreamSynchronize(stream.get());
}

template <class T>
void OffloadedModel<T>::lay_out(std::span<const std::uint32_t> prompts) {
  const std::uint32_t layers = parts_.config().layers, count = plan_.mini_batches;
  std::uint32_t next = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    MiniBatch& mb = mini_batches_.emplace_back();
    mb.first = next;
    mb.count = static_cast<std::uint32_t>(prompts.size() / count + (i < prompts.size() % count));
    next += mb.count;
    for (const std::uint32_t tokens : prompts.subspan(mb.first, mb.count)) {
      mb.rows += tokens;
      mb.longest = std::max(mb.longest, tokens);
    }
  }
  const bool columns = plan_.order == LayerOrder::column_by_column;
  for (std::uint32_t i = 0; i < layers * count; ++i) {
    Item item = columns ? Item{.layer = i / count, .mini_batch = i % count}
                        : Item{.layer = i % layers, .mini_batch = i / layers};
    if (!items_.empty() && items_.back().layer != item.layer) {
      items_.back().last_visitor = true;
      ++visits_;
    }
    item.visit = static_cast<std::uint32_t>(visits_);
    items_.push_back(item);
  }
  items_.back().last_visitor = true;
  ++visits_;
}

template <class T>
void OffloadedModel<T>::load_layers() {
  const ModelConfig& c = parts_.config();
  for (std::uint32_t i = 0; i < c.layers; ++i) {
    Layer& layer = layers_.emplace_back();
    layer.weights = parts_.load_layer(i);
    if (plan_.weights_on_host) {
      layer.block = pinned<T>(layer.weights.block.size(), "weights");
      copy_to_host(context_.stream, static_cast<const T*>(layer.weights.block.data()), layer.block.span());
      layer.weights.block = {};
    }
    for (std::uint32_t s = 0; s < prompts_.size(); ++s) {
      const std::size_t elements = std::size_t{capacity_of(s)} * c.kv_width();
      HostCache& cache = layer.caches.emplace_back();
      cache.keys = pinned<T>(elements, "keys");
      cache.values = pinned<T>(elements, "values");
      if (keeps_activations() && !plan_.activations_on_gpu)
        cache.activations = pinned<T>(std::size_t{prompts_[s]} * c.width, "activations");
    }
    if (keeps_activations() && plan_.activations_on_gpu) {
      const std::size_t rows = std::accumulate(prompts_.begin(), prompts_.end(), std::size_t{0});
      layer.activations = DeviceBuffer<T>(context_.pool, rows * c.width);
    }
  }
}

template <class T>
void OffloadedModel<T>::allocate_buffers() {
  const ModelConfig& c = parts_.config();
  DevicePool& pool = context_.pool;
  std::uint32_t rows = 0, sequences = 0;
  for (MiniBatch& mb : mini_batches_) {
    rows = std::max(rows, mb.rows);
    sequences = std::max(sequences, mb.count);
  }
  const bool moves = plan_.order == LayerOrder::column_by_column && plan_.mini_batches > 1;
  hidden_buffers_ = std::vector<HiddenBuffer>(moves ? 2 : 1);
  for (HiddenBuffer& buffer : hidden_buffers_) buffer.values = DeviceBuffer<T>(pool, std::size_t{rows} * c.width);
  for (MiniBatch& mb : mini_batches_) {
    if (moves) mb.hidden = pinned<T>(std::size_t{mb.rows} * c.width, "hidden states");
    mb.prompt_tokens = DeviceBuffer<std::uint32_t>(pool, mb.rows);
    mb.prompt_positions = DeviceBuffer<std::uint32_t>(pool, mb.rows);
    mb.prompt_starts = DeviceBuffer<std::uint32_t>(pool, mb.count + 1);
  }
  // An item waits for what the item that had its buffer has stored: with more buffers than items of a step, that would
  // not be the same layer of the step before.
  kv_buffers_ = std::vector<KvBuffer>(std::min<std::size_t>(plan_.kv_buffers, items_.size()));
  for (KvBuffer& buffer : kv_buffers_) {
    const std::size_t elements = std::size_t{sequences} * c.kv_width() * capacity_;
    buffer.keys = DeviceBuffer<T>(pool, elements);
    buffer.values = DeviceBuffer<T>(pool, elements);
    if (keeps_activations()) buffer.activations = DeviceBuffer<T>(pool, std::size_t{rows} * c.width);
  }
  if (plan_.weights_on_host) {
    weight_buffers_ = std::vector<WeightBuffer>(std::min<std::size_t>(plan_.weight_buffers, c.layers));
    for (WeightBuffer& buffer : weight_buffers_)
      buffer.block = DeviceBuffer<T>(pool, layers_.front().weights.block_elements());
  }
  activations_.emplace_back(pool, c, rows);
  activations_.emplace_back(pool, c, sequences);
  if (keeps_activations()) recomputed_kv_ = DeviceBuffer<T>(pool, std::size_t{rows} * 2 * c.kv_width());
  const std::size_t batch = prompts_.size();
  last_rows_ = DeviceBuffer<T>(pool, std::size_t{sequences} * c.width);
  for (DeviceBuffer<std::uint32_t>* buffer : {&tokens_, &positions_, &lengths_})
    *buffer = DeviceBuffer<std::uint32_t>(pool, batch);
  logits_ = DeviceBuffer<float>(pool, batch * c.vocab);
  step_inputs_ = PinnedBuffer<std::uint32_t>(3 * batch);
  host_logits_ = PinnedBuffer<float>(logits_.size());
  std::vector<std::uint32_t> counting(rows);
  std::iota(counting.begin(), counting.end(), 0u);
  counting_ = DeviceBuffer<std::uint32_t>(pool, rows);
  copy_to_device(context_.stream, std::span<const std::uint32_t>(counting), counting_.data());
}

template <class T>
void OffloadedModel<T>::send_inputs(std::span<const TokenId> tokens, std::uint64_t step) {
  const std::span<std::uint32_t> inputs = step_inputs_.span();
  const std::size_t batch = prompts_.size();
  for (std::uint32_t i = 0; i < batch; ++i) {
    inputs[i] = tokens[i].value;
    inputs[batch + i] = prompts_[i] + static_cast<std::uint32_t>(step) - 1;
    inputs[2 * batch + i] = inputs[batch + i] + 1;
  }
  const std::span<const std::uint32_t> sent = inputs;
  copy_to_device(context_.stream, sent.first(batch), tokens_.data());
  copy_to_device(context_.stream, sent.subspan(batch, batch), positions_.data());
  copy_to_device(context_.stream, sent.subspan(2 * batch), lengths_.data());
}

template <class T>
std::span<const float> OffloadedModel<T>::logits() {
  copy_to_host(context_.stream, static_cast<const float*>(logits_.data()), host_logits_.span());
  return host_logits_.span();
}

template <class T>
std::vector<std::vector<TokenId>> OffloadedModel<T>::generate(const std::vector<std::vector<TokenId>>& prompts,
                                                              const GenerationOptions& options) {
  check(options.sampling);
  const std::uint32_t vocab = parts_.config().vocab;
  if (prompts.size() != prompts_.size() || options.max_new_tokens != new_tokens_)
    throw InternalError("cuda: not the prompts that were announced");
  for (MiniBatch& mb : mini_batches_) {
    std::vector<std::uint32_t> tokens, positions, starts{0};
    for (std::uint32_t s = mb.first; s < mb.first + mb.count; ++s) {
      if (prompts[s].size() != prompts_[s]) throw InternalError("cuda: a prompt of another length");
      for (const TokenId token : prompts[s]) {
        if (token.value >= vocab)
          throw UserError("token id " + std::to_string(token.value) + " is outside the vocabulary of " +
                          std::to_string(vocab));
        positions.push_back(static_cast<std::uint32_t>(tokens.size()) - starts.back());
        tokens.push_back(token.value);
      }
      starts.push_back(static_cast<std::uint32_t>(tokens.size()));
    }
    copy_to_device(context_.stream, std::span<const std::uint32_t>(tokens), mb.prompt_tokens.data());
    copy_to_device(context_.stream, std::span<const std::uint32_t>(positions), mb.prompt_positions.data());
    copy_to_device(context_.stream, std::span<const std::uint32_t>(starts), mb.prompt_starts.data());
  }

  std::vector<std::vector<TokenId>> results(prompts.size());
  std::vector<TokenId> next(prompts.size(), TokenId{0});
  std::vector<bool> active(prompts.size(), true);
  // K and V of decode steps are copied ahead from the prefill on.
  kv_copies_ = items_.size();
  for (std::uint32_t step = 0; step < new_tokens_ && std::ranges::find(active, true) != active.end(); ++step) {
    if (step > 0) send_inputs(next, step);
    run_step(step);
    const std::span<const float> all = logits();
    for (std::uint32_t s = 0; s < prompts.size(); ++s) {
      // A finished sequence continues with the others; its results are ignored.
      if (!active[s]) continue;
      next[s] = sample(all.subspan(std::size_t{s} * vocab, vocab), options.sampling, s, step);
      results[s].push_back(next[s]);
      active[s] = next[s] != options.stop;
    }
  }
  return results;
}

template <class T>
OffloadReport OffloadedModel<T>::report() {
  for (std::size_t i = 0; i < kCopyStreams; ++i) report_.copies[i].seconds = copy_timers_[i].seconds();
  report_.compute.seconds = compute_.seconds();
  return report_;
}

template class OffloadedModel<__half>;
template class OffloadedModel<__nv_bfloat16>;

}  // namespace csdsim::host::cuda
