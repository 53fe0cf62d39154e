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
  return kept_[part.mini_batch()][part.layer() - kv_buffers_];
}

void InstInfer::keep(OperationSink& sink, const Part& part, OperationId projected) {
  kept_.resize(mini_batches());
  Ids& kept = kept_[part.mini_batch()].emplace_back();
  for (std::uint32_t d = 0; d < shards().size(); ++d) {
    DriveWork work = append_work(part, shards()[d]);
    const SizedTensor kv = new_kv(part, shards()[d]);
    Ids at_hand = staged(sink, ResourceKind::gpu_to_host, part.tag, LinkPayload::kv, {projected}, {kv});
    TensorUses uses{.reads = {kv.name}, .writes = {cache(part, shards()[d])}, .drops = {{kv.name, buffers(part)}}};
    kept.push_back(sink.add(OpKind::append_kv, Resource::drive(DriveIndex{d}), part.tag, std::move(work),
                            std::move(at_hand), std::move(uses)));
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
    if (!kept_.empty()) deps.push_back(kept_[part.mini_batch()][part.layer()][d]);
    TensorUses uses{.reads = {q.name, kv.name},
                    .writes = {output, cache(part, heads)},
                    .drops = {{q.name, buffers(part)}, {kv.name, buffers(part)}}};
    const OperationId attend = sink.add(OpKind::attend, Resource::drive(DriveIndex{d}), part.tag, std::move(work),
                                        std::move(deps), std::move(uses));
    outputs.ready.push_back(
        staged(sink, ResourceKind::host_to_gpu, part.tag, LinkPayload::activations, {attend}, {output}).front());
    outputs.tensors.push_back(output.name);
  }
  return outputs;
}

InstInfer::Ids InstInfer::staged(OperationSink& sink, ResourceKind link, const OpTag& tag, LinkPayload payload,
                                 Ids deps, const std::vector<SizedTensor>& tensors) const {
  if (!inputs().through_host) return deps;
  return {transfer(sink, link, tag, payload, std::move(deps), tensors)};
}

DriveWork InstInfer::append_work(const Part& part, HeadRange heads) const {
  DriveWork work{.heads = heads, .memory = buffer_memory(part)};
  for (std::uint32_t i = 0; i < part.sequences.count; ++i)
    work.sequences.push_back(
        {.sequence = SequenceId{part.sequences.first + i}, .first_token = TokenIndex{0}, .tokens = part.prompts[i]});
  work.to_drive = new_kv(part, heads).bytes;
  return work;
}

DriveWork InstInfer::attend_work(const Part& part, HeadRange heads) const {
  DriveWork work{.heads = heads,
                 .method = method_,
                 .components = budget_ ? budget_->components() : 0,
                 .memory = buffer_memory(part)};
  for (std::uint32_t i = 0; i < part.sequences.count; ++i) {
    const std::uint32_t position = part.prompts[i] + part.tag.step;
    const std::uint32_t context = position + 1;
    work.sequences.push_back({.sequence = SequenceId{part.sequences.first + i},
                              .first_token = TokenIndex{position},
                              .tokens = 1,
                              .top_k = budget_ ? budget_->top_k(context) : context,
                              .local = budget_ ? budget_->local(context) : 0});
  }
  work.from_drive = queries(part, heads).bytes;
  work.to_drive = work.from_drive + new_kv(part, heads).bytes;
  return work;
}

}  // namespace csdsim::host
