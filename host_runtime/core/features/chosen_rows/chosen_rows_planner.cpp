#include "host_runtime/core/features/chosen_rows/chosen_rows_planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace csdsim::host {

using namespace row_tensors;

namespace {

constexpr std::uint64_t kIndexBytes = 4;

HeadRange all_heads(const ModelShape& model) { return {KvHead{0}, model.kv_heads}; }

/// Chunks of one size over `tokens` tokens.
std::uint64_t chunks(std::uint64_t tokens, std::uint64_t size) { return (tokens + size - 1) / size; }

/// Abstracts that a choice of `chosen` of `tokens` tokens examines, about: all of the largest chunks, and of every
/// smaller size the two halves of as many chunks as the chosen tokens fill.
std::uint64_t examined(const ChoosingCosts& costs, std::uint64_t tokens, std::uint64_t chosen) {
  std::uint64_t abstracts = chunks(tokens, costs.chunk);
  for (std::uint64_t size = costs.chunk; size > costs.leaf; size /= 2) abstracts += 2 * chunks(chosen, size);
  return abstracts;
}

}  // namespace

Bytes choosing_bytes(const ChosenRowsPlan& plan, const ChoosingCosts& costs, const ModelShape& model,
                     std::uint64_t tokens) {
  const std::uint64_t elements = std::uint64_t{model.kv_heads} * model.element_bytes;
  if (plan.choosing == RowChoosing::speculated) return {elements * costs.columns * tokens};
  std::uint64_t abstracts = 0;
  for (std::uint64_t size = costs.leaf; size > 0 && size <= costs.chunk; size *= 2) abstracts += chunks(tokens, size);
  return {elements * 2 * model.head_dim * abstracts};
}

ChosenRowsPlanner::ChosenRowsPlanner(const PlannerInputs& inputs, const ChosenRowsPlan& plan,
                                     const ChoosingCosts& costs, const WeightPlacement& weights)
    : LayerPlanner(inputs, heads_of(tier_heads(inputs.model.kv_heads, plan.kv_on_gpu, plan.kv_on_host)), weights),
      plan_(plan),
      costs_(costs),
      tiers_(tier_heads(inputs.model.kv_heads, plan.kv_on_gpu, plan.kv_on_host)),
      freed_(mini_batches()),
      speculated_(mini_batches()) {
  if (plan_.kv_buffers == 0) throw UserError("system: kv_buffers is 0, must be at least 1");
  if (plan_.written_tokens == 0) throw UserError("system: written_tokens is 0, must be at least 1");
  stored_.assign(mini_batches(), std::vector(model().layers, std::vector<Ids>(tiers_.size())));
}

std::string ChosenRowsPlanner::file_name(const Part& part) {
  return fmt::format("K and V of layer {}, mini-batch {}", part.layer(), part.mini_batch());
}

Place ChosenRowsPlanner::place_of(const Part& part, const KvShard& shard) const {
  if (shard.tier == Place::gpu()) return gpu_memory(part.tag);
  return shard.tier == Place::host() ? Place::host() : Place::file(DriveIndex{files_of(part.layer()).index});
}

SizedTensor ChosenRowsPlanner::kept(const Part& part, const KvShard& shard, bool after) const {
  std::uint64_t of_each = 0;
  for (const StepSequence& s : part.sequences) {
    const std::uint32_t tokens = after ? s.context() : s.first_token;
    of_each += shard.tier == Place::file() ? plan_.written(tokens) : plan_.rows(tokens);
  }
  return {TensorName::kept(TensorClass::kv_cache, part.tag.layer, part.tag.mini_batch, shard.heads, kMain),
          rows(shard.heads, of_each)};
}

SizedTensor ChosenRowsPlanner::newest(const Part& part, const KvShard& shard, bool after) const {
  std::uint64_t of_each = 0;
  for (const StepSequence& s : part.sequences) {
    const std::uint32_t tokens = after ? s.context() : s.first_token;
    of_each += tokens - plan_.written(tokens);
  }
  return {TensorName::kept(TensorClass::kv_cache, part.tag.layer, part.tag.mini_batch, shard.heads, kNewest),
          rows(shard.heads, of_each)};
}

SizedTensor ChosenRowsPlanner::fetched(const Part& part, const KvShard& shard, std::uint32_t part_of) const {
  std::uint64_t of_each = 0;
  for (const StepSequence& s : part.sequences) of_each += plan_.most_fetched(layer_of(part), s.first_token);
  return {TensorName::of(TensorClass::fetched_kv, part.tag, shard.heads, part_of), rows(shard.heads, of_each)};
}

SizedTensor ChosenRowsPlanner::choice(const Part& part) const {
  std::uint64_t of_each = 0;
  for (const StepSequence& s : part.sequences) of_each += plan_.most_fetched(layer_of(part), s.first_token);
  return {TensorName::of(TensorClass::token_choice, part.tag, all_heads(model())),
          Bytes{kIndexBytes * model().kv_heads * of_each}};
}

SizedTensor ChosenRowsPlanner::workspace(const Part& part) const {
  Bytes bytes;
  for (const StepSequence& s : part.sequences)
    bytes += choosing_bytes(plan_, costs_, model(), inputs().workload.length_of(s.sequence.value));
  return {TensorName::kept(TensorClass::workspace, part.tag.layer, part.tag.mini_batch), bytes};
}

std::vector<PlacedTensor> ChosenRowsPlanner::resident() const {
  std::vector<PlacedTensor> tensors = LayerPlanner::resident();
  for (std::uint32_t layer = 0; layer < model().layers; ++layer)
    for (std::uint32_t mb = 0; mb < mini_batches(); ++mb) {
      const Part part = first_part(layer, mb);
      if (plan_.sparse(LayerId{layer})) {
        const SizedTensor keys = workspace(part);
        const bool on_gpu = plan_.choosing == RowChoosing::speculated;
        tensors.push_back({keys.name, on_gpu ? gpu_memory(part.tag) : Place::host(), keys.bytes});
      }
      if (inputs().span.prefill) continue;
      for (const KvShard& shard : tiers_) {
        const SizedTensor before = kept(part, shard, false);
        tensors.push_back({before.name, place_of(part, shard), before.bytes});
        if (!has_newest(shard)) continue;
        const SizedTensor waiting = newest(part, shard, false);
        tensors.push_back({waiting.name, Place::host(), waiting.bytes});
      }
    }
  return tensors;
}

std::vector<PlannedFile> ChosenRowsPlanner::layer_files(std::uint32_t layer) const {
  std::vector<PlannedFile> files;
  for (const KvShard& shard : tiers_) {
    if (shard.tier != Place::file()) continue;
    for (std::uint32_t mb = 0; mb < mini_batches(); ++mb) {
      const Part part = first_part(layer, mb);
      const RowFile rows(plan_, model(), inputs().workload, shard.heads, part.sequences);
      PlannedFile file{
          .drive = DriveIndex{files_of(layer).index}, .name = file_name(part), .size = rows.size(), .written = {}};
      for (std::size_t i = 0; i < part.sequences.size() && !inputs().span.prefill; ++i)
        for (std::uint32_t head = 0; head < shard.heads.count; ++head)
          if (const std::uint32_t count = plan_.written(part.sequences[i].first_token); count > 0)
            file.written.push_back(rows.range(i, head, 0, count));
      files.push_back(std::move(file));
    }
  }
  return files;
}

std::uint32_t ChosenRowsPlanner::layers_ahead() const {
  const bool copies = std::ranges::any_of(tiers_, [](const KvShard& shard) { return shard.tier != Place::gpu(); });
  return std::max(copies ? plan_.kv_buffers : 0, LayerPlanner::layers_ahead());
}

LayerPlanner::Ids ChosenRowsPlanner::room_for(const Part& part) const {
  if (part.layer() < plan_.kv_buffers) return {};
  Ids room;
  for (const Ids& stored : stored_[part.mini_batch()][part.layer() - plan_.kv_buffers])
    room.insert(room.end(), stored.begin(), stored.end());
  return room;
}

Bytes ChosenRowsPlanner::prefill_workspace(const Part& part) const {
  return plan_.stores_attention_weights ? attention_weights(part) : Bytes{};
}

LayerPlanner::Ids ChosenRowsPlanner::store(OperationSink& sink, const Part& part, const KvShard& shard,
                                           const SizedTensor& rows_of, Ids before) {
  const SizedTensor main = kept(part, shard, true);
  const bool on_gpu = shard.tier == Place::gpu();
  const Place from = on_gpu ? gpu_memory(part.tag) : Place::host();
  // What brought the rows has written them to where they stay, so that joining takes no time.
  const ComputeWork nothing{.launches = 0};
  FileWork work{.file = file_name(part), .payload = LinkPayload::kv};
  if (shard.tier != Place::file())
    return {sink.add(OpKind::append_kv, on_gpu ? gpu(part.tag) : Resource::host(), part.tag, nothing, std::move(before),
                     {.reads = {rows_of.name}, .writes = {main}, .drops = {{rows_of.name, from}}})};
  if (plan_.evicts())
    return {sink.add(OpKind::write_file, files_of(part.layer()), part.tag, std::move(work), std::move(before),
                     {.reads = {rows_of.name}, .writes = {main}, .drops = {{rows_of.name, from}}})};
  const SizedTensor waiting = newest(part, shard, true);
  const OperationId joined = sink.add(OpKind::append_kv, Resource::host(), part.tag, nothing, std::move(before),
                                      {.reads = {rows_of.name}, .writes = {waiting}, .drops = {{rows_of.name, from}}});
  if (main.bytes == kept(part, shard, false).bytes) return {joined};
  return {sink.add(OpKind::write_file, files_of(part.layer()), part.tag, std::move(work), {joined},
                   {.reads = {waiting.name}, .writes = {main}})};
}

void ChosenRowsPlanner::keep(OperationSink& sink, const Part& part, OperationId projected) {
  for (std::size_t i = 0; i < tiers_.size(); ++i) {
    const KvShard& shard = tiers_[i];
    SizedTensor made = new_kv(part, shard.heads);
    OperationId there = projected;
    if (plan_.evicts()) {
      SizedTensor outliving = made;
      outliving.name.part = kKept;
      outliving.bytes = kept(part, shard, true).bytes;
      // It runs on the GPU behind the attention, whose weights say what outlives the prompt.
      there = sink.add(OpKind::gather_kv, gpu(part.tag), part.tag,
                       ComputeWork{.op = OperatorClass::elementwise, .activations = outliving.bytes * 2}, {projected},
                       {.reads = {made.name}, .writes = {outliving}, .drops = {{made.name, gpu_memory(part.tag)}}});
      made = outliving;
    }
    if (shard.tier != Place::gpu())
      there = transfer(sink, ResourceKind::gpu_to_host, part.tag, LinkPayload::kv, {there}, {made});
    Ids before = stored(part, i);
    before.push_back(there);
    stored(part, i) = store(sink, part, shard, made, std::move(before));
  }
}

OperationId ChosenRowsPlanner::bound(OperationSink& sink, const Part& part, OperationId moved) {
  const SizedTensor chosen = choice(part);
  TensorUses uses{.reads = {workspace(part).name}, .writes = {chosen}};
  std::uint64_t abstracts = 0;
  for (const StepSequence& s : part.sequences)
    abstracts += examined(costs_, s.first_token, plan_.most_fetched(layer_of(part), s.first_token));
  for (const KvShard& shard : tiers_) {
    const TensorName q = queries(part, shard.heads).name, kv = new_kv(part, shard.heads).name;
    uses.reads.insert(uses.reads.end(), {q, kv});
    uses.drops.push_back({q, Place::host()});
    if (shard.tier == Place::gpu()) uses.drops.push_back({kv, Place::host()});
  }
  // Two products per component, for the upper and the lower bound.
  const std::uint64_t d = model().head_dim;
  return sink.add(OpKind::select_tokens, Resource::host(), part.tag,
                  ComputeWork{.op = OperatorClass::attention,
                              .flops = 4 * d * model().heads * abstracts,
                              .activations = {2 * d * model().kv_heads * model().element_bytes * abstracts}},
                  {moved}, std::move(uses));
}

OperationId ChosenRowsPlanner::select_on_gpu(OperationSink& sink, const Part& part, Ids before, TensorUses uses) {
  const SizedTensor chosen = choice(part);
  uses.reads.push_back(workspace(part).name);
  uses.writes = {chosen};
  const OperationId selected =
      sink.add(OpKind::select_tokens, gpu(part.tag), part.tag,
               ComputeWork{.op = OperatorClass::attention,
                           .flops = 2ULL * model().heads * costs_.columns * context(part),
                           .activations = choosing_bytes(plan_, costs_, model(), context(part)),
                           .launches = 2},
               std::move(before), std::move(uses));
  return transfer(sink, ResourceKind::gpu_to_host, part.tag, LinkPayload::kv, {selected}, {chosen});
}

OperationId ChosenRowsPlanner::speculate(OperationSink& sink, const Part& part, OperationId projected) {
  Part next = part;
  next.tag.layer = LayerId{part.layer() + 1};
  OpTag of_step = part.tag;
  of_step.layer.reset();
  const std::uint64_t width = model().width, columns = std::uint64_t{model().heads} * costs_.columns;
  const SizedTensor q{TensorName::of(TensorClass::queries, next.tag, all_heads(model()), kSpeculated),
                      Bytes{columns * model().element_bytes * part.tokens}};
  const OperationId queried =
      sink.add(OpKind::attention_inputs, gpu(part.tag), next.tag,
               ComputeWork{.flops = 2 * width * columns * part.tokens,
                           .weights = {width * columns * model().element_bytes},
                           .activations = Bytes{width * model().element_bytes * part.tokens} + q.bytes},
               {projected}, {.reads = {TensorName::of(TensorClass::hidden, of_step)}, .writes = {q}});
  speculated_[part.mini_batch()] = {
      select_on_gpu(sink, next, {queried}, {.reads = {q.name}, .drops = {{q.name, gpu_memory(part.tag)}}})};
  return queried;
}

OperationId ChosenRowsPlanner::fetch(OperationSink& sink, const Part& part, const KvShard& shard, Ids before) {
  const SizedTensor main = kept(part, shard, false);
  const bool sparse = plan_.sparse(layer_of(part));
  const auto copy = [&](const SizedTensor& what, OperationId after) {
    return sink.add(OpKind::transfer, {ResourceKind::host_to_gpu, gpu_index(part.tag)}, part.tag,
                    LinkWork{{}, LinkPayload::kv}, {after},
                    {.reads = {what.name}, .writes = {what}, .drops = {{what.name, Place::host()}}, .bounds = true});
  };
  SizedTensor read = fetched(part, shard, kRead);
  if (shard.tier == Place::host()) {
    if (!sparse)  // nothing to gather
      return transfer(sink, ResourceKind::host_to_gpu, part.tag, LinkPayload::kv, std::move(before), {main}, true);
    return copy(read, sink.add(OpKind::gather_kv, Resource::host(), part.tag,
                               ComputeWork{.op = OperatorClass::elementwise, .launches = 0}, std::move(before),
                               {.reads = {main.name, choice(part).name}, .writes = {read}}));
  }
  TensorUses from_file{.writes = {read}};
  // Before written_tokens are there, the file is empty.
  if (main.bytes.value > 0) from_file.reads = {main.name};
  OperationId there =
      sink.add(OpKind::read_file, files_of(part.layer()), part.tag,
               FileWork{.file = file_name(part), .payload = LinkPayload::kv}, std::move(before), std::move(from_file));
  if (!has_newest(shard)) return copy(read, there);
  const SizedTensor joined = fetched(part, shard, kJoined);
  TensorUses uses{
      .reads = {read.name, newest(part, shard, false).name}, .writes = {joined}, .drops = {{read.name, Place::host()}}};
  if (sparse) uses.reads.push_back(choice(part).name);
  there = sink.add(OpKind::append_kv, Resource::host(), part.tag,
                   ComputeWork{.op = OperatorClass::elementwise, .launches = 0}, {there}, std::move(uses));
  return copy(joined, there);
}

LayerPlanner::Outputs ChosenRowsPlanner::attend(OperationSink& sink, const Part& part, OperationId projected) {
  const bool sparse = plan_.sparse(layer_of(part)), bounded = sparse && plan_.choosing == RowChoosing::bounded;
  const Place memory = gpu_memory(part.tag);
  // k and v leave with the queries that bound chunks, otherwise when the attention has had them.
  std::vector<SizedTensor> leaving;
  for (const KvShard& shard : tiers_) {
    if (bounded) leaving.push_back(queries(part, shard.heads));
    if (bounded || shard.tier != Place::gpu()) leaving.push_back(new_kv(part, shard.heads));
  }
  OperationId moved = projected;
  if (bounded) moved = transfer(sink, ResourceKind::gpu_to_host, part.tag, LinkPayload::kv, {projected}, leaving, true);

  Ids& freed = freed_[part.mini_batch()];
  Ids known;
  if (bounded) known = {bound(sink, part, moved)};
  // The first layer has none before it. It chooses only where it stands for layers that fetch everything ahead.
  if (sparse && !bounded && part.layer() == 0) {
    Ids before;
    for (std::size_t i = 0; i < tiers_.size(); ++i)
      before.insert(before.end(), stored(part, i).begin(), stored(part, i).end());
    known = {select_on_gpu(sink, part, std::move(before), {})};
  } else if (sparse && !bounded) {
    known = speculated_[part.mini_batch()];
  }
  if (freed.size() >= plan_.kv_buffers) known.push_back(freed[freed.size() - plan_.kv_buffers]);

  Ids ready = {projected};
  ready.insert(ready.end(), known.begin(), known.end());
  TensorUses uses;
  Outputs outputs;
  for (std::size_t i = 0; i < tiers_.size(); ++i) {
    const KvShard& shard = tiers_[i];
    const TensorName q = queries(part, shard.heads).name, kv = new_kv(part, shard.heads).name;
    Ids before = stored(part, i);
    TensorName attended = kept(part, shard, false).name;
    if (shard.tier == Place::gpu()) {
      ready.insert(ready.end(), before.begin(), before.end());
    } else {
      before.insert(before.end(), known.begin(), known.end());
      ready.push_back(fetch(sink, part, shard, std::move(before)));
      if (shard.tier == Place::file()) attended = fetched(part, shard, has_newest(shard) ? kJoined : kRead).name;
      if (shard.tier == Place::host() && sparse) attended = fetched(part, shard, kRead).name;
      uses.drops.push_back({attended, memory});
      if (bounded) uses.drops.push_back({kv, memory});
    }
    uses.drops.push_back({q, memory});
    uses.reads.insert(uses.reads.end(), {q, kv, attended});
    uses.writes.push_back(attention_output(part, shard.heads));
    outputs.tensors.push_back(uses.writes.back().name);
  }
  if (sparse) uses.drops.push_back({choice(part).name, Place::host()});
  std::uint64_t rows_read = part.tokens;
  for (const StepSequence& s : part.sequences) rows_read += plan_.most_fetched(layer_of(part), s.first_token);
  const OperationId attention =
      sink.add(OpKind::attention, gpu(part.tag), part.tag, model().decode_attention(part.sequences.size(), rows_read),
               std::move(ready), std::move(uses));
  if (!bounded && !leaving.empty())
    moved = transfer(sink, ResourceKind::gpu_to_host, part.tag, LinkPayload::kv, {attention}, leaving);
  freed.push_back(attention);
  if (freed.size() > plan_.kv_buffers) freed.erase(freed.begin());
  for (std::size_t i = 0; i < tiers_.size(); ++i)
    stored(part, i) = store(sink, part, tiers_[i], new_kv(part, tiers_[i].heads), {attention, moved});
  outputs.ready = {attention};
  const LayerId next{part.layer() + 1};
  if (plan_.choosing == RowChoosing::speculated && next.value < model().layers && plan_.sparse(next))
    outputs.ready.push_back(speculate(sink, part, projected));
  return outputs;
}

}  // namespace csdsim::host
