#include "host_runtime/core/planner/pooled_kv.h"

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
}

const PooledKv::Entry& PooledKv::entry(SequenceId sequence, LayerId layer) const {
  const auto found = entries_.find({sequence, layer});
  if (found == entries_.end())
    throw InternalError(
        fmt::format("the pools of sequence {} in layer {} have not started", sequence.value, layer.value));
  return found->second;
}

void PooledKv::start(SequenceId sequence, LayerId layer, std::uint32_t tokens) {
  const auto [at, made] = entries_.try_emplace({sequence, layer}, Entry{TokenPools(plan_.pools), {}});
  if (!made)
    throw InternalError(fmt::format("the pools of sequence {} in layer {} start twice", sequence.value, layer.value));
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

const PoolStep& PooledKv::step(SequenceId sequence, LayerId layer, std::span<const std::uint32_t> chosen) {
  auto& [pools, step] = entry(sequence, layer);
  const std::uint32_t cached = pools.tokens();
  if (chosen.empty() || chosen.back() != cached)
    throw InternalError(fmt::format("the current token {} of sequence {} is not attended to", cached, sequence.value));
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

/// K and V are read and written; nothing starts if there are none.
ComputeWork PooledKv::copied(std::uint64_t tokens) const {
  return {.op = OperatorClass::elementwise,
          .activations = model_.kv_bytes_per_token_and_layer() * (2 * tokens),
          .launches = tokens > 0 ? 1U : 0U};
}

std::optional<Work> PooledKv::resolve(const Operation& op) const {
  if (!op.tag.layer || !op.tag.sequences) return std::nullopt;
  return op.resource.kind == ResourceKind::drive_kv ? resolve_on_drive(op) : resolve_on_host(op);
}

std::optional<Work> PooledKv::resolve_on_host(const Operation& op) const {
  const LayerId layer = *op.tag.layer;
  const auto over_sequences = [&](auto&& count) {
    std::uint64_t sum = 0;
    for (const StepSequence& s : *op.tag.sequences) sum += count(entry(s.sequence, layer));
    return sum;
  };
  switch (op.kind) {
    case OpKind::score_kv: {
      const std::uint64_t tokens = over_sequences([](const Entry& e) { return e.pools.hot_count(); });
      return ComputeWork{.op = OperatorClass::attention,
                         .flops = 2ULL * model_.heads * model_.head_dim * tokens,
                         .activations = Bytes{model_.kv_bytes_per_token_and_layer().value / 2 * tokens},
                         .launches = tokens > 0 ? 1U : 0U};
    }
    case OpKind::merge_scores: {
      const std::uint32_t block = part_of(op.tensors.reads, TensorClass::scores).value() - pool_tensors::kFirstBlock;
      const std::uint64_t tokens = over_sequences(
          [&](const Entry& e) { return in_block(block, static_cast<std::uint32_t>(e.pools.log().size())).count; });
      // Scores are read, scores with positions are written.
      return ComputeWork{.op = OperatorClass::elementwise,
                         .activations = {(2 * kScoreBytes + kPositionBytes) * tokens},
                         .launches = tokens > 0 ? 1U : 0U};
    }
    case OpKind::gather_kv:
      if (part_of(op.tensors.writes, TensorClass::new_kv))
        return copied(over_sequences([](const Entry& e) { return e.latest.moves.written.size(); }));
      return copied(over_sequences([](const Entry& e) { return e.latest.hot.size(); }));
    case OpKind::update_pools: {
      const std::uint64_t entries = over_sequences([](const Entry& e) { return e.latest.moves.examined; });
      return ComputeWork{
          .op = OperatorClass::elementwise, .activations = {kHitBytes * entries}, .launches = entries > 0 ? 1U : 0U};
    }
    case OpKind::transfer: {
      const auto part = part_of(op.tensors.reads, TensorClass::fetched_kv);
      if (!part) return std::nullopt;
      LinkWork work = std::get<LinkWork>(op.work);
      work.bytes = model_.kv_bytes_per_token_and_layer() * over_sequences([&](const Entry& e) {
                     return *part == pool_tensors::kGathered ? e.latest.hot.size() : e.latest.cold.size();
                   });
      return work;
    }
    default:
      return std::nullopt;
  }
}

std::optional<Work> PooledKv::resolve_on_drive(const Operation& op) const {
  const LayerId layer = *op.tag.layer;
  switch (op.kind) {
    case OpKind::score_kv: {
      ScoreWork work = std::get<ScoreWork>(op.work);
      const std::uint32_t block = part_of(op.tensors.writes, TensorClass::scores).value() - pool_tensors::kFirstBlock;
      for (const StepSequence& s : *op.tag.sequences) {
        const Share range = in_block(block, static_cast<std::uint32_t>(pools(s.sequence, layer).log().size()));
        if (range.count > 0) work.sequences.push_back({s.sequence, range.first, range.first + range.count});
      }
      return work;
    }
    case OpKind::fetch_kv: {
      FetchWork work = std::get<FetchWork>(op.work);
      const bool again = part_of(op.tensors.writes, TensorClass::fetched_kv) == pool_tensors::kPromoted;
      for (const StepSequence& s : *op.tag.sequences) {
        const Entry& of = entry(s.sequence, layer);
        FetchWork::Sequence rows{s.sequence, {}};
        for (const std::uint32_t position : again ? of.latest.fetched_again : of.latest.cold)
          rows.tokens.push_back(TokenIndex{of.pools.log_index(position).value()});
        if (!rows.tokens.empty()) work.sequences.push_back(std::move(rows));
      }
      return work;
    }
    case OpKind::append_kv: {
      DriveWork work = std::get<DriveWork>(op.work);
      for (const StepSequence& s : *op.tag.sequences) {
        const PoolStep& step = latest(s.sequence, layer);
        const auto tokens = static_cast<std::uint32_t>(step.moves.written.size());
        if (tokens == 0) continue;
        work.sequences.push_back(
            {.sequence = s.sequence, .first_token = TokenIndex{step.log_before}, .tokens = tokens});
        work.to_drive += model_.kv_bytes_per_token_and_layer() * tokens;
      }
      return work;
    }
    default:
      return std::nullopt;
  }
}

ModelledPools::ModelledPools(const PooledPlan& plan, const ModelShape& model,
                             std::unique_ptr<TokenImportance> importance)
    : pools_(plan, model), importance_(std::move(importance)) {}

void ModelledPools::next(SequenceId sequence, LayerId layer) {
  const std::uint32_t context = pools_.pools(sequence, layer).tokens() + 1;
  importance_->next(sequence, layer, context, pools_.chosen(context), chosen_);
  pools_.step(sequence, layer, chosen_);
}

std::optional<Work> ModelledPools::resolve(const Operation& op) {
  if (op.kind == OpKind::select_tokens)
    for (const StepSequence& s : *op.tag.sequences) next(s.sequence, *op.tag.layer);
  if (op.tag.phase == Phase::prefill && op.kind == OpKind::gather_kv)
    for (const StepSequence& s : *op.tag.sequences) pools_.start(s.sequence, *op.tag.layer, s.tokens);
  return pools_.resolve(op);
}

void ModelledPools::skip_to(std::uint32_t step, std::uint32_t layers, std::span<const std::uint32_t> prompts) {
  for (std::uint32_t layer = 0; layer < layers; ++layer)
    for (std::uint32_t s = 0; s < prompts.size(); ++s) {
      const SequenceId sequence{s};
      if (!pools_.started(sequence, LayerId{layer})) pools_.start(sequence, LayerId{layer}, prompts[s]);
      while (pools_.pools(sequence, LayerId{layer}).tokens() < prompts[s] + step) next(sequence, LayerId{layer});
    }
}

}  // namespace csdsim::host
