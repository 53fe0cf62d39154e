#include "host_runtime/core/planner/layer_planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"

namespace csdsim::host {

LayerPlanner::LayerPlanner(const PlannerInputs& inputs, std::vector<HeadRange> shards, const WeightPlacement& weights)
    : in_(inputs), shards_(std::move(shards)), weights_(weights) {
  in_.model.validate();
  in_.workload.validate();
  if (weights_.buffers == 0) throw UserError("system: weight_buffers is 0, must be at least 1");
  weights_.buffers = std::min(weights_.buffers, in_.model.layers);
  if (weights_.on_host.value() + weights_.in_files.value() > 1 + 1e-9)
    throw UserError("system: weights_on_host and weights_in_files are more than all weights");
  const auto batch = static_cast<std::uint32_t>(in_.workload.prompt_tokens.size());
  if (in_.mini_batches == 0 || in_.mini_batches > batch)
    throw UserError(fmt::format("system: mini_batches is {}, must be 1 to {} (the batch)", in_.mini_batches, batch));
  const PlanSpan& span = in_.span;
  if (span.prefill && span.first_step != 0) throw InternalError("a span with the prefill starts at decode step 0");
  if (span.first_step + span.decode_steps > in_.workload.decode_steps())
    throw InternalError(fmt::format("decode steps {} to {} of a run that has {}", span.first_step,
                                    span.first_step + span.decode_steps, in_.workload.decode_steps()));
  mini_batches_ = even_shares(batch, in_.mini_batches);
}

std::vector<PlacedTensor> LayerPlanner::resident() const {
  const Bytes moved = host_weights(LayerId{0}).bytes + file_weights(LayerId{0}).bytes;
  std::vector<PlacedTensor> tensors = {
      {TensorName::kept(TensorClass::weights, {}), Place::gpu(), in_.model.weight_bytes() - moved * in_.model.layers}};
  for (std::uint32_t layer = 0; layer < in_.model.layers; ++layer) {
    const SizedTensor on_host = host_weights(LayerId{layer}), in_file = file_weights(LayerId{layer});
    if (on_host.bytes.value > 0) tensors.push_back({on_host.name, Place::host(), on_host.bytes});
    if (in_file.bytes.value > 0)
      tensors.push_back({in_file.name, Place::drive(DriveIndex{files_of(layer).index}), in_file.bytes});
  }
  return tensors;
}

std::vector<PlannedFile> LayerPlanner::files() const {
  std::vector<PlannedFile> files;
  for (std::uint32_t layer = 0; layer < in_.model.layers; ++layer) {
    if (const Bytes size = file_weights(LayerId{layer}).bytes; size.value > 0) {
      PlannedFile file{.drive = DriveIndex{files_of(layer).index}, .name = weight_file(LayerId{layer}), .size = size};
      // On the drive from the beginning, but first used by the prefill.
      if (!in_.span.prefill) file.written = {{{}, size}};
      files.push_back(std::move(file));
    }
    for (PlannedFile& file : layer_files(layer)) files.push_back(std::move(file));
  }
  return files;
}

SizedTensor LayerPlanner::host_weights(LayerId layer) const {
  return {TensorName::kept(TensorClass::weights, layer),
          Bytes{weights_.on_host.floor_of(in_.model.layer_weight_bytes().value)}};
}

SizedTensor LayerPlanner::file_weights(LayerId layer) const {
  constexpr std::uint32_t kPart = 1;  // those on the host are part 0
  return {TensorName::kept(TensorClass::weights, layer, {}, {}, kPart),
          Bytes{weights_.in_files.floor_of(in_.model.layer_weight_bytes().value)}};
}

std::vector<SizedTensor> LayerPlanner::moved_weights(LayerId layer) const {
  std::vector<SizedTensor> moved;
  for (const SizedTensor& weights : {host_weights(layer), file_weights(layer)})
    if (weights.bytes.value > 0) moved.push_back(weights);
  return moved;
}

std::string LayerPlanner::weight_file(LayerId layer) { return fmt::format("weights of layer {}", layer.value); }

LayerPlanner::Ids LayerPlanner::copy_weights(OperationSink& sink, const OpTag& tag) {
  const SizedTensor on_host = host_weights(*tag.layer), in_file = file_weights(*tag.layer);
  Ids room, copied;
  if (weights_freed_.size() >= weights_.buffers)
    room.push_back(weights_freed_[weights_freed_.size() - weights_.buffers]);
  if (on_host.bytes.value > 0)
    copied.push_back(transfer(sink, ResourceKind::host_to_gpu, tag, LinkPayload::weights, room, {on_host}, true));
  if (in_file.bytes.value > 0) {
    // What has been read waits in host memory for the link, and for nothing else: the GPU has room for it already.
    FileWork work{.file = weight_file(*tag.layer), .ranges = {{{}, in_file.bytes}}, .payload = LinkPayload::weights};
    const OperationId read = sink.add(OpKind::read_file, files_of(tag.layer->value), tag, std::move(work), room,
                                      {.reads = {in_file.name}, .writes = {in_file}});
    copied.push_back(transfer(sink, ResourceKind::host_to_gpu, tag, LinkPayload::weights, {read}, {in_file}));
  }
  return copied;
}

OperationId LayerPlanner::finish(OperationSink& sink, const Part& part, Outputs outputs) {
  TensorUses uses = layer_end(part, std::move(outputs.tensors));
  const std::vector<SizedTensor> copies = moved_weights(*part.tag.layer);
  const bool frees = !copies.empty() && part.mini_batch() + 1 == mini_batches_.size();
  for (const SizedTensor& weights : copies) uses.reads.push_back(weights.name);
  if (frees) {
    // The other mini-batches must have read the weights, too.
    outputs.ready.insert(outputs.ready.end(), weight_users_.begin(), weight_users_.end());
    weight_users_.clear();
    for (const SizedTensor& weights : copies) uses.drops.push_back({weights.name, Place::gpu()});
  }
  const OperationId finished = sink.add(OpKind::finish_layer, Resource::gpu(), part.tag,
                                        in_.model.finish_layer(part.tokens), std::move(outputs.ready), std::move(uses));
  if (frees) {
    weights_freed_.push_back(finished);
    if (weights_freed_.size() > weights_.buffers) weights_freed_.erase(weights_freed_.begin());
  } else if (!copies.empty()) {
    weight_users_.push_back(finished);
  }
  latest_layer_ = finished;
  return finished;
}

bool LayerPlanner::next_step(OperationSink& sink) {
  if (in_.span.prefill && !prefill_done_) {
    prefill(sink);
    prefill_done_ = true;
    return true;
  }
  if (decoded_ == in_.span.decode_steps) return false;
  decode(sink, in_.span.first_step + decoded_++);
  return true;
}

LayerPlanner::Part LayerPlanner::part_of(OpTag tag) const {
  const Share share = mini_batches_[tag.mini_batch.value];
  Part part{.tag = tag,
            .sequences = share,
            .prompts = std::span(in_.workload.prompt_tokens).subspan(share.first, share.count),
            .tokens = share.count};
  if (tag.phase == Phase::prefill)
    part.tokens = std::accumulate(part.prompts.begin(), part.prompts.end(), std::uint64_t{0});
  return part;
}

LayerPlanner::Ids LayerPlanner::in_turn(Ids before) const {
  if (!in_.overlap_mini_batches && latest_layer_ && before.front() != *latest_layer_) before.push_back(*latest_layer_);
  return before;
}

std::uint64_t LayerPlanner::context(const Part& part) const {
  const std::uint64_t prompts = std::accumulate(part.prompts.begin(), part.prompts.end(), std::uint64_t{0});
  return part.tag.phase == Phase::prefill ? prompts
                                          : prompts + part.prompts.size() * (part.tag.step + std::uint64_t{1});
}

LayerPlanner::Ids LayerPlanner::embed(OperationSink& sink, Phase phase, std::uint32_t step) {
  Ids hidden;
  for (std::uint32_t mb = 0; mb < mini_batches_.size(); ++mb) {
    const Part part = part_of({phase, step, std::nullopt, MiniBatch{mb}});
    Ids token = sampled_.empty() ? Ids{} : Ids{sampled_[mb]};
    hidden.push_back(sink.add(OpKind::embed, Resource::gpu(), part.tag, in_.model.embed(part.tokens), std::move(token),
                              {.writes = {hidden_states(part)}}));
  }
  return hidden;
}

void LayerPlanner::sample(OperationSink& sink, Phase phase, std::uint32_t step, const Ids& hidden) {
  sampled_.resize(mini_batches_.size());
  for (std::uint32_t mb = 0; mb < mini_batches_.size(); ++mb) {
    const Part part = part_of({phase, step, std::nullopt, MiniBatch{mb}});
    const TensorName states = hidden_states(part).name;
    sampled_[mb] = sink.add(OpKind::sample, Resource::gpu(), part.tag, in_.model.sample(part.sequences.count),
                            in_turn({hidden[mb]}), {.reads = {states}, .drops = {{states, Place::gpu()}}});
  }
}

void LayerPlanner::prefill(OperationSink& sink) {
  Ids hidden = embed(sink, Phase::prefill, 0);
  for (std::uint32_t layer = 0; layer < in_.model.layers; ++layer) {
    const Ids weights = copy_weights(sink, {Phase::prefill, 0, LayerId{layer}, MiniBatch{0}});
    for (std::uint32_t mb = 0; mb < mini_batches_.size(); ++mb) {
      const Part part = part_of({Phase::prefill, 0, LayerId{layer}, MiniBatch{mb}});
      Ids before = in_turn({hidden[mb]});
      before.insert(before.end(), weights.begin(), weights.end());
      const Ids room = room_for(part);
      before.insert(before.end(), room.begin(), room.end());
      const OperationId projected =
          sink.add(OpKind::attention_inputs, Resource::gpu(), part.tag, in_.model.attention_inputs(part.tokens),
                   std::move(before), projections(part));
      // K and V may be in transfer already; the attention has them with its queries.
      const TensorName q = TensorName::of(TensorClass::queries, part.tag);
      const SizedTensor output = attention_output(part, {});
      TensorUses uses{.reads = {q}, .writes = {output}, .drops = {{q, Place::gpu()}}};
      if (const Bytes bytes = prefill_workspace(part); bytes.value > 0) {
        const TensorName workspace = TensorName::of(TensorClass::workspace, part.tag);
        uses.writes.push_back({workspace, bytes});
        uses.drops.push_back({workspace, Place::gpu()});
      }
      const OperationId attention = sink.add(OpKind::attention, Resource::gpu(), part.tag,
                                             in_.model.prefill_attention(part.prompts), {projected}, std::move(uses));
      keep(sink, part, projected);
      hidden[mb] = finish(sink, part, {{attention}, {output.name}});
    }
  }
  sample(sink, Phase::prefill, 0, hidden);
}

void LayerPlanner::decode(OperationSink& sink, std::uint32_t step) {
  Ids hidden = embed(sink, Phase::decode, step);
  for (std::uint32_t layer = 0; layer < in_.model.layers; ++layer) {
    const Ids weights = copy_weights(sink, {Phase::decode, step, LayerId{layer}, MiniBatch{0}});
    for (std::uint32_t mb = 0; mb < mini_batches_.size(); ++mb) {
      const Part part = part_of({Phase::decode, step, LayerId{layer}, MiniBatch{mb}});
      Ids before = in_turn({hidden[mb]});
      before.insert(before.end(), weights.begin(), weights.end());
      const OperationId projected =
          sink.add(OpKind::attention_inputs, Resource::gpu(), part.tag, in_.model.attention_inputs(part.tokens),
                   std::move(before), projections(part));
      hidden[mb] = finish(sink, part, attend(sink, part, projected));
    }
  }
  step_emitted();
  sample(sink, Phase::decode, step, hidden);
}

Bytes LayerPlanner::attention_weights(const Part& part) const {
  std::uint64_t pairs = 0;
  for (const std::uint64_t prompt : part.prompts) pairs += prompt * prompt;
  return {2 * pairs * in_.model.heads * in_.model.element_bytes};
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
    for (std::uint32_t mb = 0; mb < mini_batches_.size(); ++mb) {
      const Part part = first_part(layer, mb);
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

SizedTensor LayerPlanner::cache_before(const Part& part, HeadRange heads) const {
  return {cache(part, heads).name,
          in_.model.kv_bytes_per_token_and_head() * heads.count * (context(part) - part.tokens)};
}

SizedTensor LayerPlanner::cache(const Part& part, HeadRange heads) const {
  return {TensorName::kept(TensorClass::kv_cache, part.tag.layer, part.tag.mini_batch, heads),
          in_.model.kv_bytes_per_token_and_head() * heads.count * context(part)};
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
