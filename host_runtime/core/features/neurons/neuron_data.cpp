#include "host_runtime/core/features/neurons/neuron_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "host_runtime/core/carried/decoder_rows.h"
#include "host_runtime/core/features/neurons/flash_feed_forward.h"

namespace csdsim::host {

namespace {

/// The tensor of records that an operation writes, without a layer: where a read arrives.
const TensorName& written_buffer(const Operation& op) {
  for (const SizedTensor& write : op.tensors.writes)
    if (write.name.what == TensorClass::records) return write.name;
  throw InternalError(fmt::format("{} writes no records", user(op)));
}

/// The buffers that an operation of a processor reads.
std::vector<TensorName> read_buffers(const Operation& op) {
  std::vector<TensorName> buffers;
  for (const TensorName& read : op.tensors.reads)
    if (read.what == TensorClass::records && !read.layer) buffers.push_back(read);
  return buffers;
}

/// The first tensor of a class that an operation reads.
const TensorName& input_of(const Operation& op, TensorClass what) {
  for (const TensorName& read : op.tensors.reads)
    if (read.what == what) return read;
  throw InternalError(fmt::format("{} does not read what it needs", user(op)));
}

}  // namespace

bool NeuronData::serves(const Operation& op) const {
  switch (op.kind) {
    case OpKind::select_neurons:
    case OpKind::delete_records:
    case OpKind::insert_records:
    case OpKind::partial_feed_forward:
    case OpKind::feed_forward:
    case OpKind::merge_feed_forward:
      return true;
    case OpKind::read_blocks:
    case OpKind::write_blocks:
      return !DecoderData::moves_activations(op);
    default:
      return false;
  }
}

void NeuronData::perform(const Operation& op) {
  switch (op.kind) {
    case OpKind::select_neurons:
      return select_neurons(op);
    case OpKind::delete_records:
      return neurons_.delete_rows(*op.tag.layer, rows_in_memory(op));
    case OpKind::insert_records:
      return insert_records(op);
    case OpKind::feed_forward:
      return feed_forward(op);
    case OpKind::merge_feed_forward:
      return merge_feed_forward(op);
    default:
      return;  // partial_feed_forward: all is computed together, so that sums have one order
  }
}

void NeuronData::load_blocks(const Operation& op, std::size_t, std::span<std::byte> bytes) {
  neurons_.load_layer(*op.tag.layer, DriveIndex{op.resource.index}, bytes);
}

void NeuronData::store_blocks(const Operation& op, std::size_t index, std::span<const std::byte> bytes) {
  arriving_[op.id].requests[index].assign(bytes.begin(), bytes.end());
}

void NeuronData::ended(const Operation& op) {
  if (op.kind != OpKind::read_blocks) return;
  tensors_.put(written_buffer(op), output_place(op, TensorClass::records), std::move(arriving_[op.id]));
  arriving_.erase(op.id);
}

void NeuronData::select_neurons(const Operation& op) {
  const Tensor inputs = data_.decoder().feed_forward_inputs(*op.tag.layer, *data_.hidden(op));
  const std::vector<StepSequence> sequences = data_.sequences_of(op);
  std::vector<std::uint32_t> accepted;
  for (const StepSequence& s : sequences) accepted.push_back(data_.accepted(s.sequence));
  neurons_.select(*op.tag.layer, op.tag.mini_batch, inputs, sequences, accepted);
  for (const SizedTensor& write : op.tensors.writes)
    tensors_.put(write.name, output_place(op, write.name.what), data_.decoder().to_host(inputs));
}

NeuronRows& NeuronData::rows_in_memory(const Operation& op) {
  const TensorName name = flash_tensors::records(*op.tag.layer);
  const Place place = input_place(op, TensorClass::records);
  if (!tensors_.has(name, place)) tensors_.put(name, place, neurons_.empty_rows());
  return tensors_.at<NeuronRows>(name, place, user(op));
}

void NeuronData::insert_records(const Operation& op) {
  const std::vector<TensorName> buffers = read_buffers(op);
  if (buffers.empty()) throw InternalError(fmt::format("{} reads no records", user(op)));
  const auto& arrived = tensors_.at<ArrivedRecords>(buffers.front(), input_place(op, TensorClass::records), user(op));
  neurons_.insert_rows(*op.tag.layer, arrived, rows_in_memory(op));
}

void NeuronData::feed_forward(const Operation& op) {
  const LayerId layer = *op.tag.layer;
  HiddenStates& states = *data_.hidden(op);
  const Tensor inputs = data_.decoder().feed_forward_inputs(layer, states);
  const Place place = input_place(op, TensorClass::records);
  const bool predicted = neurons_.neurons() != nullptr && op.tag.phase == Phase::decode;
  std::vector<const ArrivedRecords*> arrived;
  for (const TensorName& buffer : read_buffers(op))
    arrived.push_back(&tensors_.at<ArrivedRecords>(buffer, place, user(op)));
  const FeedForwardWeights weights =
      predicted ? neurons_.in_memory(layer, rows_in_memory(op)) : neurons_.whole(layer, arrived);
  data_.decoder().feed_forward(layer, states, inputs, nullptr, &weights);
}

const std::vector<Half>& NeuronData::network_input(const Operation& op) {
  return tensors_.at<std::vector<Half>>(input_of(op, TensorClass::network_input),
                                        input_place(op, TensorClass::network_input), user(op));
}

void NeuronData::load_network_input(const Operation& op, std::uint32_t first, std::span<Half> x, std::span<Half> bias) {
  std::ranges::copy(network_input(op), x.begin());
  neurons_.load_biases(op, first, bias);
}

void NeuronData::store_partial_sum(const Operation& op, std::span<const float> y) {
  neurons_.check_sum(op, network_input(op), y);
  tensors_.put(op.tensors.writes.at(0).name, output_place(op, TensorClass::partial_sum),
               std::vector<float>(y.begin(), y.end()));
}

void NeuronData::merge_feed_forward(const Operation& op) {
  HiddenStates& states = *data_.hidden(op);
  const std::size_t width = data_.decoder().config().width, rows = states.values.rows;
  std::vector<float> sum(rows * width);
  for (const TensorName& read : op.tensors.reads) {
    if (read.what != TensorClass::partial_sum) continue;
    const auto& part = tensors_.at<std::vector<float>>(read, input_place(op, read.what), user(op));
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += part.at(i);
  }
  const std::vector<float> bias = neurons_.output_bias(*op.tag.layer);
  for (std::size_t i = 0; i < sum.size() && !bias.empty(); ++i) sum[i] += bias[i % width];
  // A backend takes fp32 values only as the table of an embedding; looking up every row copies them.
  const StoredTensor stored{ElementType::f32, {rows, width}, std::as_bytes(std::span(sum))};
  std::vector<std::uint32_t> all(rows);
  std::iota(all.begin(), all.end(), 0U);
  Tensor output = data_.decoder().backend().allocate(rows, width);
  data_.decoder().backend().embedding(data_.decoder().backend().load(stored), all, output);
  data_.decoder().add_feed_forward(*op.tag.layer, states, output);
}

}  // namespace csdsim::host
