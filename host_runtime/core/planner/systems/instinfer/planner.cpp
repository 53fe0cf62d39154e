#include "host_runtime/core/planner/systems/instinfer/planner.h"

#include <fmt/format.h>

#include <numeric>
#include <span>
#include <utility>

#include "base/error.h"

namespace csdsim::host {

InstInfer::InstInfer(const PlannerInputs& inputs, std::uint32_t kv_buffers, const std::optional<SparfParameters>& sparf)
    : in_(inputs), kv_buffers_(kv_buffers), method_(sparf ? DriveMethod::sparf : DriveMethod::dense) {
  in_.model.validate();
  in_.workload.validate();
  const auto batch = static_cast<std::uint32_t>(in_.workload.prompt_tokens.size());
  if (in_.mini_batches == 0 || in_.mini_batches > batch)
    throw UserError(fmt::format("system: mini_batches is {}, must be 1 to {} (the batch)", in_.mini_batches, batch));
  if (kv_buffers_ == 0) throw UserError("system: kv_buffers is 0, must be at least 1");
  const PlanSpan& span = in_.span;
  if (span.prefill && span.first_step != 0) throw InternalError("a span with the prefill starts at decode step 0");
  if (span.first_step + span.decode_steps > in_.workload.decode_steps())
    throw InternalError(fmt::format("decode steps {} to {} of a run that has {}", span.first_step,
                                    span.first_step + span.decode_steps, in_.workload.decode_steps()));
  mini_batches_ = even_shares(batch, in_.mini_batches);
  shards_ = shard_heads(in_.model.kv_heads, in_.drives);
  if (sparf) budget_.emplace(*sparf, in_.model.head_dim);
}

bool InstInfer::next_step(OperationSink& sink) {
  if (in_.span.prefill && !prefill_done_) {
    prefill(sink);
    prefill_done_ = true;
    return true;
  }
  if (decoded_ == in_.span.decode_steps) return false;
  decode(sink, in_.span.first_step + decoded_++);
  return true;
}

void InstInfer::prefill(OperationSink& sink) {
  const ModelShape& model = in_.model;
  const std::size_t parts = mini_batches_.size();
  Ids hidden(parts);  // the operation that made the input of the next layer
  std::vector<std::span<const std::uint32_t>> prompts(parts);
  std::vector<std::uint64_t> tokens(parts);
  kept_.assign(parts, {});

  for (std::uint32_t mb = 0; mb < parts; ++mb) {
    prompts[mb] = std::span(in_.workload.prompt_tokens).subspan(mini_batches_[mb].first, mini_batches_[mb].count);
    tokens[mb] = std::accumulate(prompts[mb].begin(), prompts[mb].end(), std::uint64_t{0});
    const OpTag tag{Phase::prefill, 0, std::nullopt, MiniBatch{mb}};
    hidden[mb] = sink.add(OpKind::embed, Resource::gpu(), tag, model.embed(tokens[mb]), {},
                          {.writes = {hidden_states(tag, tokens[mb])}});
  }
  for (std::uint32_t layer = 0; layer < model.layers; ++layer)
    for (std::uint32_t mb = 0; mb < parts; ++mb) {
      const OpTag tag{Phase::prefill, 0, LayerId{layer}, MiniBatch{mb}};
      Ids free_buffer = {hidden[mb]};
      if (layer >= kv_buffers_) {
        const Ids& oldest = kept_[mb][layer - kv_buffers_];
        free_buffer.insert(free_buffer.end(), oldest.begin(), oldest.end());
      }
      const OperationId qkv =
          sink.add(OpKind::attention_inputs, Resource::gpu(), tag, model.attention_inputs(tokens[mb]),
                   std::move(free_buffer), projections(tag, tokens[mb]));
      // K and V may already have left for the drives, so attention declares only its queries.
      const TensorName queries = TensorName::of(TensorClass::queries, tag);
      const SizedTensor output = attention_output(tag, {}, tokens[mb]);
      const OperationId attention =
          sink.add(OpKind::attention, Resource::gpu(), tag, model.prefill_attention(prompts[mb]), {qkv},
                   {.reads = {queries}, .writes = {output}, .drops = {{queries, Place::gpu()}}});
      Ids& kept = kept_[mb].emplace_back();
      for (std::uint32_t d = 0; d < shards_.size(); ++d) {
        DriveWork work = append_work(mini_batches_[mb], shards_[d]);
        const SizedTensor kv{TensorName::of(TensorClass::new_kv, tag, shards_[d]), work.to_drive};
        Ids at_hand = staged(sink, ResourceKind::gpu_to_host, tag, LinkPayload::kv, {qkv}, {kv});
        TensorUses uses{.reads = {kv.name}, .writes = {cache(tag, shards_[d], work)}, .drops = {{kv.name, buffers()}}};
        kept.push_back(sink.add(OpKind::append_kv, Resource::drive(DriveIndex{d}), tag, std::move(work),
                                std::move(at_hand), std::move(uses)));
      }
      hidden[mb] = sink.add(OpKind::finish_layer, Resource::gpu(), tag, model.finish_layer(tokens[mb]), {attention},
                            layer_end(tag, tokens[mb], {output.name}));
    }
  sampled_.resize(parts);
  for (std::uint32_t mb = 0; mb < parts; ++mb) {
    const OpTag tag{Phase::prefill, 0, std::nullopt, MiniBatch{mb}};
    sampled_[mb] = sink.add(OpKind::sample, Resource::gpu(), tag, model.sample(mini_batches_[mb].count), {hidden[mb]},
                            last_use(tag));
  }
}

void InstInfer::decode(OperationSink& sink, std::uint32_t step) {
  const ModelShape& model = in_.model;
  const std::size_t parts = mini_batches_.size();
  Ids hidden(parts);
  for (std::uint32_t mb = 0; mb < parts; ++mb) {
    const OpTag tag{Phase::decode, step, std::nullopt, MiniBatch{mb}};
    Ids token = sampled_.empty() ? Ids{} : Ids{sampled_[mb]};
    hidden[mb] = sink.add(OpKind::embed, Resource::gpu(), tag, model.embed(mini_batches_[mb].count), std::move(token),
                          {.writes = {hidden_states(tag, mini_batches_[mb].count)}});
  }
  for (std::uint32_t layer = 0; layer < model.layers; ++layer)
    for (std::uint32_t mb = 0; mb < parts; ++mb) {
      const std::uint32_t sequences = mini_batches_[mb].count;
      const OpTag tag{Phase::decode, step, LayerId{layer}, MiniBatch{mb}};
      const OperationId qkv = sink.add(OpKind::attention_inputs, Resource::gpu(), tag,
                                       model.attention_inputs(sequences), {hidden[mb]}, projections(tag, sequences));
      Ids outputs;
      std::vector<TensorName> output_parts;
      for (std::uint32_t d = 0; d < shards_.size(); ++d) {
        DriveWork work = attend_work(mini_batches_[mb], shards_[d], step);
        const SizedTensor q{TensorName::of(TensorClass::queries, tag, shards_[d]), work.from_drive};
        const SizedTensor kv{TensorName::of(TensorClass::new_kv, tag, shards_[d]), work.to_drive - work.from_drive};
        const SizedTensor output = attention_output(tag, shards_[d], sequences);
        Ids deps = staged(sink, ResourceKind::gpu_to_host, tag, LinkPayload::kv, {qkv}, {q, kv});
        // Only the first step waits for K and V of the prefill; later steps follow it.
        if (!kept_.empty()) deps.push_back(kept_[mb][layer][d]);
        TensorUses uses{.reads = {q.name, kv.name},
                        .writes = {output, cache(tag, shards_[d], work)},
                        .drops = {{q.name, buffers()}, {kv.name, buffers()}}};
        const OperationId attend = sink.add(OpKind::attend, Resource::drive(DriveIndex{d}), tag, std::move(work),
                                            std::move(deps), std::move(uses));
        outputs.push_back(
            staged(sink, ResourceKind::host_to_gpu, tag, LinkPayload::activations, {attend}, {output}).front());
        output_parts.push_back(output.name);
      }
      hidden[mb] = sink.add(OpKind::finish_layer, Resource::gpu(), tag, model.finish_layer(sequences),
                            std::move(outputs), layer_end(tag, sequences, std::move(output_parts)));
    }
  kept_.clear();
  sampled_.resize(parts);
  for (std::uint32_t mb = 0; mb < parts; ++mb) {
    const OpTag tag{Phase::decode, step, std::nullopt, MiniBatch{mb}};
    sampled_[mb] = sink.add(OpKind::sample, Resource::gpu(), tag, model.sample(mini_batches_[mb].count), {hidden[mb]},
                            last_use(tag));
  }
}

InstInfer::Ids InstInfer::staged(OperationSink& sink, ResourceKind link, const OpTag& tag, LinkPayload payload,
                                 Ids deps, const std::vector<SizedTensor>& tensors) const {
  if (!in_.through_host) return deps;
  const Place from = link == ResourceKind::gpu_to_host ? Place::gpu() : Place::host();
  LinkWork work{{}, payload};
  TensorUses uses{.writes = tensors};
  for (const SizedTensor& tensor : tensors) {
    work.bytes += tensor.bytes;
    uses.reads.push_back(tensor.name);
    uses.drops.push_back({tensor.name, from});
  }
  return {sink.add(OpKind::transfer, {link, 0}, tag, work, std::move(deps), std::move(uses))};
}

std::vector<PlacedTensor> InstInfer::resident() const {
  return {{TensorName::kept(TensorClass::weights, {}), Place::gpu(), in_.model.weight_bytes()}};
}

SizedTensor InstInfer::hidden_states(OpTag tag, std::uint64_t tokens) const {
  tag.layer.reset();
  return {TensorName::of(TensorClass::hidden, tag),
          Bytes{std::uint64_t{in_.model.width} * in_.model.element_bytes * tokens}};
}

SizedTensor InstInfer::attention_output(const OpTag& tag, HeadRange heads, std::uint64_t tokens) const {
  const HeadRange held = heads.count > 0 ? heads : HeadRange{KvHead{0}, in_.model.kv_heads};
  return {TensorName::of(TensorClass::attention_output, tag, heads), in_.model.query_bytes(held) * tokens};
}

SizedTensor InstInfer::cache(const OpTag& tag, HeadRange heads, const DriveWork& work) const {
  std::uint64_t tokens = 0;
  for (const SequenceWork& s : work.sequences) tokens += s.context();
  return {TensorName::kept(TensorClass::kv_cache, tag.layer, tag.mini_batch, heads),
          in_.model.kv_bytes_per_token_and_head() * heads.count * tokens};
}

TensorUses InstInfer::projections(const OpTag& tag, std::uint64_t tokens) const {
  TensorUses uses{.reads = {hidden_states(tag, tokens).name}};
  const auto queries = [&](HeadRange heads, HeadRange held) {
    uses.writes.push_back({TensorName::of(TensorClass::queries, tag, heads), in_.model.query_bytes(held) * tokens});
  };
  if (tag.phase == Phase::prefill) queries({}, {KvHead{0}, in_.model.kv_heads});
  for (const HeadRange heads : shards_) {
    if (tag.phase == Phase::decode) queries(heads, heads);
    uses.writes.push_back({TensorName::of(TensorClass::new_kv, tag, heads),
                           in_.model.kv_bytes_per_token_and_head() * heads.count * tokens});
  }
  return uses;
}

TensorUses InstInfer::layer_end(const OpTag& tag, std::uint64_t tokens, std::vector<TensorName> outputs) const {
  const SizedTensor hidden = hidden_states(tag, tokens);
  TensorUses uses{.reads = std::move(outputs), .writes = {hidden}};
  for (const TensorName& output : uses.reads) uses.drops.push_back({output, Place::gpu()});
  uses.reads.push_back(hidden.name);
  return uses;
}

TensorUses InstInfer::last_use(const OpTag& tag) const {
  const TensorName hidden = hidden_states(tag, 0).name;
  return {.reads = {hidden}, .drops = {{hidden, Place::gpu()}}};
}

DriveWork InstInfer::append_work(Share batch, HeadRange heads) const {
  DriveWork work{.heads = heads, .memory = buffer_memory()};
  std::uint64_t tokens = 0;
  for (std::uint32_t s = batch.first; s < batch.first + batch.count; ++s) {
    const std::uint32_t prompt = in_.workload.prompt_tokens[s];
    work.sequences.push_back({.sequence = SequenceId{s}, .first_token = TokenIndex{0}, .tokens = prompt});
    tokens += prompt;
  }
  work.to_drive = in_.model.kv_bytes_per_token_and_head() * heads.count * tokens;
  return work;
}

DriveWork InstInfer::attend_work(Share batch, HeadRange heads, std::uint32_t step) const {
  DriveWork work{
      .heads = heads, .method = method_, .components = budget_ ? budget_->components() : 0, .memory = buffer_memory()};
  for (std::uint32_t s = batch.first; s < batch.first + batch.count; ++s) {
    const std::uint32_t position = in_.workload.prompt_tokens[s] + step;
    const std::uint32_t context = position + 1;
    work.sequences.push_back({.sequence = SequenceId{s},
                              .first_token = TokenIndex{position},
                              .tokens = 1,
                              .top_k = budget_ ? budget_->top_k(context) : context,
                              .local = budget_ ? budget_->local(context) : 0});
  }
  work.from_drive = in_.model.query_bytes(heads) * batch.count;
  work.to_drive = work.from_drive + in_.model.kv_bytes_per_token_and_head() * heads.count * batch.count;
  return work;
}

}  // namespace csdsim::host
