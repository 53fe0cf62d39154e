#include "host_runtime/core/features/token_pools/pooled_kv.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace csdsim::host {

namespace {

constexpr std::uint64_t kHitBytes = 2;       // an entry of the hit table
constexpr std::uint64_t kScoreBytes = 4;     // fp32
constexpr std::uint64_t kPositionBytes = 4;  // 16 bits hold no position beyond 65,535, fp16 none beyond 2,048

/// The part of the first tensor of a class that an operation reads, or writes.
template <class Tensors>
std::optional<std::uint32_t> part_of(const Tensors& tensors, TensorClass what) {
  for (const auto& tensor : tensors) {
    const TensorName* name = nullptr;
    if constexpr (std::is_same_v<Tensors, std::vector<SizedTensor>>)
      name = &tensor.name;
    else
      name = &tensor;
    if (name->what == what) return name->part;
  }
  return std::nullopt;
}

}  // namespace

PooledKv::PooledKv(const PooledPlan& plan, const ModelShape& model) : plan_(plan), model_(model) {
  const TokenPools checked(plan.pools);  // UserError for impossible options
  if (plan.drives == 0 || plan.lists == 0 || model.kv_heads % plan.lists != 0)
    throw InternalError(fmt::format("{} pools of {} KV heads over {} drives", plan.lists, model.kv_heads, plan.drives));
}

const PooledKv::Entry& PooledKv::entry(PoolKey key) const {
  const auto found = entries_.find(key);
  if (found == entries_.end())
    throw InternalError(
        fmt::format("the pools of sequence {} in layer {} have not started", key.sequence.value, key.layer.value));
  return found->second;
}

HeadRange PooledKv::heads(const Operation& op) const {
  for (const TensorName& name : op.tensors.reads)
    if (name.heads.count > 0) return name.heads;
  for (const SizedTensor& tensor : op.tensors.writes)
    if (tensor.name.heads.count > 0) return tensor.name.heads;
  throw InternalError("an operation on pools names no heads");
}

PoolKey PooledKv::key(const Operation& op, SequenceId sequence) const {
  const std::uint32_t list = plan_.lists == 1 ? 0 : heads(op).first.value / (model_.kv_heads / plan_.lists);
  return {sequence, *op.tag.layer, list};
}

std::vector<std::uint32_t> PooledKv::in_drive(PoolKey key, std::span<const std::uint32_t> positions,
                                              std::uint32_t drive) const {
  const TokenPools& of = pools(key);
  std::vector<std::uint32_t> held;
  std::ranges::copy_if(positions, std::back_inserter(held),
                       [&](std::uint32_t position) { return of.log_index(position).value() % plan_.drives == drive; });
  return held;
}

std::vector<std::uint32_t> PooledKv::written(PoolKey key, std::uint32_t drive) const {
  const PoolStep& step = latest(key);
  std::vector<std::uint32_t> tokens;
  for (std::size_t i = 0; i < step.moves.written.size(); ++i)
    if ((step.log_before + i) % plan_.drives == drive) tokens.push_back(step.moves.written[i]);
  return tokens;
}

void PooledKv::start(PoolKey key, std::uint32_t tokens) {
  const auto [at, made] = entries_.try_emplace(key, Entry{TokenPools(plan_.pools), {}});
  if (!made)
    throw InternalError(
        fmt::format("the pools of sequence {} in layer {} start twice", key.sequence.value, key.layer.value));
  const auto hot = static_cast<std::uint32_t>(std::min<std::uint64_t>(tokens, plan_.pools.hot_tokens - 1));
  std::vector<std::uint32_t> newest(hot);
  std::iota(newest.begin(), newest.end(), tokens - hot);
  Entry& entry = at->second;
  entry.pools.start(tokens, newest);
  PoolMoves& moves = entry.latest.moves;
  moves.demoted.resize(tokens - hot);
  std::iota(moves.demoted.begin(), moves.demoted.end(), 0U);
  moves.written = moves.demoted;
  counts_.written += moves.written.size();
}

void PooledKv::start_after_prefill(const Operation& op) {
  // Each drive has an operation that gathers its tokens; the first one starts the pools.
  if (op.tag.phase != Phase::prefill || op.kind != OpKind::gather_kv) return;
  for (const StepSequence& s : *op.tag.sequences)
    if (const PoolKey of = key(op, s.sequence); !started(of)) start(of, s.tokens);
}

const PoolStep& PooledKv::step(PoolKey key, std::span<const std::uint32_t> chosen) {
  auto& [pools, step] = entry(key);
  const std::uint32_t cached = pools.tokens();
  if (chosen.empty() || chosen.back() != cached)
    throw InternalError(
        fmt::format("the current token {} of sequence {} is not attended to", cached, key.sequence.value));
  step = {};
  step.log_before = static_cast<std::uint32_t>(pools.log().size());
  for (const std::uint32_t position : chosen.first(chosen.size() - 1))
    (pools.hot(position) ? step.hot : step.cold).push_back(position);
  counts_.host_scores += pools.hot_count();
  counts_.drive_scores += step.log_before;
  counts_.wasted_scores += step.log_before - (cached - pools.hot_count());
  pools.append();
  step.moves = pools.step(chosen);
  // With `staged`, the chosen tokens have passed through host memory.
  std::ranges::set_difference(step.moves.promoted, plan_.staged ? step.cold : std::vector<std::uint32_t>{},
                              std::back_inserter(step.fetched_again));
  counts_.promoted += step.moves.promoted.size();
  counts_.demoted += step.moves.demoted.size();
  counts_.written += step.moves.written.size();
  counts_.important_hot += step.hot.size();
  counts_.important_cold += step.cold.size();
  return step;
}

Share PooledKv::in_block(std::uint32_t block, std::uint32_t logged) const {
  if (plan_.chunk == 0) return {0, block == 0 ? logged : 0};
  const std::uint64_t first = std::min<std::uint64_t>(std::uint64_t{block} * plan_.chunk, logged);
  return {static_cast<std::uint32_t>(first),
          static_cast<std::uint32_t>(std::min<std::uint64_t>(plan_.chunk, logged - first))};
}

Bytes PooledKv::kv_of(std::uint64_t tokens) const {
  return Bytes{model_.kv_bytes_per_token_and_layer().value / plan_.lists * tokens};
}

/// K and V are read and written; nothing starts if there are none.
ComputeWork PooledKv::copied(std::uint64_t tokens) const {
  return {.op = OperatorClass::elementwise, .activations = kv_of(2 * tokens), .launches = tokens > 0 ? 1U : 0U};
}

std::optional<Work> PooledKv::resolve(const Operation& op) const {
  if (!op.tag.layer || !op.tag.sequences) return std::nullopt;
  return op.resource.kind == ResourceKind::drive_kv ? resolve_on_drive(op) : resolve_on_host(op);
}

std::optional<Work> PooledKv::resolve_on_host(const Operation& op) const {
  const auto over_sequences = [&](auto&& count) {
    std::uint64_t sum = 0;
    for (const StepSequence& s : *op.tag.sequences) sum += count(key(op, s.sequence));
    return sum;
  };
  switch (op.kind) {
    case OpKind::score_kv: {
      const std::uint64_t tokens = over_sequences([&](PoolKey k) { return pools(k).hot_count(); });
      return ComputeWork{.op = OperatorClass::attention,
                         .flops = 2ULL * model_.heads / plan_.lists * model_.head_dim * tokens,
                         .activations = Bytes{kv_of(tokens).value / 2},
                         .launches = tokens > 0 ? 1U : 0U};
    }
    case OpKind::merge_scores: {
      const std::uint32_t part = part_of(op.tensors.reads, TensorClass::scores).value() - pool_tensors::kFirstBlock;
      const std::uint64_t tokens = over_sequences([&](PoolKey k) {
        return in_block(part / plan_.drives, logged(pools(k).log().size(), part % plan_.drives)).count;
      });
      // Scores are read, scores with positions are written.
      return ComputeWork{.op = OperatorClass::elementwise,
                         .activations = {(2 * kScoreBytes + kPositionBytes) * tokens},
                         .launches = tokens > 0 ? 1U : 0U};
    }
    case OpKind::gather_kv:
      if (const auto part = part_of(op.tensors.writes, TensorClass::new_kv))
        return copied(
            over_sequences([&](PoolKey k) { return written(k, *part - pool_tensors::kFirstWritten).size(); }));
      return copied(over_sequences([&](PoolKey k) { return latest(k).hot.size(); }));
    case OpKind::update_pools: {
      const std::uint64_t entries = over_sequences([&](PoolKey k) { return latest(k).moves.examined; });
      return ComputeWork{
          .op = OperatorClass::elementwise, .activations = {kHitBytes * entries}, .launches = entries > 0 ? 1U : 0U};
    }
    case OpKind::transfer: {
      const auto part = part_of(op.tensors.reads, TensorClass::fetched_kv);
      if (!part) return std::nullopt;
      LinkWork work = std::get<LinkWork>(op.work);
      work.bytes = kv_of(over_sequences([&](PoolKey k) {
        const PoolStep& step = latest(k);
        return *part == pool_tensors::kGathered ? step.hot.size()
                                                : in_drive(k, step.cold, pool_tensors::fetched_drive(*part)).size();
      }));
      return work;
    }
    default:
      return std::nullopt;
  }
}

std::optional<Work> PooledKv::resolve_on_drive(const Operation& op) const {
  const std::uint32_t drive = op.resource.index;
  switch (op.kind) {
    case OpKind::score_kv: {
      ScoreWork work = std::get<ScoreWork>(op.work);
      const std::uint32_t part = part_of(op.tensors.writes, TensorClass::scores).value() - pool_tensors::kFirstBlock;
      for (const StepSequence& s : *op.tag.sequences) {
        const std::size_t tokens = pools(key(op, s.sequence)).log().size();
        const Share range = in_block(part / plan_.drives, logged(tokens, drive));
        if (range.count > 0) work.sequences.push_back({s.sequence, range.first, range.first + range.count});
      }
      return work;
    }
    case OpKind::fetch_kv: {
      FetchWork work = std::get<FetchWork>(op.work);
      const std::uint32_t part = part_of(op.tensors.writes, TensorClass::fetched_kv).value();
      for (const StepSequence& s : *op.tag.sequences) {
        const PoolKey of = key(op, s.sequence);
        const PoolStep& step = latest(of);
        FetchWork::Sequence rows{s.sequence, {}};
        for (const std::uint32_t position :
             in_drive(of, pool_tensors::is_promoted(part) ? step.fetched_again : step.cold, drive))
          rows.tokens.push_back(TokenIndex{pools(of).log_index(position).value() / plan_.drives});
        if (!rows.tokens.empty()) work.sequences.push_back(std::move(rows));
      }
      return work;
    }
    case OpKind::append_kv: {
      DriveWork work = std::get<DriveWork>(op.work);
      for (const StepSequence& s : *op.tag.sequences) {
        const PoolKey of = key(op, s.sequence);
        const auto tokens = static_cast<std::uint32_t>(written(of, drive).size());
        if (tokens == 0) continue;
        work.sequences.push_back({.sequence = s.sequence,
                                  .first_token = TokenIndex{logged(latest(of).log_before, drive)},
                                  .tokens = tokens});
        work.to_drive += kv_of(tokens);
      }
      return work;
    }
    default:
      return std::nullopt;
  }
}

ModelledPools::ModelledPools(const PooledPlan& plan, const ModelShape& model,
                             std::unique_ptr<TokenImportance> importance)
    : pools_(plan, model), importance_(std::move(importance)) {
  if (plan.lists > 1 && !importance_->has_lists_of_heads())
    throw UserError(
        "simulation.tokens: the recording has one list per layer, system.aggregate: per_head needs one per KV head; "
        "use "
        "kind: modelled");
}

void ModelledPools::next(PoolKey key) {
  const std::uint32_t context = pools_.pools(key).tokens() + 1;
  // The lists of a layer are as independent as layers are.
  const LayerId of_list{key.layer.value * pools_.plan().lists + key.list};
  importance_->next(key.sequence, of_list, context, pools_.chosen(context), chosen_);
  pools_.step(key, chosen_);
}

std::optional<Work> ModelledPools::resolve(const Operation& op) {
  if (op.kind == OpKind::select_tokens)
    for (const StepSequence& s : *op.tag.sequences) next(pools_.key(op, s.sequence));
  pools_.start_after_prefill(op);
  return pools_.resolve(op);
}

void ModelledPools::skip_to(std::uint32_t step, std::uint32_t layers, std::span<const std::uint32_t> prompts) {
  for (std::uint32_t layer = 0; layer < layers; ++layer)
    for (std::uint32_t list = 0; list < pools_.plan().lists; ++list)
      for (std::uint32_t s = 0; s < prompts.size(); ++s) {
        const PoolKey key{SequenceId{s}, LayerId{layer}, list};
        if (!pools_.started(key)) pools_.start(key, prompts[s]);
        while (pools_.pools(key).tokens() < prompts[s] + step) next(key);
      }
}

}  // namespace csdsim::host
