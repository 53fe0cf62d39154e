// Writes the newest tokens of a step to their part.
#include "host_runtime/core/systems/hybrid/planner.h"
#include "host_runtime/core/systems/hybrid/tensors.h"

namespace csdsim::host {

using namespace hybrid_tensors;

void HybridPlanner::write_back(OperationSink& sink, const Part& part, OperationId attention) {
  Layer& layer = state(part);
  Ids before = {attention};
  layer.newest.clear();
  if (plan_.newest == Place::host()) {
    const SizedTensor kv = new_kv(part, heads()), grown = newest(part, division_.newest(part.tag.step) + 1);
    before = {transfer(sink, ResourceKind::gpu_to_host, part.tag, LinkPayload::kv, {attention}, {kv})};
    TensorUses uses{.reads = {kv.name}, .writes = {grown}, .drops = {{kv.name, Place::host()}}};
    if (division_.newest(part.tag.step) > 0) uses.reads.push_back(grown.name);
    before = {sink.add(OpKind::append_kv, Resource::host(), part.tag, ComputeWork{.launches = 0}, std::move(before),
                       std::move(uses))};
    layer.newest = before;
  }
  if (!division_.writes_back(part.tag.step)) return;
  const KvDivision::Target target = division_.target(part.tag.step);
  if (target.part == TokenPart::drives) return write_back_to_drive(sink, part, target.drive, std::move(before));
  if (target.part == TokenPart::recomputed) return append_activations(sink, part, std::move(before));
  append_to(sink, part, target.part, std::move(before));
}

void HybridPlanner::write_back_to_drive(OperationSink& sink, const Part& part, DriveIndex drive, Ids before) {
  const Place from = newest_place(part);
  const Place buffer = staged(from) ? Place::host() : from;
  const SizedTensor group = newest(part, division_.group());
  const SizedTensor written{TensorName::of(TensorClass::new_kv, part.tag, heads(), kWritten), group.bytes};
  const Resource processor = from.kind == PlaceKind::host ? Resource::host() : gpu(part.tag);
  // The drive takes the group from where it is.
  before = {sink.add(OpKind::gather_kv, processor, part.tag, ComputeWork{.launches = 0}, std::move(before),
                     {.reads = {group.name}, .writes = {written}, .drops = {{group.name, from}}})};
  if (staged(from))
    before = {transfer(sink, ResourceKind::gpu_to_host, part.tag, LinkPayload::kv, std::move(before), {written})};
  Ids& there = state(part).drives[drive.value];
  add(before, there);
  there = {
      sink.add(OpKind::append_kv, Resource::drive(drive), part.tag,
               append_work(part, drive, part.tag.step, memory_of(buffer)), std::move(before),
               {.reads = {written.name},
                .writes = {kept_tensor(part, kFirstDrive + drive.value, tokens_in(part, drive, part.tag.step + 1))},
                .drops = {{written.name, buffer}}})};
}

void HybridPlanner::append_to(OperationSink& sink, const Part& part, TokenPart target, Ids before) {
  const bool on_gpu = target == TokenPart::kept;
  const std::uint32_t number = on_gpu ? kKept : kCopied, step = part.tag.step;
  const Place from = newest_place(part), to = on_gpu ? gpu_memory(part.tag) : Place::host();
  SizedTensor group = newest(part, division_.group());
  if (from != to) {
    const SizedTensor moved = step_tensor(part, kMoved, part.sequences.size() * division_.group());
    const ResourceKind link = on_gpu ? ResourceKind::host_to_gpu : ResourceKind::gpu_to_host;
    before = {copy(sink, link, part, LinkPayload::kv, group.name, moved,
                   std::vector<std::uint32_t>(part.sequences.size(), division_.group()), std::move(before),
                   {{group.name, from}})};
    group = moved;
  }
  const SizedTensor grown = kept_tensor(part, number, tokens_in(part, target, step + 1));
  TensorUses uses{.reads = {group.name}, .writes = {grown}, .drops = {{group.name, to}}};
  if (tokens_in(part, target, step) > 0) uses.reads.push_back(grown.name);
  Ids& there = on_gpu ? state(part).kept : state(part).copied;
  add(before, there);
  there = {sink.add(OpKind::append_kv, on_gpu ? gpu(part.tag) : Resource::host(), part.tag, ComputeWork{.launches = 0},
                    std::move(before), std::move(uses))};
}

}  // namespace csdsim::host
