#include "host_runtime/core/systems/hybrid/planner.h"

#include <algorithm>

#include "base/error.h"
#include "host_runtime/core/systems/hybrid/tensors.h"

namespace csdsim::host {

using namespace hybrid_tensors;

HybridPlanner::HybridPlanner(const PlannerInputs& inputs, const HybridPlan& plan, const WeightPlacement& weights)
    : LayerPlanner(inputs, {HeadRange{KvHead{0}, inputs.model.kv_heads}}, weights, plan.kv),
      plan_(plan),
      division_(plan.shares, inputs.model.kv_heads, inputs.drives),
      attended_(mini_batches()) {
  if (plan_.kv_buffers == 0) throw UserError("system: kv_buffers is 0, must be at least 1");
  if (inputs.workload.served())
    throw UserError("system: tokens that are divided among GPU, link and drives take no requests while others run");
  if (plan_.sparf) budget_.emplace(*plan_.sparf, model().head_dim);
  if (plan_.activations == Place::drive_blocks()) on_drives_.emplace(inputs, division_, scheduler().shares());
  layers_.assign(mini_batches(),
                 std::vector<Layer>(model().layers, Layer{{}, {}, {}, {}, std::vector<Ids>(inputs.drives)}));
}

std::uint64_t HybridPlanner::tokens_in(const Part& part, TokenPart of, std::uint32_t steps) const {
  std::uint64_t sum = 0;
  for (const std::uint32_t tokens : each(part, of, steps)) sum += tokens;
  return sum;
}

std::uint64_t HybridPlanner::tokens_in(const Part& part, DriveIndex drive, std::uint32_t steps) const {
  std::uint64_t sum = 0;
  for (const StepSequence& s : part.sequences) sum += division_.tokens(drive, prompt_of(s), steps);
  return sum;
}

std::vector<std::uint32_t> HybridPlanner::each(const Part& part, TokenPart of, std::uint32_t steps) const {
  std::vector<std::uint32_t> tokens;
  for (const StepSequence& s : part.sequences) tokens.push_back(division_.tokens(of, prompt_of(s), steps));
  return tokens;
}

SizedTensor HybridPlanner::kept_tensor(const Part& part, std::uint32_t number, std::uint64_t tokens) const {
  return {TensorName::kept(TensorClass::kv_cache, part.tag.layer, part.tag.mini_batch, heads(), number),
          kept_kv(tokens)};
}

SizedTensor HybridPlanner::step_tensor(const Part& part, std::uint32_t number, std::uint64_t tokens) const {
  return {TensorName::of(TensorClass::kv_cache, part.tag, heads(), number), kept_kv(tokens)};
}

SizedTensor HybridPlanner::activations(const Part& part, std::uint32_t number, std::uint64_t tokens) const {
  return {TensorName::kept(TensorClass::layer_input, part.tag.layer, part.tag.mini_batch, {}, number),
          activations_of(tokens)};
}

SizedTensor HybridPlanner::newest(const Part& part, std::uint32_t of_sequence) const {
  return kept_tensor(part, kNewest + part.tag.step / division_.group() % 2, part.sequences.size() * of_sequence);
}

SizedTensor HybridPlanner::newest_activations(const Part& part, std::uint32_t of_sequence) const {
  return activations(part, kNewestActivations + part.tag.step / division_.group() % 2,
                     part.sequences.size() * of_sequence);
}

SizedTensor HybridPlanner::piece(const Part& part, std::uint32_t number) const {
  std::uint64_t tokens = 0;
  for (const StepSequence& s : part.sequences) tokens += division_.prompt_piece(number, s.tokens).count;
  return {TensorName::of(TensorClass::new_kv, part.tag, heads(), number), kept_kv(tokens)};
}

std::vector<PlacedTensor> HybridPlanner::resident() const {
  std::vector<PlacedTensor> tensors = LayerPlanner::resident();
  if (inputs().span.prefill) return tensors;
  const std::uint32_t steps = inputs().span.first_step, waiting = division_.newest(steps);
  const auto place = [&](const SizedTensor& tensor, Place at) {
    if (tensor.bytes.value > 0) tensors.push_back({tensor.name, at, tensor.bytes});
  };
  for (std::uint32_t layer = 0; layer < model().layers; ++layer)
    for (std::uint32_t mb = 0; mb < mini_batches(); ++mb) {
      const Part part = first_part(layer, mb);
      if (!on_drives_)
        place(activations(part, kActivations, tokens_in(part, TokenPart::recomputed, steps)), Place::host());
      for (std::uint32_t d = 0; on_drives_ && d < division_.drives(); ++d)
        place(activations_on(part, DriveIndex{d}, steps), Place::drive_blocks(DriveIndex{d}));
      place(kept_tensor(part, kKept, tokens_in(part, TokenPart::kept, steps)), gpu_memory(part.tag));
      place(kept_tensor(part, kCopied, tokens_in(part, TokenPart::copied, steps)), Place::host());
      place(newest(part, waiting), newest_place(part));
      if (division_.target(steps).part == TokenPart::recomputed)
        place(newest_activations(part, waiting), gpu_memory(part.tag));
    }
  return tensors;
}

LayerPlanner::Ids HybridPlanner::room_for(const Part& part) const {
  if (part.layer() < plan_.kv_buffers) return {};
  const Layer& layer = layers_[part.mini_batch()][part.layer() - plan_.kv_buffers];
  Ids room = layer.activations;
  add(room, layer.copied);
  for (const Ids& of_drive : layer.drives) add(room, of_drive);
  return room;
}

std::vector<SizedTensor> HybridPlanner::kept_inputs(const Part& part) const {
  if (part.tag.phase == Phase::prefill) {
    if (tokens_in(part, TokenPart::recomputed, 0) == 0) return {};
    return {activations(part, kActivations, part.tokens)};
  }
  if (division_.target(part.tag.step).part != TokenPart::recomputed) return {};
  return {newest_activations(part, division_.newest(part.tag.step) + 1)};
}

std::vector<SizedTensor> HybridPlanner::new_kv_parts(const Part& part) const {
  if (part.tag.phase == Phase::decode) return {new_kv(part, heads())};
  std::vector<SizedTensor> pieces;
  for (std::uint32_t number = 0; number <= division_.piece_of(TokenPart::copied); ++number)
    if (SizedTensor kv = piece(part, number); kv.bytes.value > 0) pieces.push_back(kv);
  return pieces;
}

OperationId HybridPlanner::copy(OperationSink& sink, ResourceKind link, const Part& part, LinkPayload payload,
                                const TensorName& from, const SizedTensor& to,
                                const std::vector<std::uint32_t>& of_sequence, Ids before,
                                std::vector<TensorAt> drops) const {
  TensorUses uses{.reads = {from}, .writes = {to}, .drops = std::move(drops)};
  for (std::size_t i = 0; i < of_sequence.size(); ++i)
    uses.tokens.push_back({part.sequences[i].sequence, 0, of_sequence[i]});
  return sink.add(OpKind::transfer, {link, gpu_index(part.tag)}, part.tag, LinkWork{to.bytes, payload},
                  std::move(before), std::move(uses));
}

DriveWork HybridPlanner::append_work(const Part& part, DriveIndex drive, std::uint32_t steps, Place memory) const {
  DriveWork work{.heads = heads(), .memory = memory};
  for (const StepSequence& s : part.sequences) {
    const bool prefill = part.tag.phase == Phase::prefill;
    const std::uint32_t first = prefill ? 0 : division_.tokens(drive, prompt_of(s), steps);
    const std::uint32_t tokens = prefill ? division_.prompt(drive, s.tokens).count : division_.group();
    if (tokens == 0) continue;
    work.sequences.push_back({.sequence = s.sequence, .first_token = TokenIndex{first}, .tokens = tokens});
    work.to_drive += kept_kv(tokens);
  }
  return work;
}

void HybridPlanner::keep(OperationSink& sink, const Part& part, OperationId projected) {
  Layer& layer = state(part);
  const Place memory = gpu_memory(part.tag);
  keep_activations(sink, part, projected);
  // K and V are where they belong when they have been written or copied, so that appending takes no time.
  const auto append = [&](TokenPart of, Resource processor, Ids before, std::uint32_t number, Place at) {
    const SizedTensor kv = piece(part, division_.piece_of(of));
    return sink.add(
        OpKind::append_kv, processor, part.tag, ComputeWork{.launches = 0}, std::move(before),
        {.reads = {kv.name}, .writes = {kept_tensor(part, number, tokens_in(part, of, 0))}, .drops = {{kv.name, at}}});
  };
  if (tokens_in(part, TokenPart::kept, 0) > 0)
    layer.kept = {append(TokenPart::kept, gpu(part.tag), {projected}, kKept, memory)};
  if (const SizedTensor kv = piece(part, division_.piece_of(TokenPart::copied)); kv.bytes.value > 0) {
    const OperationId there = transfer(sink, ResourceKind::gpu_to_host, part.tag, LinkPayload::kv, {projected}, {kv});
    layer.copied = {append(TokenPart::copied, Resource::host(), {there}, kCopied, Place::host())};
  }
  for (std::uint32_t d = 0; d < division_.drives(); ++d) {
    const DriveIndex drive{d};
    const SizedTensor kv = piece(part, d);
    if (kv.bytes.value == 0) continue;
    Ids at_hand = {projected};
    if (inputs().through_host)
      at_hand = {transfer(sink, ResourceKind::gpu_to_host, part.tag, LinkPayload::kv, at_hand, {kv})};
    layer.drives[d] = {sink.add(OpKind::append_kv, Resource::drive(drive), part.tag,
                                append_work(part, drive, 0, memory_of(buffers(part))), std::move(at_hand),
                                {.reads = {kv.name},
                                 .writes = {kept_tensor(part, kFirstDrive + d, tokens_in(part, drive, 0))},
                                 .drops = {{kv.name, buffers(part)}}})};
  }
}

void HybridPlanner::copy_tokens(OperationSink& sink, const Part& part, const Ids& room, OnGpu& on_gpu) {
  const std::uint64_t tokens = tokens_in(part, TokenPart::copied, part.tag.step);
  if (tokens == 0) return;
  const SizedTensor made = step_tensor(part, kHostCopy, tokens);
  Ids before = state(part).copied;
  add(before, room);
  on_gpu.ready.push_back(copy(sink, ResourceKind::host_to_gpu, part, LinkPayload::kv,
                              kept_tensor(part, kCopied, tokens).name, made,
                              each(part, TokenPart::copied, part.tag.step), std::move(before), {}));
  on_gpu.uses.reads.push_back(made.name);
  on_gpu.uses.drops.push_back({made.name, gpu_memory(part.tag)});
  on_gpu.tokens += tokens;
}

/// The new tokens join those that wait for their group, or a copy of them.
void HybridPlanner::join_newest(OperationSink& sink, const Part& part, const Ids& room, OnGpu& on_gpu) {
  const std::uint32_t waiting = division_.newest(part.tag.step);
  const auto rows = part.sequences.size();
  const Place memory = gpu_memory(part.tag);
  const TensorName kv = new_kv(part, heads()).name;
  on_gpu.uses.reads.push_back(kv);
  on_gpu.tokens += rows * (waiting + 1);
  if (plan_.newest == Place::gpu()) {
    add(on_gpu.ready, state(part).newest);
    const SizedTensor grown = newest(part, waiting + 1);
    if (waiting > 0) on_gpu.uses.reads.push_back(grown.name);
    on_gpu.uses.writes.push_back(grown);
    on_gpu.uses.drops.push_back({kv, memory});
    // K and V of a token whose activations are kept are dropped.
    if (division_.writes_back(part.tag.step) && division_.target(part.tag.step).part == TokenPart::recomputed)
      on_gpu.uses.drops.push_back({grown.name, memory});
    return;
  }
  const SizedTensor copied = step_tensor(part, kNewestCopy, rows * waiting);
  if (waiting > 0) {
    Ids before = state(part).newest;
    add(before, room);
    on_gpu.ready.push_back(copy(sink, ResourceKind::host_to_gpu, part, LinkPayload::kv, newest(part, waiting).name,
                                copied, std::vector<std::uint32_t>(rows, waiting), std::move(before), {}));
    on_gpu.uses.reads.push_back(copied.name);
  }
  on_gpu.uses.writes.push_back(step_tensor(part, kNewestCopy, rows * (waiting + 1)));
  on_gpu.uses.drops.push_back({copied.name, memory});
}

DriveWork HybridPlanner::attend_work(const Part& part, DriveIndex drive) const {
  DriveWork work{.heads = heads(),
                 .method = budget_ ? Method::sparf : Method::dense,
                 .components = budget_ ? budget_->components() : 0,
                 .memory = memory_of(buffers(part)),
                 .partial = true};
  for (const StepSequence& s : part.sequences) {
    const std::uint32_t context = division_.tokens(drive, prompt_of(s), part.tag.step);
    if (context == 0) continue;
    work.sequences.push_back({.sequence = s.sequence,
                              .first_token = TokenIndex{context},
                              .tokens = 0,
                              .top_k = budget_ ? budget_->top_k(context) : context,
                              .local = budget_ ? budget_->local(context) : 0});
  }
  const std::uint64_t rows = work.sequences.size();
  work.to_drive = model().query_bytes(heads()) * rows;
  work.from_drive = model().partial_bytes(heads()) * rows;
  return work;
}

LayerPlanner::Ids HybridPlanner::attend_in_drives(OperationSink& sink, const Part& part, OperationId projected,
                                                  Ids& ready, TensorUses& merge) {
  Ids in_drives;
  if (tokens_in(part, TokenPart::drives, part.tag.step) == 0) return in_drives;
  const SizedTensor q = queries(part, heads());
  Ids at_hand = {projected};
  if (inputs().through_host) {
    at_hand = {transfer(sink, ResourceKind::gpu_to_host, part.tag, LinkPayload::kv, at_hand, {q}, true)};
    merge.drops.push_back({q.name, Place::host()});
  }
  for (std::uint32_t d = 0; d < division_.drives(); ++d) {
    const DriveIndex drive{d};
    DriveWork work = attend_work(part, drive);
    if (work.sequences.empty()) continue;
    const SizedTensor partial{TensorName::of(TensorClass::partial_output, part.tag, heads(), d), work.from_drive};
    Ids deps = at_hand;
    add(deps, state(part).drives[d]);
    OperationId attended = sink.add(OpKind::attend, Resource::drive(drive), part.tag, std::move(work), std::move(deps),
                                    {.reads = {q.name}, .writes = {partial}});
    // A group that the step writes back must not reach the drive before: the drive attends to all tokens that it has.
    state(part).drives[d] = {attended};
    in_drives.push_back(attended);
    if (inputs().through_host)
      attended = transfer(sink, ResourceKind::host_to_gpu, part.tag, LinkPayload::activations, {attended}, {partial});
    ready.push_back(attended);
    merge.reads.push_back(partial.name);
    merge.drops.push_back({partial.name, gpu_memory(part.tag)});
  }
  return in_drives;
}

const HybridPlanner::Attended* HybridPlanner::freed_by(const Part& part) const {
  const std::vector<Attended>& last = attended_[part.mini_batch()];
  return last.size() < plan_.kv_buffers ? nullptr : &last.front();
}

LayerPlanner::Outputs HybridPlanner::attend(OperationSink& sink, const Part& part, OperationId projected) {
  const SizedTensor q = queries(part, heads()), output = attention_output(part, heads());
  const Place memory = gpu_memory(part.tag);
  TensorUses merge{.writes = {output}};
  Ids ready;
  Ids in_drives = attend_in_drives(sink, part, projected, ready, merge);
  const bool merges = !merge.reads.empty();

  Ids room;
  if (const Attended* const freed = freed_by(part)) room.push_back(freed->on_gpu);
  OnGpu on_gpu{.ready = {projected}, .uses = {.reads = {q.name}}};
  recompute(sink, part, projected, room, on_gpu);
  copy_tokens(sink, part, room, on_gpu);
  if (const std::uint64_t tokens = tokens_in(part, TokenPart::kept, part.tag.step); tokens > 0) {
    on_gpu.uses.reads.push_back(kept_tensor(part, kKept, tokens).name);
    on_gpu.tokens += tokens;
    add(on_gpu.ready, state(part).kept);
  }
  join_newest(sink, part, room, on_gpu);
  const SizedTensor own{TensorName::of(TensorClass::partial_output, part.tag, heads(), division_.drives()),
                        model().partial_bytes(heads()) * part.tokens};
  on_gpu.uses.writes.push_back(merges ? own : output);
  if (!merges) on_gpu.uses.drops.push_back({q.name, memory});
  const ComputeWork work = with_dequantising(model().decode_attention(part.sequences.size(), on_gpu.tokens), part,
                                             on_gpu.tokens - on_gpu.recomputed, gpu_memory(part.tag), on_gpu.uses);
  const OperationId attention =
      sink.add(OpKind::attention, gpu(part.tag), part.tag, work, std::move(on_gpu.ready), std::move(on_gpu.uses));
  std::vector<Attended>& attended = attended_[part.mini_batch()];
  attended.push_back({attention, std::move(in_drives)});
  if (attended.size() > plan_.kv_buffers) attended.erase(attended.begin());
  write_back(sink, part, attention);
  if (!merges) return {{attention}, {output.name}};

  ready.push_back(attention);
  merge.reads.push_back(own.name);
  for (const TensorName& name : {own.name, q.name}) merge.drops.push_back({name, memory});
  const auto parts = static_cast<std::uint32_t>(merge.reads.size());
  const OperationId merged = sink.add(OpKind::merge_attention, gpu(part.tag), part.tag,
                                      model().merge_attention(part.tokens, parts), std::move(ready), std::move(merge));
  return {{merged}, {output.name}};
}

}  // namespace csdsim::host
