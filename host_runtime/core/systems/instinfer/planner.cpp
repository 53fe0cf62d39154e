#include "host_runtime/core/systems/instinfer/planner.h"

#include <utility>

#include "base/error.h"

namespace csdsim::host {

InstInfer::InstInfer(const PlannerInputs& inputs, std::uint32_t kv_buffers, ShardBy shard,
                     const std::optional<SparfParameters>& sparf, const RowQuantisation& kv)
    : LayerPlanner(inputs, KvDivision(shard, inputs.model.kv_heads, inputs.drives).shards(), {}, kv),
      division_(shard, inputs.model.kv_heads, inputs.drives),
      kv_buffers_(kv_buffers),
      method_(sparf ? Method::sparf : Method::dense) {
  if (kv_buffers_ == 0) throw UserError("system: kv_buffers is 0, must be at least 1");
  if (sparf && shard == ShardBy::token)
    throw UserError("system: outputs of SparF over parts of the tokens cannot be merged; use shard: head");
  if (division_.by_tokens() && inputs.workload.served())
    throw UserError("system: drives that divide tokens cannot take requests while others run; use shard: head");
  if (sparf) budget_.emplace(*sparf, model().head_dim);
}

InstInfer::Ids InstInfer::room_for(const Part& part) const {
  if (part.layer() < kv_buffers_) return {};
  Ids room;
  for (const Ids& of_drive : kept_[part.mini_batch()][part.layer() - kv_buffers_])
    room.insert(room.end(), of_drive.begin(), of_drive.end());
  return room;
}

LayerPlanner::Ids& InstInfer::kept(std::uint32_t mini_batch, std::uint32_t layer, DriveIndex drive) {
  if (kept_.empty()) kept_.assign(mini_batches(), std::vector(model().layers, std::vector<Ids>(division_.drives())));
  return kept_[mini_batch][layer][drive.value];
}

void InstInfer::keep(OperationSink& sink, const Part& part, OperationId projected) {
  for (std::uint32_t d = 0; d < division_.drives(); ++d) {
    const DriveIndex drive{d};
    Ids& latest = kept(part.mini_batch(), part.layer(), drive);
    DriveWork work = append_work(part, drive);
    if (work.sequences.empty()) continue;
    const SizedTensor kv = new_kv_of(part, drive);
    Ids at_hand = staged(sink, ResourceKind::gpu_to_host, part.tag, LinkPayload::kv, {projected}, {kv});
    at_hand.insert(at_hand.end(), latest.begin(), latest.end());
    if (!created_.empty()) at_hand.push_back(created_[d]);
    TensorUses uses{.reads = {kv.name}, .writes = {cache_of(part, drive)}, .drops = {{kv.name, buffers(part)}}};
    latest = {sink.add(OpKind::append_kv, Resource::drive(drive), part.tag, std::move(work), std::move(at_hand),
                       std::move(uses))};
  }
}

LayerPlanner::Outputs InstInfer::attend(OperationSink& sink, const Part& part, OperationId projected) {
  if (division_.by_tokens()) return attend_and_merge(sink, part, projected);
  Outputs outputs;
  for (std::uint32_t d = 0; d < division_.drives(); ++d) {
    const DriveIndex drive{d};
    const HeadRange heads = division_.heads(drive);
    DriveWork work = attend_work(part, drive);
    const SizedTensor q = queries(part, heads);
    const SizedTensor kv = new_kv_of(part, drive);
    const SizedTensor output = attention_output(part, heads);
    Ids deps = staged(sink, ResourceKind::gpu_to_host, part.tag, LinkPayload::kv, {projected}, {q, kv});
    wait_for_prefill(part, drive, deps);
    TensorUses uses{.reads = {q.name, kv.name},
                    .writes = {output, cache_of(part, drive)},
                    .drops = {{q.name, buffers(part)}, {kv.name, buffers(part)}}};
    const OperationId attend =
        sink.add(OpKind::attend, Resource::drive(drive), part.tag, std::move(work), std::move(deps), std::move(uses));
    outputs.ready.push_back(
        staged(sink, ResourceKind::host_to_gpu, part.tag, LinkPayload::activations, {attend}, {output}).front());
    outputs.tensors.push_back(output.name);
  }
  return outputs;
}

LayerPlanner::Outputs InstInfer::attend_and_merge(OperationSink& sink, const Part& part, OperationId projected) {
  const HeadRange all = shards().front();
  const SizedTensor q = queries(part, all), output = attention_output(part, all);
  std::vector<SizedTensor> sent{q};
  for (const SizedTensor& kv : new_kv_parts(part)) sent.push_back(kv);
  const Ids at_hand = staged(sink, ResourceKind::gpu_to_host, part.tag, LinkPayload::kv, {projected}, sent);
  // All drives read the same q, so the merge, which follows all of them, drops it.
  TensorUses merge{.writes = {output}, .drops = {{q.name, buffers(part)}}};
  Ids ready;
  for (std::uint32_t d = 0; d < division_.drives(); ++d) {
    const DriveIndex drive{d};
    DriveWork work = attend_work(part, drive);
    if (work.sequences.empty()) continue;
    const SizedTensor partial{TensorName::of(TensorClass::partial_output, part.tag, all, d), work.from_drive};
    Ids deps = at_hand;
    wait_for_prefill(part, drive, deps);
    TensorUses uses{.reads = {q.name}, .writes = {partial}};
    if (division_.appends(drive, part.tag.step)) {
      const TensorName kv = new_kv_of(part, drive).name;
      uses.reads.push_back(kv);
      uses.writes.push_back(cache_of(part, drive));
      uses.drops.push_back({kv, buffers(part)});
    }
    const OperationId attend =
        sink.add(OpKind::attend, Resource::drive(drive), part.tag, std::move(work), std::move(deps), std::move(uses));
    ready.push_back(
        staged(sink, ResourceKind::host_to_gpu, part.tag, LinkPayload::activations, {attend}, {partial}).front());
    merge.reads.push_back(partial.name);
    merge.drops.push_back({partial.name, gpu_memory(part.tag)});
  }
  const auto parts = static_cast<std::uint32_t>(merge.reads.size());
  const OperationId merged = sink.add(OpKind::merge_attention, gpu(part.tag), part.tag,
                                      model().merge_attention(part.tokens, parts), std::move(ready), std::move(merge));
  return {{merged}, {output.name}};
}

/// Later steps are behind the first one, so it alone has to wait for the prefill's K and V.
void InstInfer::wait_for_prefill(const Part& part, DriveIndex drive, Ids& deps) const {
  if (kept_.empty()) return;
  const Ids& latest = kept_[part.mini_batch()][part.layer()][drive.value];
  deps.insert(deps.end(), latest.begin(), latest.end());
}

std::vector<SizedTensor> InstInfer::new_kv_parts(const Part& part) const {
  std::vector<SizedTensor> parts;
  for (std::uint32_t d = 0; d < division_.drives(); ++d)
    if (const SizedTensor kv = new_kv_of(part, DriveIndex{d}); kv.bytes.value > 0) parts.push_back(kv);
  return parts;
}

SizedTensor InstInfer::new_kv_of(const Part& part, DriveIndex drive) const {
  SizedTensor kv = new_kv(part, division_.heads(drive));
  if (!division_.by_tokens()) return kv;
  std::uint64_t tokens = 0;
  if (part.tag.phase == Phase::prefill)
    for (const StepSequence& s : part.sequences) tokens += division_.prompt(drive, s.tokens).count;
  else if (division_.appends(drive, part.tag.step))
    tokens = part.tokens;
  kv.name.part = drive.value;
  kv.bytes = kept_kv(tokens);
  return kv;
}

SizedTensor InstInfer::cache_of(const Part& part, DriveIndex drive) const {
  SizedTensor kept = cache(part, division_.heads(drive));
  if (!division_.by_tokens()) return kept;
  const std::uint32_t steps = part.tag.phase == Phase::prefill ? 0 : part.tag.step + 1;
  std::uint64_t tokens = 0;
  for (const StepSequence& s : part.sequences) tokens += division_.tokens(drive, prompt_of(s), steps);
  kept.name.part = drive.value;
  kept.bytes = kept_kv(tokens);
  return kept;
}

std::uint32_t InstInfer::prompt_of(const StepSequence& s) const { return inputs().workload.prompt_of(s.sequence); }

void InstInfer::admit(OperationSink& sink, const OpTag& tag, const std::vector<SequenceId>& sequences) {
  created_.clear();
  for (std::uint32_t d = 0; d < division_.drives(); ++d)
    created_.push_back(
        sink.add(OpKind::create_kv, Resource::drive(DriveIndex{d}), tag, SequencesWork{sequences, {}}, {}));
}

void InstInfer::sequences_end(OperationSink& sink, const Part& part, OperationId sampled) {
  for (std::uint32_t d = 0; d < division_.drives(); ++d) {
    const DriveIndex drive{d};
    const SizedTensor held = cache_of(part, drive);
    Ids deps = {sampled};
    TensorUses uses;
    for (std::uint32_t layer = 0; layer < model().layers; ++layer) {
      if (!kept_.empty()) {
        const Ids& latest = kept(part.mini_batch(), layer, drive);
        deps.insert(deps.end(), latest.begin(), latest.end());
      }
      // While other sequences are left, the next operation on the cache states its size.
      if (part.left > 0 || held.bytes.value == 0) continue;
      TensorName cache = held.name;
      cache.layer = LayerId{layer};
      uses.drops.push_back({cache, Place::drive_kv(drive)});
    }
    const OperationId freed =
        sink.add(OpKind::free_kv, Resource::drive(drive), part.tag,
                 SequencesWork{{part.ending.begin(), part.ending.end()}, {}}, std::move(deps), std::move(uses));
    for (std::uint32_t layer = 0; part.left == 0 && layer < model().layers; ++layer)
      kept(part.mini_batch(), layer, drive) = {freed};
  }
}

InstInfer::Ids InstInfer::staged(OperationSink& sink, ResourceKind link, const OpTag& tag, LinkPayload payload,
                                 Ids deps, const std::vector<SizedTensor>& tensors) const {
  if (!inputs().through_host) return deps;
  return {transfer(sink, link, tag, payload, std::move(deps), tensors)};
}

DriveWork InstInfer::append_work(const Part& part, DriveIndex drive) const {
  DriveWork work{.heads = division_.heads(drive), .memory = buffer_memory(part)};
  for (const StepSequence& s : part.sequences)
    if (const Share tokens = division_.prompt(drive, s.tokens); tokens.count > 0)
      work.sequences.push_back({.sequence = s.sequence, .first_token = TokenIndex{0}, .tokens = tokens.count});
  work.to_drive = new_kv_of(part, drive).bytes;
  return work;
}

DriveWork InstInfer::attend_work(const Part& part, DriveIndex drive) const {
  const HeadRange heads = division_.heads(drive);
  DriveWork work{.heads = heads,
                 .method = method_,
                 .components = budget_ ? budget_->components() : 0,
                 .memory = buffer_memory(part),
                 .partial = division_.by_tokens()};
  for (const StepSequence& s : part.sequences) {
    const std::uint32_t step = s.first_token - prompt_of(s);
    const std::uint32_t appended = division_.appends(drive, step) ? s.tokens : 0;
    const std::uint32_t first = division_.tokens(drive, prompt_of(s), step);
    const std::uint32_t context = first + appended;
    if (context == 0) continue;
    work.sequences.push_back({.sequence = s.sequence,
                              .first_token = TokenIndex{first},
                              .tokens = appended,
                              .top_k = budget_ ? budget_->top_k(context) : context,
                              .local = budget_ ? budget_->local(context) : 0});
  }
  const std::uint64_t rows = work.sequences.size();
  work.to_drive = model().query_bytes(heads) * rows + new_kv_of(part, drive).bytes;
  work.from_drive = (work.partial ? model().partial_bytes(heads) : model().query_bytes(heads)) * rows;
  return work;
}

}  // namespace csdsim::host
