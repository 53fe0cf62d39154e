#include "host_runtime/core/features/token_pools/carried_pools.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "contracts/token_score.h"
#include "host_runtime/core/attention/attention.h"
#include "host_runtime/core/carried/decoder_rows.h"

namespace csdsim::host {

namespace {

constexpr Half kNotArrived = 0x7E00;  // NaN

const TensorName* read_of(const Operation& op, TensorClass what, HeadRange heads = {},
                          std::optional<std::uint32_t> part = {}) {
  for (const TensorName& name : op.tensors.reads)
    if (name.what == what && (heads.count == 0 || name.heads == heads) && (!part || name.part == *part)) return &name;
  return nullptr;
}

const TensorName* written_of(const Operation& op, TensorClass what, HeadRange heads = {}) {
  for (const SizedTensor& write : op.tensors.writes)
    if (write.name.what == what && (heads.count == 0 || write.name.heads == heads)) return &write.name;
  return nullptr;
}

/// The tensor of a class that an operation reads, of some heads if it reads several. InternalError if it names none.
template <class T>
const T& input(const Operation& op, TensorClass what, const TensorStore& tensors, HeadRange heads = {},
               std::optional<std::uint32_t> part = {}) {
  const TensorName* const name = read_of(op, what, heads, part);
  if (name == nullptr)
    throw InternalError(fmt::format("{} reads no {}", user(op), kTensorClassNames[static_cast<std::size_t>(what)]));
  return tensors.at<T>(*name, input_place(op, what), user(op));
}

/// The tensor that an operation writes, of some heads if it writes several; made if it does not exist.
template <class T>
T& output(const Operation& op, TensorClass what, TensorStore& tensors, HeadRange heads = {}) {
  const TensorName* const name = written_of(op, what, heads);
  if (name == nullptr)
    throw InternalError(fmt::format("{} writes no {}", user(op), kTensorClassNames[static_cast<std::size_t>(what)]));
  const Place place = output_place(op, what);
  if (!tensors.has(*name, place)) tensors.put(*name, place, T{});
  return tensors.at<T>(*name, place, user(op));
}

[[noreturn]] void refuse_token(const Operation& op, SequenceId sequence, std::uint32_t token, std::string_view what) {
  throw InternalError(fmt::format("{}: token {} of sequence {} is {}", user(op), token, sequence.value, what));
}

}  // namespace

CarriedPools::CarriedPools(const PooledPlan& plan, const ModelConfig& model, TensorStore& tensors)
    : model_(model), tensors_(tensors), pools_(plan, ModelShape::of(model)) {}

std::optional<Work> CarriedPools::resolve(const Operation& op) {
  pools_.start_after_prefill(op);
  return pools_.resolve(op);
}

bool CarriedPools::serves(const Operation& op) const {
  switch (op.kind) {
    case OpKind::score_kv:
    case OpKind::fetch_kv:
    case OpKind::merge_scores:
    case OpKind::select_tokens:
    case OpKind::gather_kv:
    case OpKind::update_pools:
      return true;
    case OpKind::append_kv:
      return op.resource.kind != ResourceKind::drive_kv;
    case OpKind::attention:
      return op.tag.phase == Phase::decode;
    default:
      return false;
  }
}

void CarriedPools::perform(const Operation& op) {
  switch (op.kind) {
    case OpKind::append_kv:
      return join(op);
    case OpKind::score_kv:
      return score(op);
    case OpKind::merge_scores:
      return merge(op);
    case OpKind::select_tokens:
      return select(op);
    case OpKind::gather_kv:
      return gather(op);
    case OpKind::update_pools:
      return update(op);
    default:
      return attend(op);
  }
}

void CarriedPools::join(const Operation& op) const {
  const NewKv& kv = input<NewKv>(op, TensorClass::new_kv, tensors_);
  TokenRows& hot = output<TokenRows>(op, TensorClass::kv_cache, tensors_);
  const std::size_t width = this->width(pools_.heads(op));
  std::size_t row = 0;
  for (const StepSequence& s : *op.tag.sequences)
    for (std::uint32_t token = s.first_token; token < s.context(); ++token, ++row) {
      std::vector<Half> both;
      for (const std::span<const Half> of : {keys(kv), values(kv)})
        append_columns(of.subspan(row * width, width), width, 0, width, both);
      if (!hot.rows[s.sequence].emplace(token, std::move(both)).second)
        refuse_token(op, s.sequence, token, "in host memory already");
    }
}

void CarriedPools::score(const Operation& op) const {
  const PooledPlan& plan = pools_.plan();
  const auto& hot = input<TokenRows>(op, TensorClass::kv_cache, tensors_);
  const auto& queries = input<std::vector<Half>>(op, TensorClass::queries, tensors_);
  std::vector<float> q(queries.size());
  halves_to_floats(queries, q);
  TokenScores& all = output<TokenScores>(op, TensorClass::scores, tensors_);
  const HeadRange heads = pools_.heads(op);
  const std::size_t d = model_.head_dim, group = model_.group_size(), width = this->width(heads);
  std::size_t row = 0;
  for (const StepSequence& s : *op.tag.sequences) {
    // Not the current token: it may have joined already, and is attended to in any case.
    std::vector<std::uint32_t> positions;
    for (const auto& [position, both] : hot.rows.at(s.sequence))
      if (position < s.first_token) positions.push_back(position);
    std::vector<float> list(positions.size()), of_queries(group * positions.size());
    begin_scores(plan.aggregate, list);
    for (std::size_t head = 0; head < heads.count; ++head) {
      std::vector<Half> of_head;
      for (const std::uint32_t position : positions)
        append_columns(std::span(hot.rows.at(s.sequence).at(position)).first(width), width, head * d, d, of_head);
      const ScoringQueries scoring(
          plan.precision, std::span<const float>(q).subspan((row * heads.count + head) * group * d, group * d), group);
      scoring.score(of_head.data(), positions.size(), of_queries.data(), positions.size());
      for (std::size_t g = 0; g < group; ++g)
        add_scores(plan.aggregate, std::span(of_queries).subspan(g * list.size(), list.size()), list);
    }
    for (std::size_t i = 0; i < positions.size(); ++i) all.scores[s.sequence].emplace_back(positions[i], list[i]);
    ++row;
  }
}

void CarriedPools::merge(const Operation& op) const {
  const auto& arrived = input<TokenScores>(op, TensorClass::scores, tensors_);
  TokenScores& all = output<TokenScores>(op, TensorClass::scores, tensors_);
  const std::uint32_t block = read_of(op, TensorClass::scores)->part - pool_tensors::kFirstBlock;
  for (const auto& [sequence, scores] : arrived.scores) {
    const TokenPools& pools = pools_.pools(pools_.key(op, sequence));
    for (const auto& [index, score] : scores) {
      const std::uint32_t position = pools.log()[pools_.of_log(index, block % pools_.plan().drives)];
      if (!pools.hot(position)) all.scores[sequence].emplace_back(position, score);
    }
  }
}

void CarriedPools::select(const Operation& op) {
  const auto& all = input<TokenScores>(op, TensorClass::scores, tensors_);
  auto& choice = output<std::map<SequenceId, std::vector<std::uint32_t>>>(op, TensorClass::token_choice, tensors_);
  for (const StepSequence& s : *op.tag.sequences) {
    std::vector<float> keys(s.first_token);
    std::vector<bool> known(s.first_token);
    if (const auto of = all.scores.find(s.sequence); of != all.scores.end())
      for (const auto& [position, score] : of->second) {
        if (known.at(position)) refuse_token(op, s.sequence, position, "in host memory and in the drive");
        known[position] = true;
        keys[position] = score;
      }
    if (const auto lost = std::ranges::find(known, false); lost != known.end())
      refuse_token(op, s.sequence, static_cast<std::uint32_t>(lost - known.begin()),
                   "neither in host memory nor in the drive");
    std::vector<std::uint32_t> chosen = top_indices(keys, pools_.chosen(s.context()) - 1);
    chosen.push_back(s.first_token);
    pools_.step(pools_.key(op, s.sequence), chosen);
    choice[s.sequence] = std::move(chosen);
  }
}

void CarriedPools::gather(const Operation& op) const {
  const auto& hot = input<TokenRows>(op, TensorClass::kv_cache, tensors_);
  const TensorName* const to_log = written_of(op, TensorClass::new_kv);
  const std::size_t width = this->width(pools_.heads(op));
  NewKv kv[2];
  TokenRows gathered;
  for (const StepSequence& s : *op.tag.sequences) {
    const PoolKey key = pools_.key(op, s.sequence);
    const std::vector<std::uint32_t> leaving =
        to_log != nullptr ? pools_.written(key, to_log->part - pool_tensors::kFirstWritten) : pools_.latest(key).hot;
    for (const std::uint32_t position : leaving) {
      const auto& of_sequence = hot.rows.at(s.sequence);
      const auto found = of_sequence.find(position);
      if (found == of_sequence.end()) refuse_token(op, s.sequence, position, "not in host memory");
      gathered.rows[s.sequence][position] = found->second;
      for (std::size_t half = 0; half < 2; ++half)
        append_columns(std::span(found->second).subspan(half * width, width), width, 0, width, kv[half]);
    }
  }
  if (to_log == nullptr) {
    output<TokenRows>(op, TensorClass::fetched_kv, tensors_) = std::move(gathered);
    return;
  }
  kv[0].insert(kv[0].end(), kv[1].begin(), kv[1].end());
  output<NewKv>(op, TensorClass::new_kv, tensors_) = std::move(kv[0]);
}

std::map<std::uint32_t, const std::vector<Half>*> CarriedPools::at_gpu(const Operation& op, HeadRange heads,
                                                                       SequenceId sequence) const {
  std::map<std::uint32_t, const std::vector<Half>*> chosen;
  for (const TensorName& name : op.tensors.reads) {
    if (name.what != TensorClass::fetched_kv || name.heads != heads) continue;
    const auto& from = input<TokenRows>(op, TensorClass::fetched_kv, tensors_, heads, name.part);
    const auto rows = from.rows.find(sequence);
    if (rows == from.rows.end()) continue;
    for (const auto& [position, both] : rows->second)
      if (!chosen.emplace(position, &both).second) refuse_token(op, sequence, position, "fetched twice");
  }
  return chosen;
}

void CarriedPools::attend(const Operation& op) const {
  for (const SizedTensor& write : op.tensors.writes)
    if (write.name.what == TensorClass::attention_output) attend(op, write.name.heads);
}

void CarriedPools::attend(const Operation& op, HeadRange heads) const {
  const auto& queries = input<std::vector<Half>>(op, TensorClass::queries, tensors_, heads);
  const NewKv& current = input<NewKv>(op, TensorClass::new_kv, tensors_, heads);
  std::vector<float> q(queries.size());
  halves_to_floats(queries, q);
  const std::size_t d = model_.head_dim, per_head = std::size_t{model_.group_size()} * d, width = this->width(heads);
  std::vector<Half>& out = output<std::vector<Half>>(op, TensorClass::attention_output, tensors_, heads);
  out.resize(queries.size());
  std::vector<float> of_head(per_head);
  std::size_t row = 0;
  for (const StepSequence& s : *op.tag.sequences) {
    std::map<std::uint32_t, const std::vector<Half>*> chosen = at_gpu(op, heads, s.sequence);
    std::vector<Half> of_current;
    for (const std::span<const Half> of : {keys(current), values(current)})
      append_columns(of.subspan(row * width, width), width, 0, width, of_current);
    chosen.emplace(s.first_token, &of_current);
    if (chosen.size() != pools_.chosen(s.context()))
      throw InternalError(fmt::format("{}: {} tokens of sequence {} are at the GPU, {} were chosen", user(op),
                                      chosen.size(), s.sequence.value, pools_.chosen(s.context())));
    for (std::size_t head = 0; head < heads.count; ++head) {
      std::vector<Half> k, v;
      for (const auto& [position, both] : chosen) {
        append_columns(std::span(*both).first(width), width, head * d, d, k);
        append_columns(std::span(*both).last(width), width, head * d, d, v);
      }
      KvView view;
      view.tokens = chosen.size();
      view.head_dim = d;
      view.keys = k;
      view.values = v;
      const std::size_t at = (row * heads.count + head) * per_head;
      attend_tokens(std::span<const float>(q).subspan(at, per_head), view, all_indices(chosen.size()), of_head);
      floats_to_halves(of_head, std::span(out).subspan(at, per_head));
    }
    ++row;
  }
}

void CarriedPools::update(const Operation& op) const {
  TokenRows& hot = output<TokenRows>(op, TensorClass::kv_cache, tensors_);
  for (const StepSequence& s : *op.tag.sequences) {
    const PoolMoves& moves = pools_.latest(pools_.key(op, s.sequence)).moves;
    auto& rows = hot.rows[s.sequence];
    for (const std::uint32_t position : moves.promoted) {
      const std::vector<Half>* arrived = nullptr;
      for (const TensorName& name : op.tensors.reads) {
        if (name.what != TensorClass::fetched_kv) continue;
        const auto& from = input<TokenRows>(op, TensorClass::fetched_kv, tensors_, name.heads, name.part).rows;
        const auto of = from.find(s.sequence);
        if (of == from.end()) continue;
        if (const auto row = of->second.find(position); row != of->second.end()) arrived = &row->second;
      }
      if (arrived == nullptr) refuse_token(op, s.sequence, position, "promoted and has not been fetched");
      if (!rows.emplace(position, *arrived).second)
        refuse_token(op, s.sequence, position, "promoted and in host memory already");
    }
    for (const std::uint32_t position : moves.demoted)
      if (rows.erase(position) == 0) refuse_token(op, s.sequence, position, "demoted and not in host memory");
  }
  check(op, hot);
}

void CarriedPools::check(const Operation& op, const TokenRows& hot) const {
  for (const StepSequence& s : *op.tag.sequences) {
    const TokenPools& pools = pools_.pools(pools_.key(op, s.sequence));
    const auto& rows = hot.rows.at(s.sequence);
    if (pools.tokens() != s.context())
      throw InternalError(fmt::format("{}: the pools have {} tokens of {}", user(op), pools.tokens(), s.context()));
    for (std::uint32_t position = 0; position < pools.tokens(); ++position) {
      if (pools.hot(position) != rows.contains(position))
        refuse_token(op, s.sequence, position,
                     pools.hot(position) ? "hot and not in host memory" : "cold and in host memory");
      if (!pools.hot(position) && !pools.log_index(position))
        refuse_token(op, s.sequence, position, "cold and not in the drive");
    }
    if (rows.size() != pools.hot_count())
      throw InternalError(
          fmt::format("{}: {} tokens in host memory, {} are hot", user(op), rows.size(), pools.hot_count()));
  }
}

std::vector<std::uint32_t> CarriedPools::fetched(const Operation& op, std::size_t index) const {
  const PoolKey key = pools_.key(op, std::get<FetchWork>(op.work).sequences.at(index).sequence);
  const PoolStep& step = pools_.latest(key);
  const std::uint32_t part = written_of(op, TensorClass::fetched_kv)->part;
  return pools_.in_drive(key, pool_tensors::is_promoted(part) ? step.fetched_again : step.cold, op.resource.index);
}

void CarriedPools::load_queries(const Operation& op, std::size_t index, HeadRange heads, std::span<Half> q) {
  const auto& queries = input<std::vector<Half>>(op, TensorClass::queries, tensors_);
  const HeadRange held = pools_.heads(op);
  const SequenceId sequence = std::get<ScoreWork>(op.work).sequences.at(index).sequence;
  std::size_t row = 0;
  while (op.tag.sequences->at(row).sequence != sequence) ++row;
  const std::size_t per_head = std::size_t{model_.group_size()} * model_.head_dim;
  const std::size_t head = row * held.count + heads.first.value - held.first.value;
  std::copy_n(queries.begin() + static_cast<std::ptrdiff_t>(head * per_head), q.size(), q.begin());
}

void CarriedPools::store_scores(const Operation& op, std::size_t index, HeadRange, std::uint32_t first,
                                std::span<const float> scores) {
  auto& of_sequence = arriving_scores_[op.id].scores[std::get<ScoreWork>(op.work).sequences.at(index).sequence];
  for (std::size_t i = 0; i < scores.size(); ++i)
    of_sequence.emplace_back(first + static_cast<std::uint32_t>(i), scores[i]);
}

void CarriedPools::store_rows(const Operation& op, std::size_t index, std::uint32_t first, std::uint32_t count,
                              HeadRange heads, std::span<const Half> k, std::span<const Half> v) {
  auto& rows = arriving_rows_[op.id].rows[std::get<FetchWork>(op.work).sequences.at(index).sequence];
  const std::vector<std::uint32_t> positions = fetched(op, index);
  const HeadRange held = pools_.heads(op);
  const std::size_t d = model_.head_dim, width = this->width(held);
  for (std::uint32_t token = 0; token < count; ++token) {
    std::vector<Half>& both = rows.try_emplace(positions.at(first + token), 2 * width, kNotArrived).first->second;
    for (std::size_t head = 0; head < heads.count; ++head) {
      const std::size_t at = (heads.first.value - held.first.value + head) * d, from = (head * count + token) * d;
      std::copy_n(k.begin() + static_cast<std::ptrdiff_t>(from), d, both.begin() + static_cast<std::ptrdiff_t>(at));
      std::copy_n(v.begin() + static_cast<std::ptrdiff_t>(from), d,
                  both.begin() + static_cast<std::ptrdiff_t>(width + at));
    }
  }
}

void CarriedPools::ended(const Operation& op) {
  if (op.resource.kind != ResourceKind::drive_kv) return;
  // An operation without work leaves an empty tensor.
  if (op.kind == OpKind::score_kv)
    output<TokenScores>(op, TensorClass::scores, tensors_) = std::move(arriving_scores_[op.id]);
  if (op.kind == OpKind::fetch_kv)
    output<TokenRows>(op, TensorClass::fetched_kv, tensors_) = std::move(arriving_rows_[op.id]);
  arriving_scores_.erase(op.id);
  arriving_rows_.erase(op.id);
}

}  // namespace csdsim::host
