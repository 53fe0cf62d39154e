#include "host_runtime/core/planner/layer_planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace csdsim::host {

namespace {

/// The inputs of a planner, checked before anything is computed from them. Throws UserError.
const PlannerInputs& checked(const PlannerInputs& in) {
  in.model.validate();
  in.workload.validate();
  const std::uint32_t batch = in.workload.batch();
  if (in.mini_batches == 0 || in.mini_batches > batch)
    throw UserError(fmt::format("system: mini_batches is {}, must be 1 to {} (the batch)", in.mini_batches, batch));
  const PlanSpan& span = in.span;
  if (span.prefill && span.first_step != 0) throw InternalError("a span with the prefill starts at decode step 0");
  if (!span.prefill && in.workload.served()) throw InternalError("requests that arrive are simulated from the start");
  if (span.first_step + span.decode_steps > in.workload.decode_steps())
    throw InternalError(fmt::format("decode steps {} to {} of a run that has {}", span.first_step,
                                    span.first_step + span.decode_steps, in.workload.decode_steps()));
  return in;
}

}  // namespace

LayerPlanner::LayerPlanner(const PlannerInputs& inputs, std::vector<HeadRange> shards, const WeightPlacement& weights)
    : in_(checked(inputs)),
      shards_(std::move(shards)),
      weights_(weights),
      scheduler_(in_.workload, in_.span, in_.mini_batches),
      sampled_(in_.mini_batches) {
  if (weights_.buffers == 0) throw UserError("system: weight_buffers is 0, must be at least 1");
  weights_.buffers = std::min(weights_.buffers, in_.model.layers);
}

std::vector<PlacedTensor> LayerPlanner::resident() const {
  const Bytes moved = host_weights(LayerId{0}).bytes;
  std::vector<PlacedTensor> tensors = {
      {TensorName::kept(TensorClass::weights, {}), Place::gpu(), in_.model.weight_bytes() - moved * in_.model.layers}};
  for (std::uint32_t layer = 0; moved.value > 0 && layer < in_.model.layers; ++layer) {
    const SizedTensor weights = host_weights(LayerId{layer});
    tensors.push_back({weights.name, Place::host(), weights.bytes});
  }
  return tensors;
}

SizedTensor LayerPlanner::host_weights(LayerId layer) const {
  return {TensorName::kept(TensorClass::weights, layer),
          Bytes{weights_.on_host.floor_of(in_.model.layer_weight_bytes().value)}};
}

LayerPlanner::Ids LayerPlanner::copy_weights(OperationSink& sink, const OpTag& tag) {
  const SizedTensor weights = host_weights(*tag.layer);
  if (weights.bytes.value == 0) return {};
  Ids room;
  if (weights_freed_.size() >= weights_.buffers)
    room.push_back(weights_freed_[weights_freed_.size() - weights_.buffers]);
  return {transfer(sink, ResourceKind::host_to_gpu, tag, LinkPayload::weights, std::move(room), {weights}, true)};
}

OperationId LayerPlanner::finish(OperationSink& sink, const Part& part, Outputs outputs) {
  TensorUses uses = layer_end(part, std::move(outputs.tensors));
  const SizedTensor weights = host_weights(*part.tag.layer);
  const auto later = step_.parts.begin() + part.mini_batch() + 1;
  const bool last = std::none_of(later, step_.parts.end(), [](const StepPart& p) { return p.sequences != nullptr; });
  const bool frees = weights.bytes.value > 0 && last;
  if (weights.bytes.value > 0) uses.reads.push_back(weights.name);
  if (frees) {
    // The other mini-batches must have read the weights, too.
    outputs.ready.insert(outputs.ready.end(), weight_users_.begin(), weight_users_.end());
    weight_users_.clear();
    uses.drops.push_back({weights.name, Place::gpu()});
  }
  const OperationId finished = sink.add(OpKind::finish_layer, Resource::gpu(), part.tag,
                                        in_.model.finish_layer(part.tokens), std::move(outputs.ready), std::move(uses));
  if (frees) {
    weights_freed_.push_back(finished);
    if (weights_freed_.size() > weights_.buffers) weights_freed_.erase(weights_freed_.begin());
  } else if (weights.bytes.value > 0) {
    weight_users_.push_back(finished);
  }
  latest_layer_ = finished;
  return finished;
}

bool LayerPlanner::next_step(OperationSink& sink) {
  StepScheduler::Decision decision = scheduler_.next(sink.now());
  if (decision.wait) {
    sink.wait_until(*decision.wait);
    return true;
  }
  if (!decision.step) return false;
  step_ = std::move(*decision.step);
  if (!step_.admitted.empty()) admit(sink, tag_of({}), step_.admitted);
  if (step_.phase == Phase::prefill)
    prefill(sink);
  else
    decode(sink);
  for (std::uint32_t mb = 0; mb < mini_batches(); ++mb)
    if (const auto part = part_of({}, mb); part && !part->ending.empty()) sequences_end(sink, *part, *sampled_[mb]);
  return true;
}

LayerPlanner::Part LayerPlanner::part_of(const ScheduledStep& step, OpTag tag) {
  const StepPart& of_step = step.parts.at(tag.mini_batch.value);
  tag.sequences = of_step.sequences;
  Part part{.tag = std::move(tag),
            .sequences = {},
            .tokens = 0,
            .kept = of_step.kept,
            .left = of_step.left,
            .ending = of_step.ending};
  if (of_step.sequences) part.sequences = *of_step.sequences;
  for (const StepSequence& s : part.sequences) part.tokens += s.tokens;
  return part;
}

std::optional<LayerPlanner::Part> LayerPlanner::part_of(std::optional<LayerId> layer, std::uint32_t mini_batch) const {
  if (!step_.parts[mini_batch].sequences) return std::nullopt;
  return part_of(step_, {step_.phase, step_.number, layer, MiniBatch{mini_batch}});
}

LayerPlanner::Ids LayerPlanner::in_turn(Ids before) const {
  if (!in_.overlap_mini_batches && latest_layer_ && before.front() != *latest_layer_) before.push_back(*latest_layer_);
  return before;
}

std::uint64_t LayerPlanner::context(const Part& part) {
  std::uint64_t tokens = 0;
  for (const StepSequence& s : part.sequences) tokens += s.context();
  return tokens;
}

LayerPlanner::Ids LayerPlanner::embed(OperationSink& sink) {
  Ids hidden(mini_batches());
  for (std::uint32_t mb = 0; mb < mini_batches(); ++mb) {
    const auto part = part_of({}, mb);
    if (!part) continue;
    Ids token;
    if (sampled_[mb]) token.push_back(*sampled_[mb]);
    hidden[mb] = sink.add(OpKind::embed, Resource::gpu(), part->tag, in_.model.embed(part->tokens), std::move(token),
                          {.writes = {hidden_states(*part)}});
  }
  return hidden;
}

void LayerPlanner::sample(OperationSink& sink, const Ids& hidden) {
  for (std::uint32_t mb = 0; mb < mini_batches(); ++mb) {
    const auto part = part_of({}, mb);
    if (!part) continue;
    const TensorName states = hidden_states(*part).name;
    sampled_[mb] = sink.add(OpKind::sample, Resource::gpu(), part->tag, in_.model.sample(part->sequences.size()),
                            in_turn({hidden[mb]}), {.reads = {states}, .drops = {{states, Place::gpu()}}});
  }
}

/// `before` has to end before the layer begins; `hidden` becomes its last operation.
void LayerPlanner::prefill_layer(OperationSink& sink, const Part& part, Ids before, OperationId& hidden) {
  const Ids room = room_for(part);
  before.insert(before.end(), room.begin(), room.end());
  const OperationId projected = sink.add(OpKind::attention_inputs, Resource::gpu(), part.tag,
                                         in_.model.attention_inputs(part.tokens), std::move(before), projections(part));
  // K and V may be in transfer already; the attention has them with its queries.
  const TensorName q = TensorName::of(TensorClass::queries, part.tag);
  const SizedTensor output = attention_output(part, {});
  TensorUses uses{.reads = {q}, .writes = {output}, .drops = {{q, Place::gpu()}}};
  if (const Bytes bytes = prefill_workspace(part); bytes.value > 0) {
    const TensorName workspace = TensorName::of(TensorClass::workspace, part.tag);
    uses.writes.push_back({workspace, bytes});
    uses.drops.push_back({workspace, Place::gpu()});
  }
  std::vector<std::uint32_t> prompts;
  for (const StepSequence& s : part.sequences) prompts.push_back(s.tokens);
  const OperationId attention = sink.add(OpKind::attention, Resource::gpu(), part.tag,
                                         in_.model.prefill_attention(prompts), {projected}, std::move(uses));
  keep(sink, part, projected);
  hidden = finish(sink, part, {{attention}, {output.name}});
}

void LayerPlanner::prefill(OperationSink& sink) {
  Ids hidden = embed(sink);
  for (std::uint32_t layer = 0; layer < in_.model.layers; ++layer) {
    const Ids weights = copy_weights(sink, tag_of(LayerId{layer}));
    for (std::uint32_t mb = 0; mb < mini_batches(); ++mb) {
      const auto part = part_of(LayerId{layer}, mb);
      if (!part) continue;
      Ids before = in_turn({hidden[mb]});
      before.insert(before.end(), weights.begin(), weights.end());
      prefill_layer(sink, *part, std::move(before), hidden[mb]);
      if (!part->ending.empty()) release(sink, *part);
    }
  }
  sample(sink, hidden);
}

void LayerPlanner::decode(OperationSink& sink) {
  Ids hidden = embed(sink);
  for (std::uint32_t layer = 0; layer < in_.model.layers; ++layer) {
    const Ids weights = copy_weights(sink, tag_of(LayerId{layer}));
    for (std::uint32_t mb = 0; mb < mini_batches(); ++mb) {
      const auto part = part_of(LayerId{layer}, mb);
      if (!part) continue;
      Ids before = in_turn({hidden[mb]});
      before.insert(before.end(), weights.begin(), weights.end());
      const OperationId projected =
          sink.add(OpKind::attention_inputs, Resource::gpu(), part->tag, in_.model.attention_inputs(part->tokens),
                   std::move(before), projections(*part));
      hidden[mb] = finish(sink, *part, attend(sink, *part, projected));
      if (!part->ending.empty()) release(sink, *part);
    }
  }
  step_emitted();
  sample(sink, hidden);
}

OperationId LayerPlanner::transfer(OperationSink& sink, ResourceKind link, const OpTag& tag, LinkPayload payload,
                                   Ids deps, const std::vector<SizedTensor>& tensors, bool keep_copy) {
  const Place from = link == ResourceKind::gpu_to_host ? Place::gpu() : Place::host();
  LinkWork work{{}, payload};
  TensorUses uses{.writes = tensors};
  for (const SizedTensor& tensor : tensors) {
    work.bytes += tensor.bytes;
    uses.reads.push_back(tensor.name);
    if (!keep_copy) uses.drops.push_back({tensor.name, from});
  }
  return sink.add(OpKind::transfer, {link, 0}, tag, work, std::move(deps), std::move(uses));
}

std::vector<PlacedTensor> LayerPlanner::caches_at(Place place) const {
  std::vector<PlacedTensor> caches;
  if (in_.span.prefill) return caches;
  for (std::uint32_t layer = 0; layer < in_.model.layers; ++layer)
    for (std::uint32_t mb = 0; mb < mini_batches(); ++mb) {
      const Part part = first_part(layer, mb);
      if (part.sequences.empty()) continue;  // all its sequences have ended
      for (const HeadRange heads : shards_) {
        const SizedTensor kv = cache_before(part, heads);
        caches.push_back({kv.name, place, kv.bytes});
      }
    }
  return caches;
}

SizedTensor LayerPlanner::hidden_states(const Part& part) const {
  OpTag tag = part.tag;
  tag.layer.reset();
  return {TensorName::of(TensorClass::hidden, tag),
          Bytes{std::uint64_t{in_.model.width} * in_.model.element_bytes * part.tokens}};
}

SizedTensor LayerPlanner::new_kv(const Part& part, HeadRange heads) const {
  return {TensorName::of(TensorClass::new_kv, part.tag, heads),
          in_.model.kv_bytes_per_token_and_head() * heads.count * part.tokens};
}

SizedTensor LayerPlanner::queries(const Part& part, HeadRange heads) const {
  return {TensorName::of(TensorClass::queries, part.tag, heads), in_.model.query_bytes(heads) * part.tokens};
}

SizedTensor LayerPlanner::attention_output(const Part& part, HeadRange heads) const {
  const HeadRange held = heads.count > 0 ? heads : HeadRange{KvHead{0}, in_.model.kv_heads};
  return {TensorName::of(TensorClass::attention_output, part.tag, heads), in_.model.query_bytes(held) * part.tokens};
}

SizedTensor LayerPlanner::cache_of(const Part& part, HeadRange heads, std::uint64_t tokens) const {
  return {TensorName::kept(TensorClass::kv_cache, part.tag.layer, part.tag.mini_batch, heads),
          in_.model.kv_bytes_per_token_and_head() * heads.count * tokens};
}

OperationId LayerPlanner::free_cache(OperationSink& sink, Resource processor, const Part& part, HeadRange heads,
                                     Ids deps) const {
  const SizedTensor left = cache_left(part, heads);
  TensorUses uses;
  if (part.left > 0)
    uses = {.reads = {left.name}, .writes = {left}};
  else
    uses.drops = {{left.name, processor.kind == ResourceKind::gpu ? Place::gpu() : Place::host()}};
  return sink.add(OpKind::free_kv, processor, part.tag, SequencesWork{{part.ending.begin(), part.ending.end()}, {}},
                  std::move(deps), std::move(uses));
}

/// k and v for each shard, and q: in decode for each shard as well.
TensorUses LayerPlanner::projections(const Part& part) const {
  TensorUses uses{.reads = {hidden_states(part).name}};
  if (part.tag.phase == Phase::prefill)
    uses.writes.push_back({TensorName::of(TensorClass::queries, part.tag),
                           in_.model.query_bytes({KvHead{0}, in_.model.kv_heads}) * part.tokens});
  for (const HeadRange heads : shards_) {
    if (part.tag.phase == Phase::decode) uses.writes.push_back(queries(part, heads));
    uses.writes.push_back(new_kv(part, heads));
  }
  return uses;
}

TensorUses LayerPlanner::layer_end(const Part& part, std::vector<TensorName> outputs) const {
  const SizedTensor hidden = hidden_states(part);
  TensorUses uses{.reads = std::move(outputs), .writes = {hidden}};
  for (const TensorName& output : uses.reads) uses.drops.push_back({output, Place::gpu()});
  uses.reads.push_back(hidden.name);
  return uses;
}

}  // namespace csdsim::host
