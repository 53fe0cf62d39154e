// Keeps the activations of recomputed tokens and brings them to the GPU.
#include "host_runtime/core/systems/hybrid/planner.h"
#include "host_runtime/core/systems/hybrid/tensors.h"

namespace csdsim::host {

using namespace hybrid_tensors;

std::vector<PlannedBlocks> HybridPlanner::blocks() const {
  std::vector<PlannedBlocks> blocks = LayerPlanner::blocks();
  for (std::uint32_t d = 0; on_drives_ && d < division_.drives(); ++d)
    if (const std::uint64_t of_drive = on_drives_->blocks(DriveIndex{d}); of_drive > 0)
      blocks.push_back({DriveIndex{d}, of_drive});
  return blocks;
}

SizedTensor HybridPlanner::activations_on(const Part& part, DriveIndex drive, std::uint32_t steps) const {
  return activations(part, kFirstDriveActivations + drive.value, on_drives_->tokens(part.mini_batch(), drive, steps));
}

BlockWork HybridPlanner::block_work(const Part& part, Extent extent) const {
  return {.extents = {extent},
          .payload = LinkPayload::activations,
          .memory = memory_of(buffers(part)),
          .chunk = activation_request(inputs().block_size),
          .block_size = inputs().block_size};
}

void HybridPlanner::keep_activations(OperationSink& sink, const Part& part, OperationId projected) {
  const std::uint64_t tokens = tokens_in(part, TokenPart::recomputed, 0);
  if (tokens == 0) return;
  Layer& layer = state(part);
  const SizedTensor all = activations(part, kActivations, tokens);
  const Place memory = gpu_memory(part.tag);
  layer.activations = {projected};
  if (!on_drives_ || inputs().through_host)
    layer.activations = {copy(sink, ResourceKind::gpu_to_host, part, LinkPayload::activations, all.name, all,
                              each(part, TokenPart::recomputed, 0), layer.activations, {{all.name, memory}})};
  if (!on_drives_) return;
  Ids written;
  for (std::uint32_t d = 0; d < division_.drives(); ++d) {
    const DriveIndex drive{d};
    const SizedTensor there = activations_on(part, drive, 0);
    if (there.bytes.value == 0) continue;
    TensorUses uses{.reads = {all.name}, .writes = {there}};
    for (const StepSequence& s : part.sequences) {
      const Share of_prompt = on_drives_->prompt(drive, s.tokens);
      uses.tokens.push_back({s.sequence, of_prompt.first, of_prompt.count});
    }
    written.push_back(sink.add(OpKind::write_blocks, Resource::drive_blocks(drive), part.tag,
                               block_work(part, on_drives_->prompts(part.layer(), part.mini_batch(), drive)),
                               layer.activations, std::move(uses)));
  }
  // The buffer is free when all drives have their part.
  const Place buffer = buffers(part);
  const Resource processor = buffer.kind == PlaceKind::host ? Resource::host() : gpu(part.tag);
  layer.activations = {sink.add(OpKind::append_kv, processor, part.tag, ComputeWork{.launches = 0}, std::move(written),
                                {.reads = {all.name}, .drops = {{all.name, buffer}}})};
}

LayerPlanner::Ids HybridPlanner::load_activations(OperationSink& sink, const Part& part, const Ids& before,
                                                  TensorUses& recomputation) {
  const Place memory = gpu_memory(part.tag);
  const auto recompute_from = [&](const TensorName& name) {
    recomputation.reads.push_back(name);
    recomputation.drops.push_back({name, memory});
  };
  if (!on_drives_) {
    const SizedTensor kept = activations(part, kActivations, tokens_in(part, TokenPart::recomputed, part.tag.step));
    recompute_from(kept.name);
    return {transfer(sink, ResourceKind::host_to_gpu, part.tag, LinkPayload::activations, before, {kept}, true)};
  }
  Ids loaded;
  for (std::uint32_t d = 0; d < division_.drives(); ++d) {
    const DriveIndex drive{d};
    const SizedTensor there = activations_on(part, drive, part.tag.step);
    if (there.bytes.value == 0) continue;
    loaded.push_back(sink.add(OpKind::read_blocks, Resource::drive_blocks(drive), part.tag,
                              block_work(part, on_drives_->all(part.layer(), part.mini_batch(), drive, part.tag.step)),
                              before, {.reads = {there.name}, .writes = {there}}));
    if (inputs().through_host)
      loaded.back() =
          transfer(sink, ResourceKind::host_to_gpu, part.tag, LinkPayload::activations, {loaded.back()}, {there});
    recompute_from(there.name);
  }
  return loaded;
}

void HybridPlanner::recompute(OperationSink& sink, const Part& part, OperationId projected, const Ids& room,
                              OnGpu& on_gpu) {
  const std::uint64_t tokens = tokens_in(part, TokenPart::recomputed, part.tag.step);
  if (tokens == 0) return;
  const SizedTensor made{step_tensor(part, kRecomputedCopy, tokens).name,
                         model().kv_bytes_per_token_and_layer() * tokens};
  TensorUses uses{.writes = {made}};
  Ids before = state(part).activations;
  add(before, room);
  // A drive attends first: the GPU waits for its output, and for what is read ahead only later.
  if (const Attended* const freed = freed_by(part); on_drives_ && freed != nullptr) add(before, freed->in_drives);
  before = load_activations(sink, part, before, uses);
  add(before, kv_weights_copied(part));
  // The GPU does not recompute for this layer before the attention of the one before it: nothing waits for that longer.
  if (const auto& attended = attended_[part.mini_batch()]; !attended.empty()) before.push_back(attended.back().on_gpu);
  // The drives wait for the queries of the layer.
  if (plan_.projects_first && tokens_in(part, TokenPart::drives, part.tag.step) > 0) before.push_back(projected);
  const OperationId recomputed = sink.add(OpKind::recompute_kv, gpu(part.tag), part.tag, model().recompute_kv(tokens),
                                          std::move(before), std::move(uses));
  state(part).activations = {recomputed};  // the next copy of the activations has the same name
  on_gpu.ready.push_back(recomputed);
  on_gpu.uses.reads.push_back(made.name);
  on_gpu.uses.drops.push_back({made.name, gpu_memory(part.tag)});
  on_gpu.tokens += tokens;
  on_gpu.recomputed += tokens;
}

void HybridPlanner::append_activations(OperationSink& sink, const Part& part, Ids before) {
  const SizedTensor group = newest_activations(part, division_.group());
  const bool over_host = !on_drives_ || inputs().through_host;
  if (over_host)
    before.push_back(
        transfer(sink, ResourceKind::gpu_to_host, part.tag, LinkPayload::activations, {before.front()}, {group}));
  TensorUses uses{.reads = {group.name}, .drops = {{group.name, over_host ? Place::host() : gpu_memory(part.tag)}}};
  Ids& there = state(part).activations;
  add(before, there);
  const std::uint32_t step = part.tag.step, number = on_drives_ ? on_drives_->groups(step) : 0;
  const DriveIndex drive = on_drives_ ? on_drives_->drive_of(number) : DriveIndex{};
  const auto kept = [&](std::uint32_t steps) {
    return on_drives_ ? activations_on(part, drive, steps)
                      : activations(part, kActivations, tokens_in(part, TokenPart::recomputed, steps));
  };
  uses.writes.push_back(kept(step + 1));
  if (!on_drives_ && kept(step).bytes.value > 0) uses.reads.push_back(kept(step).name);
  const TensorAt newest_kv{newest(part, division_.group()).name, Place::host()};
  if (plan_.newest == Place::host() && !on_drives_) uses.drops.push_back(newest_kv);
  if (!on_drives_) {
    there = {sink.add(OpKind::append_kv, Resource::host(), part.tag, ComputeWork{.launches = 0}, std::move(before),
                      std::move(uses))};
    return;
  }
  there = {sink.add(OpKind::write_blocks, Resource::drive_blocks(drive), part.tag,
                    block_work(part, on_drives_->group(part.layer(), part.mini_batch(), number)), std::move(before),
                    std::move(uses))};
  if (plan_.newest == Place::host())
    there.push_back(sink.add(OpKind::append_kv, Resource::host(), part.tag, ComputeWork{.launches = 0}, there,
                             {.reads = {newest_kv.name}, .drops = {newest_kv}}));
}

}  // namespace csdsim::host
