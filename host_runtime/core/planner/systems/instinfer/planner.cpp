#include "host_runtime/core/planner/systems/instinfer/planner.h"

#include <utility>

#include "base/error.h"

namespace csdsim::host {

InstInfer::InstInfer(const PlannerInputs& inputs, std::uint32_t kv_buffers, const std::optional<SparfParameters>& sparf)
    : LayerPlanner(inputs, shard_heads(inputs.model.kv_heads, inputs.drives)),
      kv_buffers_(kv_buffers),
      method_(sparf ? DriveMethod::sparf : DriveMethod::dense) {
  if (kv_buffers_ == 0) throw UserError("system: kv_buffers is 0, must be at least 1");
  if (sparf) budget_.emplace(*sparf, model().head_dim);
}

InstInfer::Ids InstInfer::room_for(const Part& part) const {
  if (part.layer() < kv_buffers_) return {};
  Ids room;
  for (const Ids& of_drive : kept_[part.mini_batch()][part.layer() - kv_buffers_])
    room.insert(room.end(), of_drive.begin(), of_drive.end());
  return room;
}

LayerPlanner::Ids& InstInfer::kept(std::uint32_t mini_batch, std::uint32_t layer, std::uint32_t drive) {
  if (kept_.empty()) kept_.assign(mini_batches(), std::vector(model().layers, std::vector<Ids>(shards().size())));
  return kept_[mini_batch][layer][drive];
}

void InstInfer::keep(OperationSink& sink, const Part& part, OperationId projected) {
  for (std::uint32_t d = 0; d < shards().size(); ++d) {
    DriveWork work = append_work(part, shards()[d]);
    const SizedTensor kv = new_kv(part, shards()[d]);
    Ids at_hand = staged(sink, ResourceKind::gpu_to_host, part.tag, LinkPayload::kv, {projected}, {kv});
    Ids& latest = kept(part.mini_batch(), part.layer(), d);
    at_hand.insert(at_hand.end(), latest.begin(), latest.end());
    if (!created_.empty()) at_hand.push_back(created_[d]);
    TensorUses uses{.reads = {kv.name}, .writes = {cache(part, shards()[d])}, .drops = {{kv.name, buffers()}}};
    latest = {sink.add(OpKind::append_kv, Resource::drive(DriveIndex{d}), part.tag, std::move(work), std::move(at_hand),
                       std::move(uses))};
  }
}

LayerPlanner::Outputs InstInfer::attend(OperationSink& sink, const Part& part, OperationId projected) {
  Outputs outputs;
  for (std::uint32_t d = 0; d < shards().size(); ++d) {
    const HeadRange heads = shards()[d];
    DriveWork work = attend_work(part, heads);
    const SizedTensor q = queries(part, heads);
    const SizedTensor kv = new_kv(part, heads);
    const SizedTensor output = attention_output(part, heads);
    Ids deps = staged(sink, ResourceKind::gpu_to_host, part.tag, LinkPayload::kv, {projected}, {q, kv});
    // Later steps are behind the first one, so it alone has to wait for the prefill's K and V.
    if (!kept_.empty()) {
      const Ids& latest = kept(part.mini_batch(), part.layer(), d);
      deps.insert(deps.end(), latest.begin(), latest.end());
    }
    TensorUses uses{.reads = {q.name, kv.name},
                    .writes = {output, cache(part, heads)},
                    .drops = {{q.name, buffers()}, {kv.name, buffers()}}};
    const OperationId attend = sink.add(OpKind::attend, Resource::drive(DriveIndex{d}), part.tag, std::move(work),
                                        std::move(deps), std::move(uses));
    outputs.ready.push_back(
        staged(sink, ResourceKind::host_to_gpu, part.tag, LinkPayload::activations, {attend}, {output}).front());
    outputs.tensors.push_back(output.name);
  }
  return outputs;
}

void InstInfer::admit(OperationSink& sink, const OpTag& tag, const std::vector<SequenceId>& sequences) {
  created_.clear();
  for (std::uint32_t d = 0; d < shards().size(); ++d)
    created_.push_back(
        sink.add(OpKind::create_kv, Resource::drive(DriveIndex{d}), tag, SequencesWork{sequences, {}}, {}));
}

void InstInfer::sequences_end(OperationSink& sink, const Part& part, OperationId sampled) {
  for (std::uint32_t d = 0; d < shards().size(); ++d) {
    Ids deps = {sampled};
    TensorUses uses;
    for (std::uint32_t layer = 0; layer < model().layers; ++layer) {
      if (!kept_.empty()) {
        const Ids& latest = kept(part.mini_batch(), layer, d);
        deps.insert(deps.end(), latest.begin(), latest.end());
      }
      // While other sequences are left, the next operation on the cache states its size.
      if (part.left == 0)
        uses.drops.push_back({TensorName::kept(TensorClass::kv_cache, LayerId{layer}, part.tag.mini_batch, shards()[d]),
                              Place::drive(DriveIndex{d})});
    }
    const OperationId freed =
        sink.add(OpKind::free_kv, Resource::drive(DriveIndex{d}), part.tag,
                 SequencesWork{{part.ending.begin(), part.ending.end()}, {}}, std::move(deps), std::move(uses));
    for (std::uint32_t layer = 0; part.left == 0 && layer < model().layers; ++layer)
      kept(part.mini_batch(), layer, d) = {freed};
  }
}

InstInfer::Ids InstInfer::staged(OperationSink& sink, ResourceKind link, const OpTag& tag, LinkPayload payload,
                                 Ids deps, const std::vector<SizedTensor>& tensors) const {
  if (!inputs().through_host) return deps;
  return {transfer(sink, link, tag, payload, std::move(deps), tensors)};
}

DriveWork InstInfer::append_work(const Part& part, HeadRange heads) const {
  DriveWork work{.heads = heads, .memory = buffer_memory()};
  for (const StepSequence& s : part.sequences)
    work.sequences.push_back({.sequence = s.sequence, .first_token = TokenIndex{s.first_token}, .tokens = s.tokens});
  work.to_drive = new_kv(part, heads).bytes;
  return work;
}

DriveWork InstInfer::attend_work(const Part& part, HeadRange heads) const {
  DriveWork work{
      .heads = heads, .method = method_, .components = budget_ ? budget_->components() : 0, .memory = buffer_memory()};
  for (const StepSequence& s : part.sequences)
    work.sequences.push_back({.sequence = s.sequence,
                              .first_token = TokenIndex{s.first_token},
                              .tokens = s.tokens,
                              .top_k = budget_ ? budget_->top_k(s.context()) : s.context(),
                              .local = budget_ ? budget_->local(s.context()) : 0});
  work.from_drive = queries(part, heads).bytes;
  work.to_drive = work.from_drive + new_kv(part, heads).bytes;
  return work;
}

}  // namespace csdsim::host
