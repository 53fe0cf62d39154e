#include "host_runtime/core/planner/systems/hillinfer/planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace csdsim::host {

using namespace pool_tensors;

namespace {

constexpr DriveIndex kDrive{0};
constexpr std::uint64_t kScoreBytes = 4, kPositionBytes = 4;

}  // namespace

HillinferPlanner::HillinferPlanner(const PlannerInputs& inputs, const PooledPlan& plan, bool prefetch,
                                   const WeightPlacement& weights)
    : LayerPlanner(inputs, {HeadRange{KvHead{0}, inputs.model.kv_heads}}, weights),
      plan_(plan),
      prefetch_(prefetch),
      ahead_(mini_batches()) {
  if (inputs.drives != 1)
    throw UserError(fmt::format("system: tokens are scored in one drive, not in {}", inputs.drives));
  if (plan_.kv_buffers == 0) throw UserError("system: kv_buffers is 0, must be at least 1");
  const PooledKv checked(plan_, inputs.model);
  settled_.assign(mini_batches(), std::vector<Ids>(model().layers));
}

template <class Tokens>
std::uint64_t HillinferPlanner::hot_bound(const Part& part, Tokens tokens) const {
  std::uint64_t sum = 0;
  for (const StepSequence& s : part.sequences) sum += std::min<std::uint64_t>(tokens(s), plan_.pools.hot_tokens);
  return sum;
}

SizedTensor HillinferPlanner::kept_pool(const Part& part, std::uint32_t part_of, std::uint64_t tokens) const {
  return {TensorName::kept(TensorClass::kv_cache, part.tag.layer, part.tag.mini_batch, heads(), part_of),
          kv_of(tokens)};
}

SizedTensor HillinferPlanner::fetched(const Part& part, std::uint32_t part_of, std::uint64_t tokens) const {
  return {TensorName::of(TensorClass::fetched_kv, part.tag, heads(), part_of), kv_of(tokens)};
}

SizedTensor HillinferPlanner::scores(const Part& part, std::uint32_t part_of, std::uint64_t tokens) const {
  return {TensorName::of(TensorClass::scores, part.tag, heads(), part_of), Bytes{kScoreBytes * tokens}};
}

std::uint64_t HillinferPlanner::chosen_bound(const Part& part) const {
  std::uint64_t tokens = 0;
  for (const StepSequence& s : part.sequences) tokens += plan_.chosen.at(s.context()) - 1;
  return tokens;
}

std::uint32_t HillinferPlanner::blocks(const Part& part) const {
  std::uint32_t longest = 1;
  for (const StepSequence& s : part.sequences) longest = std::max(longest, s.first_token);
  return plan_.chunk == 0 ? 1 : (longest - 1) / plan_.chunk + 1;
}

std::vector<PlacedTensor> HillinferPlanner::resident() const {
  std::vector<PlacedTensor> tensors = LayerPlanner::resident();
  if (inputs().span.prefill) return tensors;
  for (std::uint32_t layer = 0; layer < model().layers; ++layer)
    for (std::uint32_t mb = 0; mb < mini_batches(); ++mb) {
      const Part part = first_part(layer, mb);
      const SizedTensor hot = kept_pool(part, kHot, hot_bound(part, [](const auto& s) { return s.first_token; }));
      tensors.push_back({hot.name, Place::host(), hot.bytes});
      const SizedTensor log = kept_pool(part, kLog, part.kept - part.tokens);
      tensors.push_back({log.name, Place::drive(kDrive), log.bytes});
    }
  return tensors;
}

LayerPlanner::Ids HillinferPlanner::room_for(const Part& part) const {
  if (part.layer() < plan_.kv_buffers) return {};
  return settled_[part.mini_batch()][part.layer() - plan_.kv_buffers];
}

void HillinferPlanner::settle(OperationSink& sink, const Part& part, Ids before, TensorUses arrived) {
  std::uint64_t most = 0;  // all of a prompt, or as many as are promoted and the one that was appended
  for (const StepSequence& s : part.sequences)
    most += part.tag.phase == Phase::prefill ? s.tokens : std::min(s.context(), plan_.chosen.at(s.context()) + 1);
  SizedTensor written = new_kv(part, heads());
  written.name.part = kWritten;
  written.bytes = kv_of(most);
  const auto all = [](const auto& s) { return s.context(); };
  const SizedTensor hot = kept_pool(part, kHot, hot_bound(part, all)), log = kept_pool(part, kLog, part.kept);
  const OperationId gathered = sink.add(OpKind::gather_kv, Resource::host(), part.tag,
                                        ComputeWork{.op = OperatorClass::elementwise, .launches = 0}, before,
                                        {.reads = {hot.name}, .writes = {written}});
  const OperationId appended = sink.add(
      OpKind::append_kv, Resource::drive(kDrive), part.tag, DriveWork{.heads = heads(), .memory = BufferMemory::host},
      {gathered}, {.reads = {written.name}, .writes = {log}, .drops = {{written.name, Place::host()}}});
  before.push_back(appended);
  arrived.reads.push_back(hot.name);
  arrived.writes.push_back(hot);
  // What is fetched is where it belongs, and what has left is overwritten later: this takes no time.
  settled(part) = {sink.add(OpKind::update_pools, Resource::host(), part.tag, ComputeWork{.launches = 0},
                            std::move(before), std::move(arrived))};
}

void HillinferPlanner::keep(OperationSink& sink, const Part& part, OperationId projected) {
  const SizedTensor kv = new_kv(part, heads());
  const OperationId moved = transfer(sink, ResourceKind::gpu_to_host, part.tag, LinkPayload::kv, {projected}, {kv});
  // The transfer has written K and V to where they stay, so that appending takes no time.
  const OperationId joined =
      sink.add(OpKind::append_kv, Resource::host(), part.tag, ComputeWork{.launches = 0}, {moved},
               {.reads = {kv.name}, .writes = {kept_pool(part, kHot, part.kept)}, .drops = {{kv.name, Place::host()}}});
  settle(sink, part, {joined}, {});
}

HillinferPlanner::Chosen HillinferPlanner::choose(OperationSink& sink, const Part& part, const SizedTensor& q,
                                                  OperationId asked) {
  Ids before = settled(part);
  before.push_back(asked);
  const std::uint64_t cached = part.kept - part.tokens;
  const TensorName hot = kept_pool(part, kHot, 0).name, log = kept_pool(part, kLog, 0).name;
  SizedTensor merged = scores(part, kMerged, cached);
  merged.bytes += Bytes{kPositionBytes * cached};
  Ids known = {sink.add(OpKind::score_kv, Resource::host(), part.tag,
                        ComputeWork{.op = OperatorClass::attention, .launches = 0}, before,
                        {.reads = {q.name, hot}, .writes = {merged}})};
  const std::uint32_t count = blocks(part);
  Ids scored;
  for (std::uint32_t block = 0; block < count; ++block) {
    std::uint64_t tokens = 0;
    for (const StepSequence& s : part.sequences)
      tokens += plan_.chunk == 0 ? s.first_token : std::min(plan_.chunk, s.first_token);
    const SizedTensor of_block = scores(part, kFirstBlock + block, tokens);
    Ids deps = before;
    if (block >= 2) deps.push_back(scored[block - 2]);
    scored.push_back(sink.add(OpKind::score_kv, Resource::drive(kDrive), part.tag,
                              ScoreWork{.heads = heads(),
                                        .sequences = {},
                                        .precision = plan_.precision,
                                        .aggregate = plan_.aggregate,
                                        .memory = BufferMemory::host},
                              std::move(deps), {.reads = {q.name, log}, .writes = {of_block}}));
    known.push_back(
        sink.add(OpKind::merge_scores, Resource::host(), part.tag,
                 ComputeWork{.op = OperatorClass::elementwise, .launches = 0}, {scored.back(), known.front()},
                 {.reads = {of_block.name}, .writes = {merged}, .drops = {{of_block.name, Place::host()}}}));
  }
  const SizedTensor choice{TensorName::of(TensorClass::token_choice, part.tag, heads()),
                           Bytes{kPositionBytes * (chosen_bound(part) + part.tokens)}};
  const OperationId selected = sink.add(
      OpKind::select_tokens, Resource::host(), part.tag,
      ComputeWork{.op = OperatorClass::elementwise, .activations = merged.bytes + choice.bytes}, std::move(known),
      {.reads = {merged.name}, .writes = {choice}, .drops = {{merged.name, Place::host()}, {q.name, Place::host()}}});
  return {selected, choice};
}

LayerPlanner::Ids HillinferPlanner::bring(OperationSink& sink, const Part& part, const Chosen& chosen) {
  const std::uint64_t most = chosen_bound(part);
  const SizedTensor gathered = fetched(part, kGathered, most), cold = fetched(part, kCold, most);
  const OperationId together = sink.add(
      OpKind::gather_kv, Resource::host(), part.tag, ComputeWork{.op = OperatorClass::elementwise, .launches = 0},
      {chosen.selected}, {.reads = {chosen.choice.name, kept_pool(part, kHot, 0).name}, .writes = {gathered}});
  const auto copy = [&](const SizedTensor& rows, OperationId after, bool keep_copy) {
    TensorUses uses{.reads = {rows.name}, .writes = {rows}, .bounds = true};
    if (!keep_copy) uses.drops = {{rows.name, Place::host()}};
    return sink.add(OpKind::transfer, {ResourceKind::host_to_gpu, gpu_index(part.tag)}, part.tag,
                    LinkWork{{}, LinkPayload::kv}, {after}, std::move(uses));
  };
  Ids there = {copy(gathered, together, false)};
  FetchWork fetch{.heads = heads(), .sequences = {}, .memory = BufferMemory::host};
  if (!plan_.staged) fetch.memory = BufferMemory::of_gpu(gpu_index(part.tag));
  there.push_back(sink.add(OpKind::fetch_kv, Resource::drive(kDrive), part.tag, fetch, {chosen.selected},
                           {.reads = {kept_pool(part, kLog, 0).name}, .writes = {cold}}));
  if (plan_.staged) there.back() = copy(cold, there.back(), true);
  return there;
}

OperationId HillinferPlanner::look_ahead(OperationSink& sink, const Part& part, OperationId projected) {
  Part next = part;
  next.tag.layer = LayerId{part.layer() + 1};
  OpTag of_step = part.tag;
  of_step.layer.reset();
  SizedTensor q = queries(next, heads());
  q.name.part = kSpeculated;
  // The normed input times W_Q.
  const std::uint64_t width = model().width, of_queries = std::uint64_t{model().heads} * model().head_dim;
  const OperationId queried =
      sink.add(OpKind::attention_inputs, gpu(part.tag), next.tag,
               ComputeWork{.flops = 2 * width * of_queries * part.tokens,
                           .weights = {width * of_queries * model().element_bytes},
                           .activations = Bytes{width * model().element_bytes * part.tokens} + q.bytes},
               {projected}, {.reads = {TensorName::of(TensorClass::hidden, of_step)}, .writes = {q}});
  const OperationId asked = transfer(sink, ResourceKind::gpu_to_host, next.tag, LinkPayload::kv, {queried}, {q});
  Ahead& ahead = ahead_[part.mini_batch()];
  ahead.chosen = choose(sink, next, q, asked);
  ahead.there = bring(sink, next, ahead.chosen);
  return queried;
}

LayerPlanner::Outputs HillinferPlanner::attend(OperationSink& sink, const Part& part, OperationId projected) {
  const SizedTensor q = queries(part, heads()), kv = new_kv(part, heads()), output = attention_output(part, heads());
  const Place memory = gpu_memory(part.tag);
  // The layer before has brought the tokens, or this one's own queries choose them.
  const bool brought = prefetch_ && part.layer() > 0;
  std::vector<SizedTensor> leaving = {kv};
  if (!brought) leaving.insert(leaving.begin(), q);
  const OperationId asked =
      transfer(sink, ResourceKind::gpu_to_host, part.tag, LinkPayload::kv, {projected}, leaving, true);
  Ids before = settled(part);
  before.push_back(asked);
  const auto all = [](const auto& s) { return s.context(); };
  const SizedTensor hot = kept_pool(part, kHot, hot_bound(part, all)), log = kept_pool(part, kLog, 0);
  const OperationId joined =
      sink.add(OpKind::append_kv, Resource::host(), part.tag, ComputeWork{.launches = 0}, std::move(before),
               {.reads = {kv.name}, .writes = {hot}, .drops = {{kv.name, Place::host()}}});
  Ahead here;
  if (brought) {
    here = ahead_[part.mini_batch()];
  } else {
    here.chosen = choose(sink, part, q, asked);
    here.there = bring(sink, part, here.chosen);
  }
  Outputs outputs;
  if (prefetch_ && part.layer() + 1 < model().layers) outputs.ready = {look_ahead(sink, part, projected)};

  const std::uint64_t most = chosen_bound(part);
  const TensorName gathered = fetched(part, kGathered, most).name, cold = fetched(part, kCold, most).name;
  here.there.push_back(projected);
  const OperationId attention =
      sink.add(OpKind::attention, gpu(part.tag), part.tag,
               model().decode_attention(part.sequences.size(), most + part.tokens), std::move(here.there),
               {.reads = {q.name, kv.name, gathered, cold},
                .writes = {output},
                .drops = {{q.name, memory}, {kv.name, memory}, {gathered, memory}, {cold, memory}}});

  const SizedTensor promoted = fetched(part, kPromoted, most);
  const FetchWork fetch{.heads = heads(), .sequences = {}, .memory = BufferMemory::host};
  const OperationId arrived = sink.add(OpKind::fetch_kv, Resource::drive(kDrive), part.tag, fetch, {attention},
                                       {.reads = {log.name}, .writes = {promoted}});
  TensorUses uses{.reads = {promoted.name},
                  .writes = {},
                  .drops = {{promoted.name, Place::host()}, {here.chosen.choice.name, Place::host()}}};
  if (plan_.staged) {
    uses.reads.push_back(cold);
    uses.drops.push_back({cold, Place::host()});
  }
  settle(sink, part, {arrived, joined}, std::move(uses));
  outputs.ready.push_back(attention);
  outputs.tensors = {output.name};
  return outputs;
}

}  // namespace csdsim::host
