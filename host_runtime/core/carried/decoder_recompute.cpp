// Recomputes K and V from the activations that entered a layer.
#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "host_runtime/core/carried/decoder_data.h"
#include "host_runtime/core/carried/decoder_rows.h"

namespace csdsim::host {

namespace {

/// The names of the layer_input tensors that an operation reads, in the order of steps and parts.
std::vector<TensorName> inputs_read(const Operation& op) {
  std::vector<TensorName> names;
  for (const TensorName& name : op.tensors.reads)
    if (name.what == TensorClass::layer_input) names.push_back(name);
  std::ranges::sort(names);
  return names;
}

}  // namespace

/// Returns a copy, because later operations change the hidden states.
LayerInputs DecoderData::layer_inputs_of(const Operation& op, const HiddenStates& states) const {
  std::vector<std::uint32_t> all(states.values.rows);
  for (std::uint32_t row = 0; row < all.size(); ++row) all[row] = row;
  Backend& backend = decoder_.backend();
  auto batch = std::make_shared<LayerInputs::Batch>(
      LayerInputs::Batch{{backend.allocate(all.size(), states.values.cols), states.positions}, {}});
  backend.select_rows(states.values, all, batch->hidden.values);
  batch->sequences = sequences_of(op);
  return {{std::move(batch)}};
}

void DecoderData::keep_layer_input(const Operation& op, const TensorName& name, const LayerInputs& more) {
  const Place place = output_place(op, name.what);
  if (!tensors_.has(name, place)) return tensors_.put(name, place, more);
  auto& kept = tensors_.at<LayerInputs>(name, place, user(op));
  kept.batches.insert(kept.batches.end(), more.batches.begin(), more.batches.end());
}

void DecoderData::append_to_layer_inputs(const Operation& op) {
  for (const SizedTensor& write : op.tensors.writes) {
    if (write.name.what != TensorClass::layer_input) continue;
    for (const TensorName& name : inputs_read(op))
      if (name != write.name)
        keep_layer_input(op, write.name, tensors_.at<LayerInputs>(name, input_place(op, name.what), user(op)));
  }
}

void DecoderData::recompute_kv(const Operation& op) {
  const ModelConfig& model = decoder_.config();
  const std::vector<TensorName> inputs = inputs_read(op);
  if (inputs.empty()) throw InternalError(fmt::format("{} reads no layer_input", user(op)));
  std::vector<std::pair<TensorName, HostKvCache>> caches;
  for (const SizedTensor& write : op.tensors.writes)
    if (write.name.what == TensorClass::kv_cache) caches.emplace_back(write.name, empty_cache(op, write.name.heads));
  for (const TensorName& name : inputs)
    for (const auto& batch : tensors_.at<LayerInputs>(name, input_place(op, name.what), user(op)).batches) {
      const KeysValues projected = decoder_.keys_values(*op.tag.layer, batch->hidden);
      const std::vector<Half> k = decoder_.to_host(projected.k), v = decoder_.to_host(projected.v);
      for (auto& [written, cache] : caches) {
        const std::size_t at = written.heads.first.value * model.head_dim;
        const std::size_t width = std::size_t{written.heads.count} * model.head_dim;
        std::vector<Half> of_heads_k, of_heads_v;
        append_columns(k, model.kv_width(), at, width, of_heads_k);
        append_columns(v, model.kv_width(), at, width, of_heads_v);
        std::size_t row = 0;
        for (const StepSequence& s : batch->sequences) {
          if (cache.has(s.sequence))  // it may have ended since
            cache.append(s.sequence, LayerId{0}, std::span(of_heads_k).subspan(row * width, s.tokens * width),
                         std::span(of_heads_v).subspan(row * width, s.tokens * width));
          row += s.tokens;
        }
      }
    }
  for (auto& [name, cache] : caches)
    tensors_.put(name, output_place(op, name.what), std::make_shared<HostKvCache>(std::move(cache)));
}

}  // namespace csdsim::host
