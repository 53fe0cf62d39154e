#include "host_runtime/core/plan/layer_planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "host_runtime/core/plan/kept_kv.h"

namespace csdsim::host {

namespace {

/// The inputs of a planner, checked before anything is computed from them. Throws UserError.
const PlannerInputs& checked(const PlannerInputs& in) {
  in.model.validate();
  in.workload.validate();
  const std::uint32_t batch = in.workload.batch();
  if (in.mini_batches == 0 || in.mini_batches > batch)
    throw UserError(fmt::format("system: mini_batches is {}, must be 1 to {} (the batch)", in.mini_batches, batch));
  if (in.gpus == 0 || in.gpus > in.mini_batches)
    throw UserError(fmt::format("system: {} GPUs, must be 1 to {} (the mini-batches)", in.gpus, in.mini_batches));
  const PlanSpan& span = in.span;
  if (span.prefill && span.first_step != 0) throw InternalError("a span with the prefill starts at decode step 0");
  if (!span.prefill && in.workload.served()) throw InternalError("requests that arrive are simulated from the start");
  if (span.first_step + span.decode_steps > in.workload.decode_steps())
    throw InternalError(fmt::format("decode steps {} to {} of a run that has {}", span.first_step,
                                    span.first_step + span.decode_steps, in.workload.decode_steps()));
  return in;
}

}  // namespace

LayerPlanner::LayerPlanner(const PlannerInputs& inputs, std::vector<HeadRange> shards, const WeightPlacement& weights,
                           const RowQuantisation& kv)
    : in_(checked(inputs)),
      shards_(std::move(shards)),
      weights_(weights),
      kv_(kv),
      scheduler_(in_.workload, in_.span, in_.mini_batches, in_.progress),
      gpus_(in_.gpus),
      sampled_(in_.mini_batches) {
  if (weights_.buffers == 0) throw UserError("system: weight_buffers is 0, must be at least 1");
  weights_.buffers = std::min(weights_.buffers, in_.model.layers);
  if (weights_.on_host.value() + weights_.in_files.value() > 1 + 1e-9)
    throw UserError("system: weights_on_host and weights_in_files are more than all weights");
  if (in_.gpus > 1 && weights_.in_files > Ratio{0, 1})
    throw UserError(fmt::format("system: weights in files are read for one GPU, not for {}", in_.gpus));
  if (const std::string problem = kept_kv_problem(kv_, in_.model.head_dim); !problem.empty())
    throw UserError("system: " + problem);
}

void LayerPlanner::set_feed_forward(std::unique_ptr<FeedForwardPlan> plan) {
  if (weights_.on_host.value() + weights_.in_files.value() > 0)
    throw UserError("system: weights are in host memory or files, and in the block namespace of drives");
  if (in_.gpus > 1 || (in_.mini_batches > 1 && !plan->takes_mini_batches()))
    throw UserError(
        fmt::format("system: weights in the block namespace are for one GPU and one mini-batch, not for {} "
                    "and {}: a layer has one window of neurons",
                    in_.gpus, in_.mini_batches));
  feed_forward_ = std::move(plan);
}

std::vector<PlannedBlocks> LayerPlanner::blocks() const {
  return feed_forward_ ? feed_forward_->blocks() : std::vector<PlannedBlocks>{};
}

std::vector<PlacedTensor> LayerPlanner::resident() const {
  Bytes moved;
  for (const SizedTensor& weights : moved_weights(LayerId{0})) moved += weights.bytes;
  const Bytes in_blocks = feed_forward_ ? feed_forward_->weights_in_blocks() : Bytes{};
  std::vector<PlacedTensor> tensors;
  for (std::uint32_t gpu = 0; gpu < in_.gpus; ++gpu)
    tensors.push_back({TensorName::kept(TensorClass::weights, {}), Place::gpu(gpu),
                       in_.model.weight_bytes() - moved * in_.model.layers - in_blocks});
  if (feed_forward_)
    for (PlacedTensor& tensor : feed_forward_->resident()) tensors.push_back(std::move(tensor));
  for (std::uint32_t layer = 0; layer < in_.model.layers; ++layer) {
    for (const SizedTensor& on_host : {host_kv_weights(LayerId{layer}), host_weights(LayerId{layer})})
      if (on_host.bytes.value > 0) tensors.push_back({on_host.name, Place::host(), on_host.bytes});
    const SizedTensor in_file = file_weights(LayerId{layer});
    if (in_file.bytes.value > 0)
      tensors.push_back({in_file.name, Place::file(DriveIndex{files_of(layer).index}), in_file.bytes});
  }
  return tensors;
}

bool LayerPlanner::works_in_step(std::uint32_t gpu, std::uint32_t from) const {
  for (std::uint32_t mb = from; mb < mini_batches(); ++mb)
    if (mb % in_.gpus == gpu && step_.parts[mb].sequences) return true;
  return false;
}

OperationId LayerPlanner::finish(OperationSink& sink, const Part& part, Outputs outputs) {
  if (feed_forward_) {
    const OperationId finished =
        feed_forward_->finish(sink, {part.tag, part.tokens, gpu(part.tag), std::move(outputs.ready),
                                     layer_end(part, std::move(outputs.tensors)), hidden_states(part)});
    return gpus_[gpu_index(part.tag)].latest_layer.emplace(finished);
  }
  TensorUses uses = layer_end(part, std::move(outputs.tensors));
  const std::vector<SizedTensor> copies = moved_weights(*part.tag.layer);
  GpuState& gpu_state = gpus_[gpu_index(part.tag)];
  const bool frees = !copies.empty() && !works_in_step(gpu_index(part.tag), part.mini_batch() + 1);
  for (const SizedTensor& weights : copies) uses.reads.push_back(weights.name);
  if (frees) {
    // The other mini-batches of the GPU must have read the weights, too.
    outputs.ready.insert(outputs.ready.end(), gpu_state.weight_users.begin(), gpu_state.weight_users.end());
    gpu_state.weight_users.clear();
    for (const SizedTensor& weights : copies) uses.drops.push_back({weights.name, gpu_memory(part.tag)});
  }
  const OperationId finished = sink.add(OpKind::finish_layer, gpu(part.tag), part.tag,
                                        in_.model.finish_layer(part.tokens), std::move(outputs.ready), std::move(uses));
  if (frees) {
    Ids& freed = gpu_state.weights_freed;
    freed.push_back(finished);
    if (freed.size() > weights_.buffers) freed.erase(freed.begin());
  } else if (!copies.empty()) {
    gpu_state.weight_users.push_back(finished);
  }
  gpu_state.latest_layer = finished;
  return finished;
}

/// A prefill begins with the embeddings.
void LayerPlanner::started(const Operation& op, SimTime now) {
  if (op.kind == OpKind::embed && op.tag.phase == Phase::prefill) scheduler_.prefill_begins(*op.tag.sequences, now);
}

void LayerPlanner::ended(const Operation& op, SimTime now) {
  if (op.kind == OpKind::sample) scheduler_.sampled(op.tag.phase, op.tag.step, *op.tag.sequences, now);
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
  emit_step(sink);
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

LayerPlanner::Ids LayerPlanner::in_turn(const OpTag& tag, Ids before) const {
  const std::optional<OperationId>& latest = gpus_[gpu_index(tag)].latest_layer;
  if (!in_.overlap_mini_batches && latest && before.front() != *latest) before.push_back(*latest);
  return before;
}

std::uint64_t LayerPlanner::context(const Part& part) {
  std::uint64_t tokens = 0;
  for (const StepSequence& s : part.sequences) tokens += s.context();
  return tokens;
}

std::uint32_t LayerPlanner::most_tokens(const Part& part) {
  return std::ranges::max(part.sequences, {}, &StepSequence::tokens).tokens;
}

LayerPlanner::Ids LayerPlanner::embed(OperationSink& sink) {
  Ids hidden(mini_batches());
  for (std::uint32_t mb = 0; mb < mini_batches(); ++mb) {
    const auto part = part_of({}, mb);
    if (!part) continue;
    Ids token;
    if (sampled_[mb]) token.push_back(*sampled_[mb]);
    if (feed_forward_)
      for (const OperationId id : feed_forward_->before_embedding(sink, part->tag, part->tokens, token))
        token.push_back(id);
    hidden[mb] = sink.add(OpKind::embed, gpu(part->tag), part->tag, in_.model.embed(part->tokens), std::move(token),
                          {.writes = {hidden_states(*part)}});
  }
  return hidden;
}

void LayerPlanner::sample(OperationSink& sink, const Ids& hidden) {
  for (std::uint32_t mb = 0; mb < mini_batches(); ++mb) {
    const auto part = part_of({}, mb);
    if (!part) continue;
    const TensorName states = hidden_states(*part).name;
    // In a decode step every token that is verified has logits; the next draft follows.
    const bool decode = step_.phase == Phase::decode;
    const Software framework = software();
    const std::uint64_t copies = decode ? 0 : framework.prompt_logits;
    ComputeWork work = in_.model.sample(decode || copies > 0 ? part->tokens : part->sequences.size());
    if (decode)
      work.software = framework.per_step + SimTime{in_.workload.speculation.draft_time.ps * (most_tokens(*part) - 1)};
    TensorUses uses{.reads = {states}, .drops = {{states, gpu_memory(part->tag)}}};
    if (copies > 0) {
      const Bytes logits{std::uint64_t{in_.model.vocab} * in_.model.element_bytes * part->tokens};
      work.activations += logits * (2 * (copies - 1));  // each further copy reads one and writes one
      const TensorName workspace = TensorName::of(TensorClass::workspace, part->tag);
      uses.writes.push_back({workspace, logits * copies});
      uses.drops.push_back({workspace, gpu_memory(part->tag)});
    }
    sampled_[mb] = sink.add(OpKind::sample, gpu(part->tag), part->tag, work,
                            with_weights(sink, part->tag, in_turn(part->tag, {hidden[mb]})), std::move(uses));
  }
}

OperationId LayerPlanner::prefill_layer(OperationSink& sink, const Part& part, Ids before) {
  const Ids room = room_for(part);
  before.insert(before.end(), room.begin(), room.end());
  const OperationId projected = sink.add(OpKind::attention_inputs, gpu(part.tag), part.tag,
                                         in_.model.attention_inputs(part.tokens), std::move(before), projections(part));
  // K and V may be in transfer already; the attention has them with its queries.
  const TensorName q = TensorName::of(TensorClass::queries, part.tag);
  const SizedTensor output = attention_output(part, {});
  TensorUses uses{.reads = {q}, .writes = {output}, .drops = {{q, gpu_memory(part.tag)}}};
  if (const Bytes bytes = prefill_workspace(part); bytes.value > 0) {
    const TensorName workspace = TensorName::of(TensorClass::workspace, part.tag);
    uses.writes.push_back({workspace, bytes});
    uses.drops.push_back({workspace, gpu_memory(part.tag)});
  }
  std::vector<std::uint32_t> prompts;
  for (const StepSequence& s : part.sequences) prompts.push_back(s.tokens);
  const OperationId attention = sink.add(OpKind::attention, gpu(part.tag), part.tag,
                                         in_.model.prefill_attention(prompts), {projected}, std::move(uses));
  keep(sink, part, quantise(sink, part, projected));
  return finish(sink, part, {{attention}, {output.name}});
}

OperationId LayerPlanner::decode_layer(OperationSink& sink, const Part& part, Ids before) {
  const OperationId projected = sink.add(OpKind::attention_inputs, gpu(part.tag), part.tag,
                                         in_.model.attention_inputs(part.tokens), std::move(before), projections(part));
  return finish(sink, part, attend(sink, part, quantise(sink, part, projected)));
}

OperationId LayerPlanner::quantise(OperationSink& sink, const Part& part, OperationId projected) const {
  if (!kv_.quantised()) return projected;
  TensorUses uses;
  Bytes kept;
  for (const SizedTensor& kv : new_kv_parts(part)) {
    uses.reads.push_back(kv.name);
    uses.writes.push_back(kv);
    kept += kv.bytes;
  }
  if (kept.value == 0) return projected;
  return sink.add(OpKind::append_kv, gpu(part.tag), part.tag,
                  quantise_kv(in_.model, kv_, kept.value / kept_kv(1).value), {projected}, std::move(uses));
}

ComputeWork LayerPlanner::attention_work(const Part& part, std::uint64_t kept, Place place, TensorUses& uses,
                                         std::uint64_t queries) const {
  return with_dequantising(in_.model.decode_attention(part.sequences.size(), context(part), queries), part, kept, place,
                           uses);
}

ComputeWork LayerPlanner::with_dequantising(ComputeWork attention, const Part& part, std::uint64_t kept, Place place,
                                            TensorUses& uses) const {
  if (!kv_.quantised() || kept == 0) return attention;
  const TensorName workspace = TensorName::of(TensorClass::workspace, part.tag);
  uses.writes.push_back({workspace, in_.model.kv_bytes_per_token_and_layer() * kept});
  uses.drops.push_back({workspace, place});
  return after_dequantising(attention, in_.model, kv_, kept);
}

void LayerPlanner::emit_step(OperationSink& sink) {
  Ids hidden = embed(sink);
  Share layers{0, in_.model.layers};
  if (step_.phase == Phase::decode) layers = in_.span.layers_of(step_.number, layers.count);
  for (std::uint32_t layer = layers.first; layer < layers.first + layers.count; ++layer) {
    copy_weights(sink, LayerId{layer});
    for (std::uint32_t mb = 0; mb < mini_batches(); ++mb) {
      const auto part = part_of(LayerId{layer}, mb);
      if (!part) continue;
      Ids before = in_turn(part->tag, {hidden[mb]});
      const Ids& copied = weights_copied(*part);
      before.insert(before.end(), copied.begin(), copied.end());
      before = with_weights(sink, part->tag, std::move(before));
      hidden[mb] = step_.phase == Phase::prefill ? prefill_layer(sink, *part, std::move(before))
                                                 : decode_layer(sink, *part, std::move(before));
      if (!part->ending.empty()) release(sink, *part);
    }
  }
  if (step_.phase == Phase::decode) step_emitted();
  sample(sink, hidden);
}

LayerPlanner::Ids LayerPlanner::with_weights(OperationSink& sink, const OpTag& tag, Ids before) {
  if (!feed_forward_) return before;
  for (const OperationId id : feed_forward_->before(sink, tag, before)) before.push_back(id);
  return before;
}

Bytes LayerPlanner::attention_weights(const Part& part) const {
  std::uint64_t pairs = 0;
  for (const StepSequence& s : part.sequences) pairs += std::uint64_t{s.tokens} * s.tokens;
  return {2 * pairs * in_.model.heads * in_.model.element_bytes};
}

OperationId LayerPlanner::transfer(OperationSink& sink, ResourceKind link, const OpTag& tag, LinkPayload payload,
                                   Ids deps, const std::vector<SizedTensor>& tensors, bool keep_copy) const {
  const Place from = link == ResourceKind::gpu_to_host ? gpu_memory(tag) : Place::host();
  LinkWork work{{}, payload};
  TensorUses uses{.writes = tensors};
  for (const SizedTensor& tensor : tensors) {
    work.bytes += tensor.bytes;
    uses.reads.push_back(tensor.name);
    if (!keep_copy) uses.drops.push_back({tensor.name, from});
  }
  return sink.add(OpKind::transfer, {link, gpu_index(tag)}, tag, work, std::move(deps), std::move(uses));
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

Bytes LayerPlanner::kept_kv(HeadRange heads, std::uint64_t tokens) const {
  return kept_kv_bytes(in_.model, kv_) * heads.count * tokens;
}

SizedTensor LayerPlanner::new_kv(const Part& part, HeadRange heads) const {
  return {TensorName::of(TensorClass::new_kv, part.tag, heads), kept_kv(heads, part.tokens)};
}

SizedTensor LayerPlanner::queries(const Part& part, HeadRange heads) const {
  return {TensorName::of(TensorClass::queries, part.tag, heads), in_.model.query_bytes(heads) * part.tokens};
}

SizedTensor LayerPlanner::attention_output(const Part& part, HeadRange heads) const {
  const HeadRange held = heads.count > 0 ? heads : HeadRange{KvHead{0}, in_.model.kv_heads};
  return {TensorName::of(TensorClass::attention_output, part.tag, heads), in_.model.query_bytes(held) * part.tokens};
}

SizedTensor LayerPlanner::cache_of(const Part& part, HeadRange heads, std::uint64_t tokens) const {
  return {TensorName::kept(TensorClass::kv_cache, part.tag.layer, part.tag.mini_batch, heads), kept_kv(heads, tokens)};
}

OperationId LayerPlanner::free_cache(OperationSink& sink, Resource processor, const Part& part, HeadRange heads,
                                     Ids deps) const {
  const SizedTensor left = cache_left(part, heads);
  TensorUses uses;
  if (part.left > 0)
    uses = {.reads = {left.name}, .writes = {left}};
  else
    uses.drops = {{left.name, processor.kind == ResourceKind::gpu ? Place::gpu(processor.index) : Place::host()}};
  return sink.add(OpKind::free_kv, processor, part.tag, SequencesWork{{part.ending.begin(), part.ending.end()}, {}},
                  std::move(deps), std::move(uses));
}

std::vector<SizedTensor> LayerPlanner::new_kv_parts(const Part& part) const {
  std::vector<SizedTensor> parts;
  for (const HeadRange heads : shards_) parts.push_back(new_kv(part, heads));
  return parts;
}

/// k and v in their parts, and q: in decode for each shard as well.
TensorUses LayerPlanner::projections(const Part& part) const {
  TensorUses uses{.reads = {hidden_states(part).name}};
  if (part.tag.phase == Phase::prefill)
    uses.writes.push_back({TensorName::of(TensorClass::queries, part.tag),
                           in_.model.query_bytes({KvHead{0}, in_.model.kv_heads}) * part.tokens});
  if (part.tag.phase == Phase::decode)
    for (const HeadRange heads : shards_) uses.writes.push_back(queries(part, heads));
  const Bytes fp16 = in_.model.kv_bytes_per_token_and_head(), kept = kept_kv_bytes(in_.model, kv_);
  for (const SizedTensor& kv : new_kv_parts(part))
    uses.writes.push_back({kv.name, fp16 * (kv.bytes.value / kept.value)});
  for (const SizedTensor& input : kept_inputs(part)) uses.writes.push_back(input);
  return uses;
}

TensorUses LayerPlanner::layer_end(const Part& part, std::vector<TensorName> outputs) const {
  const SizedTensor hidden = hidden_states(part);
  TensorUses uses{.reads = std::move(outputs), .writes = {hidden}};
  for (const TensorName& output : uses.reads) uses.drops.push_back({output, gpu_memory(part.tag)});
  uses.reads.push_back(hidden.name);
  return uses;
}

}  // namespace csdsim::host
