#include "host_runtime/core/features/neurons/in_drive_feed_forward.h"

#include <limits>
#include <utility>

#include "base/error.h"

namespace csdsim::host {

InDriveFeedForward::InDriveFeedForward(const FlashWeights& weights, const PlannerInputs& inputs)
    : weights_(weights), prompt_(weights, inputs), through_host_(inputs.through_host) {
  if (!weights.predicts() || !weights.options().in_drives)
    throw InternalError("drives compute feed-forward networks of neurons that come into memory");
}

NeuronWork InDriveFeedForward::work(std::uint64_t tokens) const {
  const ModelShape& model = weights_.model();
  const bool gated = model.ffn_matrices == 3;
  return {.tokens = static_cast<std::uint32_t>(tokens),
          .width = model.width,
          .activation = gated ? NeuronActivation::silu : NeuronActivation::relu,
          .gated = gated,
          .bias = model.biases == Biases::all,
          .threshold = gated ? -std::numeric_limits<float>::infinity() : 0,
          .memory = through_host_ ? Place::host() : Place::gpu()};
}

OperationId InDriveFeedForward::copy(OperationSink& sink, ResourceKind link, const OpTag& tag,
                                     const SizedTensor& tensor, OperationId after) {
  const Place from = link == ResourceKind::gpu_to_host ? Place::gpu() : Place::host();
  return sink.add(OpKind::transfer, {link, 0}, tag, LinkWork{tensor.bytes, LinkPayload::activations}, {after},
                  {.reads = {tensor.name}, .writes = {tensor}, .drops = {{tensor.name, from}}});
}

OperationId InDriveFeedForward::finish(OperationSink& sink, LayerEnd end) {
  if (end.tag.phase == Phase::prefill) return prompt_.finish(sink, std::move(end));
  const ModelShape& model = weights_.model();
  const LayerId layer = *end.tag.layer;
  const OperationId attended = sink.add(OpKind::finish_attention, end.gpu, end.tag, model.finish_attention(end.tokens),
                                        std::move(end.ready), std::move(end.uses));
  const SizedTensor input{TensorName::of(TensorClass::network_input, end.tag),
                          {end.tokens * model.width * model.element_bytes}};
  OperationId at_hand = sink.add(OpKind::select_neurons, end.gpu, end.tag,
                                 model.predict_neurons(end.tokens, weights_.predictor_rank(layer)), {attended},
                                 {.reads = {end.hidden.name}, .writes = {input}});
  if (through_host_) at_hand = copy(sink, ResourceKind::gpu_to_host, end.tag, input, at_hand);
  TensorUses merge{.reads = {end.hidden.name},
                   .writes = {end.hidden},
                   .drops = {{input.name, through_host_ ? Place::host() : Place::gpu()}}};
  std::vector<OperationId> ready;
  for (std::uint32_t part = 0; part < weights_.parts(); ++part) {
    const SizedTensor sum{TensorName::of(TensorClass::partial_sum, end.tag, {}, part),
                          model.partial_sum_bytes(end.tokens)};
    OperationId summed =
        sink.add(OpKind::feed_forward, Resource::drive_blocks(weights_.drive_of(layer, part)), end.tag,
                 work(end.tokens), {at_hand}, {.reads = {input.name, flash_tensors::records(layer)}, .writes = {sum}});
    if (through_host_) summed = copy(sink, ResourceKind::host_to_gpu, end.tag, sum, summed);
    ready.push_back(summed);
    merge.reads.push_back(sum.name);
    merge.drops.push_back({sum.name, Place::gpu()});
  }
  return sink.add(OpKind::merge_feed_forward, end.gpu, end.tag, model.merge_feed_forward(end.tokens, weights_.parts()),
                  std::move(ready), std::move(merge));
}

}  // namespace csdsim::host
