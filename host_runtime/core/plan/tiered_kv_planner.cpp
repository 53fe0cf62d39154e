#include "host_runtime/core/plan/tiered_kv_planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "host_runtime/core/plan/kept_kv.h"

namespace csdsim::host {

std::vector<HeadRange> heads_of(const std::vector<KvShard>& shards) {
  std::vector<HeadRange> heads;
  for (const KvShard& shard : shards) heads.push_back(shard.heads);
  return heads;
}

std::vector<KvShard> tier_heads(std::uint32_t kv_heads, Ratio on_gpu, Ratio on_host) {
  const auto heads_at = [&](double share) { return static_cast<std::uint32_t>(std::lround(share * kv_heads)); };
  const std::uint32_t gpu = heads_at(on_gpu.value());
  const std::uint32_t host = std::min(heads_at(on_gpu.value() + on_host.value()), kv_heads);
  std::vector<KvShard> shards;
  const auto add = [&](std::uint32_t first, std::uint32_t end, Place tier) {
    if (end > first) shards.push_back({{KvHead{first}, end - first}, tier});
  };
  add(0, gpu, Place::gpu());
  add(gpu, host, Place::host());
  add(host, kv_heads, Place::file());
  return shards;
}

TieredKvPlanner::TieredKvPlanner(const PlannerInputs& inputs, const TieredKv& kv, const WeightPlacement& weights)
    : LayerPlanner(inputs, heads_of(kv.shards), weights, kv.format), kv_(kv), freed_(mini_batches()) {
  if (kv_.kv_buffers == 0) throw UserError("system: kv_buffers is 0, must be at least 1");
  if (kv_.rewritten && weights.in_files > Ratio{0, 1})
    throw InternalError("weights in files beside a cache that is rewritten");
  if (kv_.rewritten && kv_.format.quantised()) throw InternalError("a cache that is rewritten is not quantised");
  stored_.assign(mini_batches(), std::vector(model().layers, std::vector<Ids>(kv_.shards.size())));
}

std::vector<PlacedTensor> TieredKvPlanner::resident() const {
  std::vector<PlacedTensor> tensors = LayerPlanner::resident();
  if (inputs().span.prefill) return tensors;
  for (std::uint32_t layer = 0; layer < model().layers; ++layer)
    for (std::uint32_t mb = 0; mb < mini_batches(); ++mb) {
      const Part part = first_part(layer, mb);
      for (const KvShard& shard : kv_.shards) {
        const SizedTensor kept = cache_before(part, shard.heads);
        const Place place = shard.tier == Place::gpu()    ? gpu_memory(part.tag)
                            : shard.tier == Place::host() ? Place::host()
                                                          : Place::file(DriveIndex{file_of(part).index});
        tensors.push_back({kept.name, place, kept.bytes});
      }
    }
  return tensors;
}

Bytes TieredKvPlanner::row(const KvShard& shard) const {
  return kept_kv_bytes(model(), kv_format()) * shard.heads.count;
}

std::string TieredKvPlanner::file_name(const Part& part) {
  return fmt::format("K and V of layer {}, mini-batch {}", part.layer(), part.mini_batch());
}

std::uint64_t TieredKvPlanner::tokens_in_file(std::uint32_t mini_batch) const {
  const BatchLengths& work = inputs().workload;
  const Share share = scheduler().shares()[mini_batch];
  if (work.served()) return share.count * work.longest_sequence();
  std::uint64_t tokens = 0;
  for (std::uint32_t i = share.first; i < share.first + share.count; ++i) tokens += work.length_of(i);
  return tokens;
}

std::uint64_t TieredKvPlanner::first_in_file(const Part& part, SequenceId sequence) const {
  const BatchLengths& work = inputs().workload;
  const Share share = scheduler().shares()[part.mini_batch()];
  if (work.served()) return (scheduler().place_of(sequence) - share.first) * work.longest_sequence();
  std::uint64_t tokens = 0;
  for (std::uint32_t i = share.first; i < sequence.value; ++i) tokens += work.length_of(i);
  return tokens;
}

FileRange TieredKvPlanner::rows(const Part& part, const KvShard& shard, SequenceId sequence, std::uint32_t copy,
                                std::uint64_t first, std::uint64_t count) const {
  const std::uint64_t before = copy * tokens_in_file(part.mini_batch()) + first_in_file(part, sequence) + first;
  return {row(shard) * before, row(shard) * count};
}

std::vector<PlannedFile> TieredKvPlanner::layer_files(std::uint32_t layer) const {
  std::vector<PlannedFile> files;
  const PlanSpan& span = inputs().span;
  for (const KvShard& shard : kv_.shards) {
    if (shard.tier != Place::file()) continue;
    for (std::uint32_t mb = 0; mb < mini_batches(); ++mb) {
      Part part{.tag = {.layer = LayerId{layer}, .mini_batch = MiniBatch{mb}}, .sequences = {}};
      if (!span.prefill) part = first_part(layer, mb);
      PlannedFile file{.drive = DriveIndex{file_of(part).index},
                       .name = file_name(part),
                       .size = row(shard) * (copies() * tokens_in_file(mb))};
      // The copy that was read last, then the copy that was written last, which has a token more.
      for (std::uint32_t age = copies(); age-- > 0;)
        for (const StepSequence& s : part.sequences)
          file.written.push_back(rows(part, shard, s.sequence, copy_of(span.first_step + age), 0,
                                      s.first_token - std::min(age, span.first_step)));
      files.push_back(std::move(file));
    }
  }
  return files;
}

double TieredKvPlanner::reuse_distance() const {
  if (!kv_.rewritten) return 1;
  const double layers = model().layers;
  return std::max(1.0, layers - 1 - kv_.kv_buffers) / layers;
}

std::uint32_t TieredKvPlanner::layers_ahead() const {
  const bool copies = std::ranges::any_of(kv_.shards, [](const KvShard& shard) { return shard.tier != Place::gpu(); });
  return std::max(copies ? kv_.kv_buffers : 0, LayerPlanner::layers_ahead());
}

LayerPlanner::Ids TieredKvPlanner::room_for(const Part& part) const {
  if (part.layer() < kv_.kv_buffers) return {};
  Ids room;
  for (const Ids& stored : stored_[part.mini_batch()][part.layer() - kv_.kv_buffers])
    room.insert(room.end(), stored.begin(), stored.end());
  return room;
}

Bytes TieredKvPlanner::prefill_workspace(const Part& part) const {
  return kv_.stores_attention_weights ? attention_weights(part) : Bytes{};
}

void TieredKvPlanner::keep(OperationSink& sink, const Part& part, OperationId projected) {
  for (std::size_t i = 0; i < kv_.shards.size(); ++i)
    stored(part, i) = store(sink, part, kv_.shards[i], projected, stored(part, i));
}

LayerPlanner::Ids TieredKvPlanner::store(OperationSink& sink, const Part& part, const KvShard& shard, OperationId after,
                                         Ids before) {
  const SizedTensor kv = new_kv(part, shard.heads);
  // The projections or the transfer have written k and v to the cache already, so appending takes no time.
  const ComputeWork nothing{.launches = 0};
  const bool on_gpu = shard.tier == Place::gpu();
  if (!on_gpu) after = transfer(sink, ResourceKind::gpu_to_host, part.tag, LinkPayload::kv, {after}, {kv});
  before.insert(before.begin(), after);
  if (shard.tier == Place::file()) return store_in_file(sink, part, shard, std::move(before));
  return {sink.add(OpKind::append_kv, on_gpu ? gpu(part.tag) : Resource::host(), part.tag, nothing, std::move(before),
                   {.reads = {kv.name},
                    .writes = {cache(part, shard.heads)},
                    .drops = {{kv.name, on_gpu ? gpu_memory(part.tag) : Place::host()}}})};
}

LayerPlanner::Ids TieredKvPlanner::store_in_file(OperationSink& sink, const Part& part, const KvShard& shard,
                                                 Ids after) {
  const bool decode = part.tag.phase == Phase::decode;
  const bool all = kv_.rewritten && decode;
  FileWork work{.file = file_name(part), .payload = LinkPayload::kv};
  for (const StepSequence& s : part.sequences) {
    const std::uint32_t copy = decode ? copy_of(decoded(s) + 1) : copy_of(0);
    const std::uint32_t first = all ? 0 : s.first_token;
    work.ranges.push_back(rows(part, shard, s.sequence, copy, first, s.context() - first));
  }
  TensorName source = new_kv(part, shard.heads).name;
  const SizedTensor kept = cache(part, shard.heads);
  if (all) {
    // The host copies the old cache, and the new tokens behind it: a read and a write of each byte.
    after = {sink.add(OpKind::append_kv, Resource::host(), part.tag,
                      ComputeWork{.op = OperatorClass::elementwise, .activations = kept.bytes * 2, .launches = 0},
                      std::move(after),
                      {.reads = {source, kept.name}, .writes = {kept}, .drops = {{source, Place::host()}}})};
    source = kept.name;
  }
  TensorUses uses{.reads = {source}, .writes = {kept}, .drops = {{source, Place::host()}}};
  // The ranges of sequences that end are not accessed any more; a cache without sequences is gone.
  if (part.left == 0) uses.drops.push_back({kept.name, Place::file(DriveIndex{file_of(part).index})});
  return {sink.add(OpKind::write_file, file_of(part), part.tag, std::move(work), std::move(after), std::move(uses))};
}

LayerPlanner::Ids TieredKvPlanner::load(OperationSink& sink, const Part& part, const KvShard& shard, Ids before) {
  if (shard.tier == Place::gpu()) return {};
  const SizedTensor kept = cache_before(part, shard.heads);
  if (shard.tier == Place::file()) {
    FileWork work{.file = file_name(part), .payload = LinkPayload::kv};
    for (const StepSequence& s : part.sequences)
      work.ranges.push_back(rows(part, shard, s.sequence, copy_of(decoded(s)), 0, s.first_token));
    before = {sink.add(OpKind::read_file, file_of(part), part.tag, std::move(work), std::move(before),
                       {.reads = {kept.name}, .writes = {kept}})};
  }
  const bool host_keeps_it = shard.tier == Place::host() || kv_.rewritten;
  return {
      transfer(sink, ResourceKind::host_to_gpu, part.tag, LinkPayload::kv, std::move(before), {kept}, host_keeps_it)};
}

LayerPlanner::Outputs TieredKvPlanner::attend(OperationSink& sink, const Part& part, OperationId projected) {
  Ids& freed = freed_[part.mini_batch()];
  Ids ready = {projected};
  TensorUses uses;
  Outputs outputs;
  for (std::size_t i = 0; i < kv_.shards.size(); ++i) {
    const KvShard& shard = kv_.shards[i];
    const TensorName q = queries(part, shard.heads).name, kv = new_kv(part, shard.heads).name;
    const SizedTensor kept = cache(part, shard.heads), output = attention_output(part, shard.heads);
    Ids before = stored(part, i);
    if (shard.tier == Place::gpu()) {
      ready.insert(ready.end(), before.begin(), before.end());
      uses.drops.push_back({kv, gpu_memory(part.tag)});
    } else {
      if (freed.size() >= kv_.kv_buffers) before.push_back(freed[freed.size() - kv_.kv_buffers]);
      const Ids loaded = load(sink, part, shard, std::move(before));
      ready.insert(ready.end(), loaded.begin(), loaded.end());
      uses.drops.push_back({kept.name, gpu_memory(part.tag)});
    }
    for (const TensorName& name : {q, kv, kept.name}) uses.reads.push_back(name);
    for (const SizedTensor& written : {output, kept}) uses.writes.push_back(written);
    uses.drops.push_back({q, gpu_memory(part.tag)});
    outputs.tensors.push_back(output.name);
  }
  const ComputeWork work = attention_work(part, context(part), gpu_memory(part.tag), uses, most_tokens(part));
  const OperationId attention =
      sink.add(OpKind::attention, gpu(part.tag), part.tag, work, std::move(ready), std::move(uses));
  freed.push_back(attention);
  if (freed.size() > kv_.kv_buffers) freed.erase(freed.begin());
  for (std::size_t i = 0; i < kv_.shards.size(); ++i)
    stored(part, i) =
        kv_.shards[i].tier == Place::gpu() ? Ids{attention} : store(sink, part, kv_.shards[i], attention, {});
  outputs.ready = {attention};
  return outputs;
}

void TieredKvPlanner::release(OperationSink& sink, const Part& part) {
  for (std::size_t i = 0; i < kv_.shards.size(); ++i) {
    const KvShard& shard = kv_.shards[i];
    if (shard.tier == Place::file()) continue;
    const Resource processor = shard.tier == Place::gpu() ? gpu(part.tag) : Resource::host();
    stored(part, i) = {free_cache(sink, processor, part, shard.heads, stored(part, i))};
  }
}

}  // namespace csdsim::host
