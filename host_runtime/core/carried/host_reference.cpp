#include "host_runtime/core/carried/host_reference.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/fp16.h"
#include "contracts/token_score.h"
#include "host_runtime/core/attention/partial_attention.h"
#include "host_runtime/core/plan/run_feature.h"

namespace csdsim::host {

namespace {

SparqOptions sparq_options(const DriveWork& work, const SequenceWork& s) {
  return {.components = work.components, .tokens = s.top_k, .local = s.local};
}

/// The KV heads that an operation of a drive is for.
HeadRange heads_of(const Operation& op) {
  return std::visit(
      [](const auto& work) {
        if constexpr (requires { work.heads; })
          return work.heads;
        else
          return HeadRange{};
      },
      op.work);
}

}  // namespace

HostReference::HostReference(const host::ModelConfig& model, std::uint32_t sequences, OperationData& data,
                             NeuronSums sums)
    : model_(model), data_(data), sequences_(sequences), sums_(std::move(sums)) {}

host::HostKvCache& HostReference::cache_of(const Operation& op) {
  const HeadRange heads = heads_of(op);
  host::ModelConfig model = model_;
  model.kv_heads = heads.count;
  model.heads = model_.group_size() * heads.count;
  const auto [cache, made] = caches_.try_emplace(std::pair(op.resource.index, heads.first.value), model,
                                                 host::KeyLayout::token_and_component_major);
  if (made)
    for (std::uint32_t s = 0; s < sequences_; ++s) cache->second.create(SequenceId{s});
  return cache->second;
}

/// A sequence has K and V in all caches of its drive; one that is created is there from the start.
void HostReference::free_sequences(const Operation& op) {
  for (auto& [key, cache] : caches_)
    if (key.first == op.resource.index)
      for (const SequenceId s : std::get<SequencesWork>(op.work).sequences) cache.free(s);
}

std::optional<SimTime> HostReference::start(const Operation& planned, SimTime) {
  Operation op = planned;
  if (data_.features() != nullptr)
    if (std::optional<Work> work = data_.features()->resolve(op)) {
      op.work = std::move(*work);
      resolved_.emplace(op.id, op);
    }
  const bool of_drive = op.resource.kind == ResourceKind::drive_kv;
  if (of_drive && op.kind == OpKind::append_kv) {
    append(op);
  } else if (of_drive && op.kind == OpKind::attend) {
    attend(op);
  } else if (of_drive && op.kind == OpKind::score_kv) {
    score(op);
  } else if (of_drive && op.kind == OpKind::fetch_kv) {
    fetch(op);
  } else if (of_drive && op.kind == OpKind::free_kv) {
    free_sequences(op);
  } else if (of_drive && op.kind == OpKind::create_kv) {
    // A cache is made with all sequences of the run.
  } else if (op.resource.kind == ResourceKind::file) {
    access_file(op);
  } else if (op.resource.kind == ResourceKind::drive_blocks) {
    if (std::holds_alternative<NeuronWork>(op.work))
      feed_forward(op);
    else
      access_blocks(op);
  } else {
    data_.perform(op);
  }
  return SimTime{};
}

void HostReference::end(const Operation& op) {
  const auto found = resolved_.find(op.id);
  data_.ended(found == resolved_.end() ? op : found->second);
  if (found != resolved_.end()) resolved_.erase(found);
}

void HostReference::access_file(const Operation& op) {
  const auto& work = std::get<FileWork>(op.work);
  std::vector<std::byte>& file = files_[work.file];
  for (std::size_t index = 0; index < work.ranges.size(); ++index) {
    const FileRange& range = work.ranges[index];
    file.resize(std::max<std::size_t>(file.size(), range.offset.value + range.size.value));
    const auto bytes = std::span(file).subspan(range.offset.value, range.size.value);
    if (op.kind == OpKind::write_file)
      data_.load_file(op, index, Bytes{}, bytes);
    else
      data_.store_file(op, index, Bytes{}, bytes);
  }
}

void HostReference::access_blocks(const Operation& op) {
  const auto& work = std::get<BlockWork>(op.work);
  std::vector<std::byte>& blocks = blocks_[op.resource.index];
  for (std::size_t index = 0; index < work.extents.size(); ++index) {
    const Bytes first = work.block_size * work.extents[index].first,
                size = work.block_size * work.extents[index].blocks;
    blocks.resize(std::max<std::size_t>(blocks.size(), (first + size).value));
    const auto bytes = std::span(blocks).subspan(first.value, size.value);
    if (op.kind == OpKind::write_blocks)
      data_.load_blocks(op, index, bytes);
    else
      data_.store_blocks(op, index, bytes);
  }
}

void HostReference::feed_forward(const Operation& op) {
  if (!sums_) throw InternalError("feed-forward networks of drives on the host without a function for them");
  const auto& work = std::get<NeuronWork>(op.work);
  const std::vector<std::byte>& blocks = blocks_[op.resource.index];
  const std::size_t row = work.width * sizeof(Half);
  std::vector<Half> rows;
  const auto add = [&](Bytes at) {
    const auto from = std::span(blocks).subspan(at.value, row);
    rows.resize(rows.size() + work.width);
    std::ranges::copy(from, std::as_writable_bytes(std::span(rows)).last(row).begin());
  };
  for (const NeuronRun& run : work.runs)
    for (std::uint32_t i = 0; i < run.count; ++i) {
      add(run.up + run.stride * i);
      if (work.gated) add(run.gate + run.stride * i);
      add(run.down + run.stride * i);
    }
  std::vector<Half> x(std::size_t{work.tokens} * work.width), bias(work.bias ? neuron_count(work.runs) : 0);
  data_.load_network_input(op, 0, x, bias);
  data_.store_partial_sum(op, sums_(work, x, rows, bias));
}

void HostReference::append(const Operation& op) {
  const auto& work = std::get<DriveWork>(op.work);
  const std::size_t d = model_.head_dim, heads = work.heads.count;
  for (std::size_t index = 0; index < work.sequences.size(); ++index) {
    const SequenceWork& s = work.sequences[index];
    std::vector<Half> k(std::size_t{s.tokens} * heads * d);
    std::vector<Half> v(k.size());
    data_.load_append(op, index, 0, s.tokens, work.heads, k, v);
    // [head][token][d] as the drive takes it, [token][head][d] as the cache does.
    std::vector<Half> token_k(k.size());
    std::vector<Half> token_v(k.size());
    for (std::size_t h = 0; h < heads; ++h)
      for (std::size_t t = 0; t < s.tokens; ++t)
        for (std::size_t i = 0; i < d; ++i) {
          token_k[(t * heads + h) * d + i] = k[(h * s.tokens + t) * d + i];
          token_v[(t * heads + h) * d + i] = v[(h * s.tokens + t) * d + i];
        }
    cache_of(op).append(s.sequence, *op.tag.layer, token_k, token_v);
  }
}

void HostReference::attend(const Operation& op) {
  const auto& work = std::get<DriveWork>(op.work);
  const std::size_t per_head = std::size_t{model_.group_size()} * model_.head_dim, heads = work.heads.count;
  std::vector<Half> q(heads * per_head);
  std::vector<float> wide_q(q.size());
  std::vector<float> out(per_head);
  std::vector<Half> rounded(q.size());
  for (std::size_t index = 0; index < work.sequences.size(); ++index) {
    const SequenceWork& s = work.sequences[index];
    std::vector<Half> k(s.tokens > 0 ? heads * model_.head_dim : 0);
    std::vector<Half> v(k.size());
    data_.load_attend(op, index, work.heads, q, k, v);
    if (s.tokens > 0) cache_of(op).append(s.sequence, *op.tag.layer, k, v);
    halves_to_floats(q, wide_q);
    if (work.partial) {
      attend_partially(op, index, wide_q);
      continue;
    }
    std::unique_ptr<host::HeadAttention> method;
    if (work.method == Method::sparf) {
      method = std::make_unique<host::SparqAttention>(sparq_options(work, s));
    } else {
      method = std::make_unique<host::DenseAttention>();
    }
    for (std::uint32_t h = 0; h < heads; ++h) {
      method->attend(std::span<const float>(wide_q).subspan(h * per_head, per_head),
                     cache_of(op).view(s.sequence, *op.tag.layer, KvHead{h}), out, nullptr);
      floats_to_halves(out, std::span(rounded).subspan(h * per_head, per_head));
    }
    data_.store_output(op, index, work.heads, rounded);
  }
}

void HostReference::attend_partially(const Operation& op, std::size_t index, std::span<const float> q) {
  const auto& work = std::get<DriveWork>(op.work);
  const std::size_t per_head = std::size_t{model_.group_size()} * model_.head_dim;
  std::vector<Half> out(q.size());
  std::vector<float> softmax;
  for (std::uint32_t h = 0; h < model_.kv_heads; ++h) {
    const auto of_head = q.subspan(h * per_head, per_head);
    const SequenceWork& s = work.sequences[index];
    const KvView kv = cache_of(op).view(s.sequence, *op.tag.layer, KvHead{h});
    const PartialAttention part = work.method == Method::sparf
                                      ? host::attend_partially(sparq_options(work, s), of_head, kv)
                                      : host::attend_partially(of_head, kv);
    floats_to_halves(part.out, std::span(out).subspan(h * per_head, per_head));
    for (std::size_t g = 0; g < part.most.size(); ++g) {
      softmax.push_back(part.most[g]);
      softmax.push_back(part.sum[g]);
    }
  }
  data_.store_partial(op, index, work.heads, out, softmax);
}

void HostReference::score(const Operation& op) {
  const auto& work = std::get<ScoreWork>(op.work);
  const std::size_t per_head = std::size_t{model_.group_size()} * model_.head_dim;
  std::vector<Half> q(work.heads.count * per_head);
  std::vector<float> wide_q(q.size());
  for (std::size_t index = 0; index < work.sequences.size(); ++index) {
    const ScoreWork::Sequence& s = work.sequences[index];
    data_.load_queries(op, index, work.heads, q);
    halves_to_floats(q, wide_q);
    const std::size_t tokens = s.tokens();
    std::vector<float> lists(work.lists(work.heads.count) * tokens), of_queries(model_.group_size() * tokens);
    begin_scores(work.aggregate, lists);
    for (std::uint32_t head = 0; head < work.heads.count; ++head) {
      const KvView kv = cache_of(op).view(s.sequence, *op.tag.layer, KvHead{head});
      if (s.context > kv.tokens) throw InternalError("scores of tokens that are not there");
      const ScoringQueries scoring(work.precision, std::span<const float>(wide_q).subspan(head * per_head, per_head),
                                   model_.group_size());
      scoring.score(kv.keys.data() + std::size_t{s.first} * model_.head_dim, tokens, of_queries.data(), tokens);
      const std::size_t list = lists.size() > tokens ? head : 0;
      for (std::size_t g = 0; g < model_.group_size(); ++g)
        add_scores(work.aggregate, std::span(of_queries).subspan(g * tokens, tokens),
                   std::span(lists).subspan(list * tokens, tokens));
    }
    data_.store_scores(op, index, work.heads, s.first, lists);
  }
}

void HostReference::fetch(const Operation& op) {
  const auto& work = std::get<FetchWork>(op.work);
  const std::size_t d = model_.head_dim;
  for (std::size_t index = 0; index < work.sequences.size(); ++index) {
    const FetchWork::Sequence& s = work.sequences[index];
    std::vector<Half> k, v;
    for (std::uint32_t head = 0; head < work.heads.count; ++head) {
      const KvView kv = cache_of(op).view(s.sequence, *op.tag.layer, KvHead{head});
      for (const TokenIndex token : s.tokens) {
        if (token.value >= kv.tokens) throw InternalError("a fetch of tokens that are not there");
        const auto row = [&](std::span<const Half> rows) { return rows.subspan(token.value * d, d); };
        k.insert(k.end(), row(kv.keys).begin(), row(kv.keys).end());
        v.insert(v.end(), row(kv.values).begin(), row(kv.values).end());
      }
    }
    data_.store_rows(op, index, 0, static_cast<std::uint32_t>(s.tokens.size()), work.heads, k, v);
  }
}

void run_on_host(host::Planner& planner, const host::ModelConfig& model, std::uint32_t sequences, OperationData& data,
                 const NeuronSums& sums) {
  HostReference backend(model, sequences, data, sums);
  const auto run = [&](Planner& plan) {
    host::Executor executor(plan, backend, {});
    executor.start(SimTime{});
    while (!executor.finished()) executor.advance(executor.next_event());
  };
  if (data.features() != nullptr)
    for (const auto& feature : *data.features())
      if (const std::unique_ptr<Planner> loading = feature->loading()) run(*loading);
  run(planner);
}

}  // namespace csdsim::host
