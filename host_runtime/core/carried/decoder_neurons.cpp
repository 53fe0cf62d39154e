// Feed-forward networks of carried runs whose weights are on drives.
#include <fmt/format.h>

#include <utility>

#include "base/error.h"
#include "host_runtime/core/carried/decoder_data.h"
#include "host_runtime/core/carried/decoder_rows.h"
#include "host_runtime/core/planner/flash_feed_forward.h"

namespace csdsim::host {

namespace {

/// The tensor of records that an operation writes, without a layer: where a read arrives.
const TensorName& written_buffer(const Operation& op) {
  for (const SizedTensor& write : op.tensors.writes)
    if (write.name.what == TensorClass::records) return write.name;
  throw InternalError(fmt::format("{} writes no records", user(op)));
}

/// The buffer that an operation of a processor reads; null if it reads none.
const TensorName* read_buffer(const Operation& op) {
  for (const TensorName& read : op.tensors.reads)
    if (read.what == TensorClass::records && !read.layer) return &read;
  return nullptr;
}

}  // namespace

CarriedNeurons& DecoderData::carried(const Operation& op) {
  if (!neurons_) throw InternalError(fmt::format("{}: the run has no weights on drives", user(op)));
  return *neurons_;
}

void DecoderData::load_blocks(const Operation& op, std::size_t, std::span<std::byte> bytes) {
  carried(op).load_layer(*op.tag.layer, bytes);
}

void DecoderData::store_blocks(const Operation& op, std::size_t index, std::span<const std::byte> bytes) {
  arriving_[op.id].requests[index].assign(bytes.begin(), bytes.end());
}

void DecoderData::keep_records(const Operation& op) {
  tensors_.put(written_buffer(op), output_place(op, TensorClass::records), std::move(arriving_[op.id]));
  arriving_.erase(op.id);
}

void DecoderData::finish_attention(const Operation& op) {
  decoder_.finish_attention(*op.tag.layer, *hidden(op), *attention_of(op));
}

void DecoderData::select_neurons(const Operation& op) {
  carried(op).select(*op.tag.layer, decoder_.feed_forward_inputs(*op.tag.layer, *hidden(op)));
}

NeuronRows& DecoderData::rows_in_memory(const Operation& op) {
  const TensorName name = flash_tensors::records(*op.tag.layer);
  const Place place = input_place(op, TensorClass::records);
  if (!tensors_.has(name, place)) tensors_.put(name, place, carried(op).empty_rows());
  return tensors_.at<NeuronRows>(name, place, user(op));
}

void DecoderData::insert_records(const Operation& op) {
  const TensorName* const buffer = read_buffer(op);
  if (buffer == nullptr) throw InternalError(fmt::format("{} reads no records", user(op)));
  const auto& arrived = tensors_.at<ArrivedRecords>(*buffer, input_place(op, TensorClass::records), user(op));
  carried(op).insert_rows(*op.tag.layer, arrived, rows_in_memory(op));
}

void DecoderData::feed_forward(const Operation& op) {
  const LayerId layer = *op.tag.layer;
  CarriedNeurons& neurons = carried(op);
  HiddenStates& states = *hidden(op);
  const Tensor inputs = decoder_.feed_forward_inputs(layer, states);
  const Place place = input_place(op, TensorClass::records);
  const TensorName* const buffer = read_buffer(op);
  const bool predicted = neurons.neurons() != nullptr && op.tag.phase == Phase::decode;
  const FeedForwardWeights weights =
      predicted ? neurons.in_memory(layer, rows_in_memory(op))
                : neurons.whole(layer, buffer == nullptr ? ArrivedRecords{}
                                                         : tensors_.at<ArrivedRecords>(*buffer, place, user(op)));
  decoder_.feed_forward(layer, states, inputs, nullptr, &weights);
}

}  // namespace csdsim::host
