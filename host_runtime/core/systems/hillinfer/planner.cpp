#include "host_runtime/core/systems/hillinfer/planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace csdsim::host {

using namespace pool_tensors;

namespace {

constexpr std::uint64_t kScoreBytes = 4, kPositionBytes = 4;

/// All heads together, or each of them.
std::vector<HeadRange> lists_of(const ModelShape& model, std::uint32_t lists) {
  if (lists == 0 || model.kv_heads % lists != 0)
    throw UserError(fmt::format("system: {} lists of tokens do not divide {} KV heads", lists, model.kv_heads));
  std::vector<HeadRange> heads;
  for (std::uint32_t list = 0; list < lists; ++list)
    heads.push_back({KvHead{list * (model.kv_heads / lists)}, model.kv_heads / lists});
  return heads;
}

}  // namespace

HillinferPlanner::HillinferPlanner(const PlannerInputs& inputs, const PooledPlan& plan, bool prefetch,
                                   const WeightPlacement& weights)
    : LayerPlanner(inputs, lists_of(inputs.model, plan.lists), weights),
      plan_(plan),
      prefetch_(prefetch),
      ahead_(mini_batches(), std::vector<Ahead>(shards().size())) {
  if (plan_.kv_buffers == 0) throw UserError("system: kv_buffers is 0, must be at least 1");
  const PooledKv checked(plan_, inputs.model);
  settled_.assign(mini_batches(), std::vector(model().layers, std::vector<Ids>(shards().size())));
}

template <class Tokens>
std::uint64_t HillinferPlanner::hot_bound(const Part& part, Tokens tokens) const {
  std::uint64_t sum = 0;
  for (const StepSequence& s : part.sequences) sum += std::min<std::uint64_t>(tokens(s), plan_.pools.hot_tokens);
  return sum;
}

SizedTensor HillinferPlanner::kept_pool(const Part& part, HeadRange heads, std::uint32_t part_of,
                                        std::uint64_t tokens) const {
  return {TensorName::kept(TensorClass::kv_cache, part.tag.layer, part.tag.mini_batch, heads, part_of),
          kv_of(heads, tokens)};
}

SizedTensor HillinferPlanner::fetched(const Part& part, HeadRange heads, std::uint32_t part_of,
                                      std::uint64_t tokens) const {
  return {TensorName::of(TensorClass::fetched_kv, part.tag, heads, part_of), kv_of(heads, tokens)};
}

SizedTensor HillinferPlanner::scores(const Part& part, HeadRange heads, std::uint32_t part_of,
                                     std::uint64_t tokens) const {
  return {TensorName::of(TensorClass::scores, part.tag, heads, part_of), Bytes{kScoreBytes * tokens}};
}

std::uint64_t HillinferPlanner::chosen_bound(const Part& part) const {
  std::uint64_t tokens = 0;
  for (const StepSequence& s : part.sequences) tokens += plan_.chosen.at(s.context()) - 1;
  return tokens;
}

std::uint32_t HillinferPlanner::blocks(const Part& part) const {
  std::uint32_t longest = 1;
  for (const StepSequence& s : part.sequences) longest = std::max(longest, s.first_token);
  longest = (longest - 1) / plan_.drives + 1;
  return plan_.chunk == 0 ? 1 : (longest - 1) / plan_.chunk + 1;
}

std::vector<PlacedTensor> HillinferPlanner::resident() const {
  std::vector<PlacedTensor> tensors = LayerPlanner::resident();
  if (inputs().span.prefill) return tensors;
  for (std::uint32_t layer = 0; layer < model().layers; ++layer)
    for (std::uint32_t mb = 0; mb < mini_batches(); ++mb)
      for (const HeadRange heads : shards()) {
        const Part part = first_part(layer, mb);
        const SizedTensor hot =
            kept_pool(part, heads, kHot, hot_bound(part, [](const auto& s) { return s.first_token; }));
        tensors.push_back({hot.name, Place::host(), hot.bytes});
        for (std::uint32_t drive = 0; drive < plan_.drives; ++drive) {
          const SizedTensor log = kept_pool(part, heads, log_part(drive), part.kept - part.tokens);
          tensors.push_back({log.name, Place::drive_kv(DriveIndex{drive}), log.bytes});
        }
      }
  return tensors;
}

LayerPlanner::Ids HillinferPlanner::room_for(const Part& part) const {
  Ids room;
  if (part.layer() < plan_.kv_buffers) return room;
  for (const Ids& of_list : settled_[part.mini_batch()][part.layer() - plan_.kv_buffers])
    room.insert(room.end(), of_list.begin(), of_list.end());
  return room;
}

void HillinferPlanner::settle(OperationSink& sink, const Part& part, HeadRange heads, Ids before, TensorUses arrived) {
  std::uint64_t most = 0;  // all of a prompt, or as many as are promoted and the one that was appended
  for (const StepSequence& s : part.sequences)
    most += part.tag.phase == Phase::prefill ? s.tokens : std::min(s.context(), plan_.chosen.at(s.context()) + 1);
  const auto all = [](const auto& s) { return s.context(); };
  const SizedTensor hot = kept_pool(part, heads, kHot, hot_bound(part, all));
  const Ids at_hand = before;
  for (std::uint32_t drive = 0; drive < plan_.drives; ++drive) {
    SizedTensor written = new_kv(part, heads);
    written.name.part = written_part(drive);
    written.bytes = kv_of(heads, most);
    const OperationId gathered = sink.add(OpKind::gather_kv, Resource::host(), part.tag,
                                          ComputeWork{.op = OperatorClass::elementwise, .launches = 0}, at_hand,
                                          {.reads = {hot.name}, .writes = {written}});
    before.push_back(sink.add(OpKind::append_kv, Resource::drive(DriveIndex{drive}), part.tag,
                              DriveWork{.heads = heads, .memory = Place::host()}, {gathered},
                              {.reads = {written.name},
                               .writes = {kept_pool(part, heads, log_part(drive), part.kept)},
                               .drops = {{written.name, Place::host()}}}));
  }
  arrived.reads.push_back(hot.name);
  arrived.writes.push_back(hot);
  // What is fetched is where it belongs, and what has left is overwritten later: this takes no time.
  settled(part, heads) = {sink.add(OpKind::update_pools, Resource::host(), part.tag, ComputeWork{.launches = 0},
                                   std::move(before), std::move(arrived))};
}

void HillinferPlanner::keep(OperationSink& sink, const Part& part, OperationId projected) {
  const std::vector<SizedTensor> kv = new_kv_parts(part);
  const OperationId moved = transfer(sink, ResourceKind::gpu_to_host, part.tag, LinkPayload::kv, {projected}, kv);
  for (const HeadRange heads : shards()) {
    // The transfer has written K and V to where they stay, so that appending takes no time.
    const TensorName own = kv[list_of(heads)].name;
    const OperationId joined = sink.add(
        OpKind::append_kv, Resource::host(), part.tag, ComputeWork{.launches = 0}, {moved},
        {.reads = {own}, .writes = {kept_pool(part, heads, kHot, part.kept)}, .drops = {{own, Place::host()}}});
    settle(sink, part, heads, {joined}, {});
  }
}

HillinferPlanner::Chosen HillinferPlanner::choose(OperationSink& sink, const Part& part, HeadRange heads,
                                                  const SizedTensor& q, OperationId asked) {
  Ids before = settled(part, heads);
  before.push_back(asked);
  const std::uint64_t cached = part.kept - part.tokens;
  const TensorName hot = kept_pool(part, heads, kHot, 0).name;
  SizedTensor merged = scores(part, heads, kMerged, cached);
  merged.bytes += Bytes{kPositionBytes * cached};
  Ids known = {sink.add(OpKind::score_kv, Resource::host(), part.tag,
                        ComputeWork{.op = OperatorClass::attention, .launches = 0}, before,
                        {.reads = {q.name, hot}, .writes = {merged}})};
  const std::uint32_t count = blocks(part);
  std::vector<Ids> scored(plan_.drives);
  for (std::uint32_t block = 0; block < count; ++block)
    for (std::uint32_t drive = 0; drive < plan_.drives; ++drive) {
      const SizedTensor of_block = scores(part, heads, kFirstBlock + block * plan_.drives + drive,
                                          plan_.chunk == 0 ? cached : plan_.chunk * part.sequences.size());
      Ids deps = before;
      if (block >= 2) deps.push_back(scored[drive][block - 2]);
      scored[drive].push_back(sink.add(
          OpKind::score_kv, Resource::drive(DriveIndex{drive}), part.tag,
          ScoreWork{.heads = heads,
                    .sequences = {},
                    .precision = plan_.precision,
                    .aggregate = plan_.aggregate,
                    .memory = Place::host()},
          std::move(deps), {.reads = {q.name, kept_pool(part, heads, log_part(drive), 0).name}, .writes = {of_block}}));
      known.push_back(
          sink.add(OpKind::merge_scores, Resource::host(), part.tag,
                   ComputeWork{.op = OperatorClass::elementwise, .launches = 0}, {scored[drive].back(), known.front()},
                   {.reads = {of_block.name}, .writes = {merged}, .drops = {{of_block.name, Place::host()}}}));
    }
  const SizedTensor choice{TensorName::of(TensorClass::token_choice, part.tag, heads),
                           Bytes{kPositionBytes * (chosen_bound(part) + part.tokens)}};
  const OperationId selected = sink.add(
      OpKind::select_tokens, Resource::host(), part.tag,
      ComputeWork{.op = OperatorClass::elementwise, .activations = merged.bytes + choice.bytes}, std::move(known),
      {.reads = {merged.name}, .writes = {choice}, .drops = {{merged.name, Place::host()}, {q.name, Place::host()}}});
  return {selected, choice};
}

LayerPlanner::Ids HillinferPlanner::bring(OperationSink& sink, const Part& part, HeadRange heads,
                                          const Chosen& chosen) {
  const std::uint64_t most = chosen_bound(part);
  const SizedTensor gathered = fetched(part, heads, kGathered, most);
  const OperationId together = sink.add(
      OpKind::gather_kv, Resource::host(), part.tag, ComputeWork{.op = OperatorClass::elementwise, .launches = 0},
      {chosen.selected}, {.reads = {chosen.choice.name, kept_pool(part, heads, kHot, 0).name}, .writes = {gathered}});
  const auto copy = [&](const SizedTensor& rows, OperationId after, bool keep_copy) {
    TensorUses uses{.reads = {rows.name}, .writes = {rows}, .bounds = true};
    if (!keep_copy) uses.drops = {{rows.name, Place::host()}};
    return sink.add(OpKind::transfer, {ResourceKind::host_to_gpu, gpu_index(part.tag)}, part.tag,
                    LinkWork{{}, LinkPayload::kv}, {after}, std::move(uses));
  };
  Ids there = {copy(gathered, together, false)};
  FetchWork fetch{.heads = heads, .sequences = {}, .memory = Place::host()};
  if (!plan_.staged) fetch.memory = Place::gpu(gpu_index(part.tag));
  for (std::uint32_t drive = 0; drive < plan_.drives; ++drive) {
    const SizedTensor cold = fetched(part, heads, cold_part(drive), most);
    there.push_back(sink.add(OpKind::fetch_kv, Resource::drive(DriveIndex{drive}), part.tag, fetch, {chosen.selected},
                             {.reads = {kept_pool(part, heads, log_part(drive), 0).name}, .writes = {cold}}));
    if (plan_.staged) there.back() = copy(cold, there.back(), true);
  }
  return there;
}

OperationId HillinferPlanner::look_ahead(OperationSink& sink, const Part& part, OperationId projected) {
  Part next = part;
  next.tag.layer = LayerId{part.layer() + 1};
  OpTag of_step = part.tag;
  of_step.layer.reset();
  std::vector<SizedTensor> q;
  Bytes results;
  for (const HeadRange heads : shards()) {
    q.push_back(queries(next, heads));
    q.back().name.part = kSpeculated;
    results += q.back().bytes;
  }
  // The normed input times W_Q.
  const std::uint64_t width = model().width, of_queries = std::uint64_t{model().heads} * model().head_dim;
  const OperationId queried =
      sink.add(OpKind::attention_inputs, gpu(part.tag), next.tag,
               ComputeWork{.flops = 2 * width * of_queries * part.tokens,
                           .weights = {width * of_queries * model().element_bytes},
                           .activations = Bytes{width * model().element_bytes * part.tokens} + results},
               {projected}, {.reads = {TensorName::of(TensorClass::hidden, of_step)}, .writes = q});
  const OperationId asked = transfer(sink, ResourceKind::gpu_to_host, next.tag, LinkPayload::kv, {queried}, q);
  for (const HeadRange heads : shards()) {
    Ahead& ahead = ahead_[part.mini_batch()][list_of(heads)];
    ahead.chosen = choose(sink, next, heads, q[list_of(heads)], asked);
    ahead.there = bring(sink, next, heads, ahead.chosen);
  }
  return queried;
}

LayerPlanner::Outputs HillinferPlanner::attend(OperationSink& sink, const Part& part, OperationId projected) {
  const std::vector<SizedTensor> kv = new_kv_parts(part);
  const Place memory = gpu_memory(part.tag);
  // The layer before has brought the tokens, or this one's own queries choose them.
  const bool brought = prefetch_ && part.layer() > 0;
  std::vector<SizedTensor> leaving;
  if (!brought)
    for (const HeadRange heads : shards()) leaving.push_back(queries(part, heads));
  leaving.insert(leaving.end(), kv.begin(), kv.end());
  const OperationId asked =
      transfer(sink, ResourceKind::gpu_to_host, part.tag, LinkPayload::kv, {projected}, leaving, true);
  Ids joined;
  for (const HeadRange heads : shards()) {
    const TensorName own = kv[list_of(heads)].name;
    Ids before = settled(part, heads);
    before.push_back(asked);
    const auto all = [](const auto& s) { return s.context(); };
    joined.push_back(sink.add(OpKind::append_kv, Resource::host(), part.tag, ComputeWork{.launches = 0},
                              std::move(before),
                              {.reads = {own},
                               .writes = {kept_pool(part, heads, kHot, hot_bound(part, all))},
                               .drops = {{own, Place::host()}}}));
  }
  std::vector<Ahead> here(shards().size());
  if (brought) here = ahead_[part.mini_batch()];
  if (!brought)
    for (const HeadRange heads : shards()) {
      Ahead& of = here[list_of(heads)];
      of.chosen = choose(sink, part, heads, queries(part, heads), asked);
      of.there = bring(sink, part, heads, of.chosen);
    }
  Outputs outputs;
  if (prefetch_ && part.layer() + 1 < model().layers) outputs.ready = {look_ahead(sink, part, projected)};

  const std::uint64_t most = chosen_bound(part);
  Ids ready = {projected};
  TensorUses uses;
  for (const HeadRange heads : shards()) {
    const Ids& there = here[list_of(heads)].there;
    ready.insert(ready.end(), there.begin(), there.end());
    uses.writes.push_back(attention_output(part, heads));
    outputs.tensors.push_back(uses.writes.back().name);
    std::vector<TensorName> read = {queries(part, heads).name, kv[list_of(heads)].name,
                                    fetched(part, heads, kGathered, most).name};
    for (std::uint32_t drive = 0; drive < plan_.drives; ++drive)
      read.push_back(fetched(part, heads, cold_part(drive), most).name);
    for (const TensorName& name : read) {
      uses.reads.push_back(name);
      uses.drops.push_back({name, memory});
    }
  }
  const OperationId attention =
      sink.add(OpKind::attention, gpu(part.tag), part.tag,
               model().decode_attention(part.sequences.size(), most + part.tokens), std::move(ready), std::move(uses));
  outputs.ready.push_back(attention);
  for (const HeadRange heads : shards())
    exchange(sink, part, heads, attention, joined[list_of(heads)], here[list_of(heads)].chosen.choice);
  return outputs;
}

void HillinferPlanner::exchange(OperationSink& sink, const Part& part, HeadRange heads, OperationId attention,
                                OperationId joined, const SizedTensor& choice) {
  const std::uint64_t most = chosen_bound(part);
  const FetchWork fetch{.heads = heads, .sequences = {}, .memory = Place::host()};
  TensorUses uses{.reads = {}, .writes = {}, .drops = {{choice.name, Place::host()}}};
  Ids before = {joined};
  for (std::uint32_t drive = 0; drive < plan_.drives; ++drive) {
    const SizedTensor promoted = fetched(part, heads, promoted_part(drive), most);
    before.push_back(sink.add(OpKind::fetch_kv, Resource::drive(DriveIndex{drive}), part.tag, fetch, {attention},
                              {.reads = {kept_pool(part, heads, log_part(drive), 0).name}, .writes = {promoted}}));
    uses.reads.push_back(promoted.name);
    uses.drops.push_back({promoted.name, Place::host()});
    if (!plan_.staged) continue;
    const TensorName cold = fetched(part, heads, cold_part(drive), most).name;
    uses.reads.push_back(cold);
    uses.drops.push_back({cold, Place::host()});
  }
  settle(sink, part, heads, std::move(before), std::move(uses));
}

}  // namespace csdsim::host
