// Recomputes K and V from the activations that entered a layer, which may lie on drives.
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

/// The rows of the slices as one batch. InternalError if a slice has a token that is in no batch.
LayerInputs rows_of_tokens(Backend& backend, const LayerInputs& inputs, const std::vector<TokenSlice>& slices,
                           const std::string& user) {
  auto rows = std::make_shared<LayerInputs::Batch>();
  std::size_t total = 0;
  for (const TokenSlice& slice : slices) total += slice.count;
  const std::size_t width = inputs.batches.at(0)->hidden.values.cols;
  if (inputs.batches.size() != 1) throw InternalError(user + ": takes tokens of several batches");
  const LayerInputs::Batch& batch = *inputs.batches.front();
  std::vector<std::uint32_t> chosen;
  for (const TokenSlice& slice : slices) {
    std::uint32_t row = 0;
    const auto of = std::ranges::find_if(batch.sequences, [&](const StepSequence& s) {
      if (s.sequence == slice.sequence) return true;
      row += s.tokens;
      return false;
    });
    if (of == batch.sequences.end() || slice.first + slice.count > of->tokens)
      throw InternalError(fmt::format("{}: tokens {} to {} of sequence {} are not kept", user, slice.first,
                                      slice.first + slice.count, slice.sequence.value));
    for (std::uint32_t token = slice.first; token < slice.first + slice.count; ++token) {
      chosen.push_back(row + token);
      rows->hidden.positions.push_back(batch.hidden.positions.at(row + token));
    }
    rows->sequences.push_back({slice.sequence, slice.first, slice.count});
  }
  rows->hidden.values = backend.allocate(total, width);
  rows->hidden.context = batch.hidden.context;
  backend.select_rows(batch.hidden.values, chosen, rows->hidden.values);
  return {{std::move(rows)}};
}

}  // namespace

/// Returns a copy, because later operations change the hidden states.
LayerInputs DecoderData::layer_inputs_of(const Operation& op, const HiddenStates& states) const {
  std::vector<std::uint32_t> all(states.values.rows);
  for (std::uint32_t row = 0; row < all.size(); ++row) all[row] = row;
  Backend& backend = decoder_.backend();
  auto batch = std::make_shared<LayerInputs::Batch>(
      LayerInputs::Batch{{backend.allocate(all.size(), states.values.cols), states.positions, states.context}, {}});
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
  for (const TensorName& name : inputs) {
    LayerInputs read = tensors_.at<LayerInputs>(name, input_place(op, name.what), user(op));
    if (!op.tensors.tokens.empty()) read = rows_of_tokens(decoder_.backend(), read, op.tensors.tokens, user(op));
    for (const auto& batch : read.batches) {
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
  }
  for (auto& [name, cache] : caches)
    tensors_.put(name, output_place(op, name.what), std::make_shared<HostKvCache>(std::move(cache)));
}

void DecoderData::copy_tokens(const Operation& op) {
  const TensorName from = op.tensors.reads.at(0), to = op.tensors.writes.at(0).name;
  const Place source = input_place(op, from.what), target = output_place(op, to.what);
  if (from.what == TensorClass::layer_input) {
    const auto& kept = tensors_.at<LayerInputs>(from, source, user(op));
    tensors_.put(to, target, rows_of_tokens(decoder_.backend(), kept, op.tensors.tokens, user(op)));
    return;
  }
  const auto& kept = *tensors_.at<std::shared_ptr<HostKvCache>>(from, source, user(op));
  auto copy = std::make_shared<HostKvCache>(empty_cache(op, to.heads));
  const std::size_t d = decoder_.config().head_dim;
  for (const TokenSlice& slice : op.tensors.tokens) {
    std::vector<Half> k, v;  // [token][head][d]
    for (std::uint32_t token = slice.first; token < slice.first + slice.count; ++token)
      for (std::uint32_t head = 0; head < to.heads.count; ++head) {
        const KvView view = kept.view(slice.sequence, LayerId{0}, KvHead{head});
        if (token >= view.tokens)
          throw InternalError(
              fmt::format("{}: token {} of sequence {} is not kept", user(op), token, slice.sequence.value));
        append_columns(view.keys.subspan(token * d, d), d, 0, d, k);
        append_columns(view.values.subspan(token * d, d), d, 0, d, v);
      }
    copy->append(slice.sequence, LayerId{0}, k, v);
  }
  tensors_.put(to, target, std::move(copy));
}

bool DecoderData::moves_activations(const Operation& op) {
  return !op.tensors.writes.empty() && op.tensors.writes.front().name.what == TensorClass::layer_input;
}

/// The rows of one write are kept as one batch beside the drive's bytes, for their sequences and positions.
void DecoderData::load_activations(const Operation& op, std::span<std::byte> bytes) {
  const TensorName& name = op.tensors.reads.front();
  LayerInputs rows = tensors_.at<LayerInputs>(name, input_place(op, name.what), user(op));
  if (!op.tensors.tokens.empty()) rows = rows_of_tokens(decoder_.backend(), rows, op.tensors.tokens, user(op));
  const auto written = std::make_shared<LayerInputs::Batch>();
  std::vector<Half> values;
  for (const auto& batch : rows.batches) {
    const std::vector<Half> more = decoder_.to_host(batch->hidden.values);
    values.insert(values.end(), more.begin(), more.end());
    written->sequences.insert(written->sequences.end(), batch->sequences.begin(), batch->sequences.end());
    written->hidden.positions.insert(written->hidden.positions.end(), batch->hidden.positions.begin(),
                                     batch->hidden.positions.end());
    if (batch != rows.batches.front() && batch->hidden.context != written->hidden.context &&
        decoder_.config().rotary.changes_at(std::max(batch->hidden.context, written->hidden.context)))
      throw UserError(user(op) +
                      ": activations of several steps cannot be kept on a drive under dynamic rotary positions");
    written->hidden.context = batch->hidden.context;
  }
  const auto from = std::as_bytes(std::span(values));
  if (from.size() > bytes.size()) throw InternalError(user(op) + ": more activations than its blocks hold");
  std::ranges::fill(std::ranges::copy(from, bytes.begin()).out, bytes.end(), std::byte{});
  keep_layer_input(op, op.tensors.writes.front().name, {{written}});
}

void DecoderData::store_activations(const Operation& op, std::span<const std::byte> bytes) {
  const TensorName& name = op.tensors.writes.front().name;
  const std::size_t width = decoder_.config().width, block = std::get<BlockWork>(op.work).block_size.value;
  LayerInputs rows;
  for (const auto& kept : tensors_.at<LayerInputs>(name, input_place(op, name.what), user(op)).batches) {
    std::vector<Half> values(kept->hidden.positions.size() * width);
    const auto to = std::as_writable_bytes(std::span(values));
    if (to.size() > bytes.size()) throw InternalError(user(op) + ": fewer blocks than its activations need");
    std::ranges::copy(bytes.first(to.size()), to.begin());
    bytes = bytes.subspan((to.size() + block - 1) / block * block);
    auto batch = std::make_shared<LayerInputs::Batch>(
        LayerInputs::Batch{{decoder_.backend().allocate(kept->hidden.positions.size(), width), kept->hidden.positions,
                            kept->hidden.context},
                           kept->sequences});
    decoder_.backend().upload(values, batch->hidden.values);
    rows.batches.push_back(std::move(batch));
  }
  tensors_.put(name, output_place(op, name.what), std::move(rows));
}

}  // namespace csdsim::host
