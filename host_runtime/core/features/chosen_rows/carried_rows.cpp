#include "host_runtime/core/features/chosen_rows/carried_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "host_runtime/core/carried/decoder_rows.h"

namespace csdsim::host {

using namespace row_tensors;

namespace {

constexpr Half kUnknown = 0x7E00;  // NaN in the place of what was not fetched

const TensorName* tensor_read(const Operation& op, TensorClass what) {
  for (const TensorName& name : op.tensors.reads)
    if (name.what == what) return &name;
  return nullptr;
}

const TensorName& written_by(const Operation& op) {
  if (op.tensors.writes.empty()) throw InternalError(fmt::format("{} writes nothing", user(op)));
  return op.tensors.writes.front().name;
}

template <class T>
const T& input(const Operation& op, const TensorName& name, const TensorStore& tensors) {
  return tensors.at<T>(name, input_place(op, name.what), user(op));
}

std::vector<float> wide(std::span<const Half> halves) {
  std::vector<float> floats(halves.size());
  halves_to_floats(halves, floats);
  return floats;
}

}  // namespace

struct CarriedRows::Step {
  StepSequence sequence;
  std::vector<float> q;  ///< [kv_heads][group][d]
  std::vector<std::vector<Half>> keys, values;
  std::vector<std::vector<bool>> known;  ///< [head][token]

  void know(std::uint32_t head, std::uint32_t token, std::span<const Half> row) {
    const std::size_t d = row.size() / 2;
    std::ranges::copy(row.first(d), keys[head].begin() + static_cast<std::ptrdiff_t>(token * d));
    std::ranges::copy(row.last(d), values[head].begin() + static_cast<std::ptrdiff_t>(token * d));
    known[head][token] = true;
  }
  std::vector<KvView> views(std::size_t d) const {
    std::vector<KvView> all;
    for (std::size_t head = 0; head < keys.size(); ++head) {
      KvView view;
      view.tokens = known[head].size();
      view.head_dim = d;
      view.keys = keys[head];
      view.values = values[head];
      all.push_back(view);
    }
    return all;
  }
};

CarriedRows::CarriedRows(ChosenRows rows, const ModelConfig& model, std::unique_ptr<ChoosingMethod> method,
                         TensorStore& tensors)
    : rows_(std::move(rows)), tensors_(tensors), model_(model), method_(std::move(method)) {}

std::vector<Half> CarriedRows::row_of(std::span<const Half> k, std::span<const Half> v, std::size_t row,
                                      HeadRange heads, std::uint32_t head) const {
  const std::size_t d = model_.head_dim, at = (row * heads.count + (head - heads.first.value)) * d;
  std::vector<Half> both;
  for (const std::span<const Half> part : {k, v})
    both.insert(both.end(), part.begin() + static_cast<std::ptrdiff_t>(at),
                part.begin() + static_cast<std::ptrdiff_t>(at + d));
  return both;
}

void CarriedRows::projected(const Operation& op, std::span<const Half> q, std::span<const Half> k,
                            std::span<const Half> v) {
  const std::size_t d = model_.head_dim;
  const HeadRange all{KvHead{0}, static_cast<std::uint32_t>(model_.kv_heads)};
  const std::vector<float> queries = wide(q);
  std::size_t row = 0;
  for (const StepSequence& s : *op.tag.sequences) {
    std::vector<std::vector<Half>> keys(model_.kv_heads), values(model_.kv_heads);
    std::vector<KvView> views(model_.kv_heads);
    for (std::uint32_t head = 0; head < model_.kv_heads; ++head) {
      for (std::uint32_t token = 0; token < s.tokens; ++token) {
        const std::vector<Half> both = row_of(k, v, row + token, all, head);
        keys[head].insert(keys[head].end(), both.begin(), both.begin() + static_cast<std::ptrdiff_t>(d));
        values[head].insert(values[head].end(), both.begin() + static_cast<std::ptrdiff_t>(d), both.end());
      }
      views[head].tokens = s.tokens;
      views[head].head_dim = d;
      views[head].keys = keys[head];
      views[head].values = values[head];
    }
    const std::size_t width = model_.q_width();
    method_->learn({s.sequence, *op.tag.layer, static_cast<std::uint32_t>(model_.group_size()),
                    std::span<const float>(queries).subspan(row * width, s.tokens * width), views});
    keep(s.sequence, *op.tag.layer);
    row += s.tokens;
  }
}

void CarriedRows::keep(SequenceId sequence, LayerId layer) {
  for (std::uint32_t head = 0; head < model_.kv_heads; ++head)
    if (const auto* const kept = method_->kept(sequence, layer, head)) rows_.keep(sequence, layer, head, *kept);
}

std::optional<Work> CarriedRows::resolve(const Operation& op) {
  if (std::holds_alternative<FileWork>(op.work)) runs_[op.id] = rows_.file_runs(op);
  return rows_.resolve(op);
}

bool CarriedRows::serves(const Operation& op) const {
  if (std::holds_alternative<FileWork>(op.work)) return true;
  switch (op.kind) {
    case OpKind::gather_kv:
    case OpKind::append_kv:
    case OpKind::select_tokens:
      return true;
    case OpKind::attention:
      return op.tag.phase == Phase::decode;
    default:
      return false;
  }
}

void CarriedRows::perform(const Operation& op) {
  switch (op.kind) {
    case OpKind::gather_kv:
      return gather(op);
    case OpKind::append_kv:
      return written_by(op).what == TensorClass::fetched_kv ? join(op) : store(op);
    case OpKind::select_tokens:
      return select(op);
    default:
      return attend(op);
  }
}

RowsByHead CarriedRows::new_rows(const Operation& op) const {
  const TensorName* const name = tensor_read(op, TensorClass::new_kv);
  if (name == nullptr) throw InternalError(fmt::format("{} reads no new K and V", user(op)));
  if (name->part == kKept) return input<RowsByHead>(op, *name, tensors_);
  const auto& kv = input<NewKv>(op, *name, tensors_);
  RowsByHead all;
  std::size_t row = 0;
  for (const StepSequence& s : *op.tag.sequences)
    for (std::uint32_t token = s.first_token; token < s.context(); ++token, ++row)
      for (std::uint32_t head = name->heads.first.value; head < name->heads.first.value + name->heads.count; ++head)
        all.rows[s.sequence][head][token] = row_of(keys(kv), values(kv), row, name->heads, head);
  return all;
}

void CarriedRows::gather(const Operation& op) const {
  const TensorName& to = written_by(op);
  const bool prompt = to.what == TensorClass::new_kv;
  const TensorName* const cache = tensor_read(op, TensorClass::kv_cache);
  RowsByHead gathered;
  const RowsByHead all = prompt ? new_rows(op) : input<RowsByHead>(op, *cache, tensors_);
  for (const auto& [sequence, heads] : all.rows)
    for (const auto& [head, rows] : heads) {
      auto& into = gathered.rows[sequence][head];
      const LayerId layer = *op.tag.layer;
      const std::span<const std::uint32_t> wanted =
          prompt ? std::span<const std::uint32_t>(rows_.in_file(sequence, layer, head))
                 : rows_.chosen(sequence, layer, head);
      for (const std::uint32_t token : wanted) into[token] = rows.at(token);
    }
  tensors_.put(to, output_place(op, to.what), std::move(gathered));
}

void CarriedRows::join(const Operation& op) const {
  const TensorName& to = written_by(op);
  RowsByHead joined = input<RowsByHead>(op, *tensor_read(op, TensorClass::fetched_kv), tensors_);
  const auto& newest = input<RowsByHead>(op, *tensor_read(op, TensorClass::kv_cache), tensors_);
  const LayerId layer = *op.tag.layer;
  for (const StepSequence& s : *op.tag.sequences)
    for (const auto& [head, rows] : newest.rows.at(s.sequence)) {
      const std::uint32_t written = rows_.plan().written(s.first_token);
      for (const auto& [token, row] : rows) {
        if (token < written || token >= s.first_token) continue;
        if (rows_.plan().sparse(layer) && !std::ranges::binary_search(rows_.chosen(s.sequence, layer, head), token))
          continue;
        joined.rows[s.sequence][head][token] = row;
      }
    }
  tensors_.put(to, output_place(op, to.what), std::move(joined));
}

void CarriedRows::store(const Operation& op) {
  const TensorName& to = written_by(op);
  const Place place = output_place(op, to.what);
  if (!tensors_.has(to, place)) tensors_.put(to, place, RowsByHead{});
  RowsByHead& cache = tensors_.at<RowsByHead>(to, place, user(op));
  for (const auto& [sequence, heads] : new_rows(op).rows)
    for (const auto& [head, rows] : heads) cache.rows[sequence][head].insert(rows.begin(), rows.end());
  for (const StepSequence& s : *op.tag.sequences)
    for (auto& [head, rows] : cache.rows.at(s.sequence))
      std::erase_if(rows, [&](const auto& row) {
        if (to.part == kNewest) return row.first < rows_.plan().written(s.first_token);
        const std::vector<std::uint32_t>* const kept = method_->kept(s.sequence, *op.tag.layer, head);
        return kept != nullptr && !std::ranges::binary_search(*kept, row.first);
      });
}

CarriedRows::Step CarriedRows::step_of(const Operation& op, std::size_t row) const {
  const std::size_t d = model_.head_dim, per_head = model_.group_size() * d;
  Step step{.sequence = op.tag.sequences->at(row),
            .q = std::vector<float>(model_.q_width()),
            .keys = {},
            .values = {},
            .known = {}};
  const std::size_t tokens = step.sequence.context();
  step.keys.assign(model_.kv_heads, std::vector<Half>(tokens * d, kUnknown));
  step.values = step.keys;
  step.known.assign(model_.kv_heads, std::vector<bool>(tokens));
  for (const TensorName& name : op.tensors.reads) {
    if (name.what == TensorClass::queries) {
      const auto& q = input<std::vector<Half>>(op, name, tensors_);
      const std::size_t count = name.heads.count * per_head;
      halves_to_floats(std::span(q).subspan(row * count, count),
                       std::span(step.q).subspan(name.heads.first.value * per_head, count));
    }
    if (name.what == TensorClass::new_kv) {
      const auto& kv = input<NewKv>(op, name, tensors_);
      for (std::uint32_t head = name.heads.first.value; head < name.heads.first.value + name.heads.count; ++head)
        step.know(head, step.sequence.first_token, row_of(keys(kv), values(kv), row, name.heads, head));
    }
    if (name.what != TensorClass::fetched_kv && name.what != TensorClass::kv_cache) continue;
    const auto& from = input<RowsByHead>(op, name, tensors_).rows;
    const auto of = from.find(step.sequence.sequence);
    if (of == from.end()) continue;
    for (const auto& [head, rows] : of->second)
      for (const auto& [token, both] : rows) step.know(head, token, both);
  }
  return step;
}

void CarriedRows::select(const Operation& op) {
  const LayerId layer = *op.tag.layer;
  for (std::size_t row = 0; row < op.tag.sequences->size(); ++row) {
    const Step step = step_of(op, row);
    if (method_->speculates()) method_->speculate(step.sequence.sequence, layer, step.q);
    const std::vector<KvView> views = step.views(model_.head_dim);
    ChosenRows::Lists lists = method_->choose(
        {step.sequence.sequence, layer, static_cast<std::uint32_t>(model_.group_size()), step.q, views});
    for (std::vector<std::uint32_t>& tokens : lists) {
      if (tokens.empty() || tokens.back() != step.sequence.first_token)
        throw InternalError(fmt::format("{}: the current token is not chosen", user(op)));
      tokens.pop_back();  // it is fetched from nowhere
    }
    rows_.choose(step.sequence.sequence, layer, std::move(lists));
  }
  const TensorName& choice = written_by(op);
  tensors_.put(choice, output_place(op, choice.what), true);
}

void CarriedRows::attend(const Operation& op) {
  const LayerId layer = *op.tag.layer;
  const std::size_t per_head = model_.group_size() * model_.head_dim;
  std::map<TensorName, std::vector<Half>> outputs;
  std::vector<float> out(model_.q_width());
  std::vector<Half> rounded(out.size());
  for (std::size_t row = 0; row < op.tag.sequences->size(); ++row) {
    const Step step = step_of(op, row);
    const SequenceId sequence = step.sequence.sequence;
    const std::vector<KvView> views = step.views(model_.head_dim);
    const LayerStep of{sequence, layer, static_cast<std::uint32_t>(model_.group_size()), step.q, views};
    const ChosenRows::Lists attended = method_->choose(of);
    for (std::size_t head = 0; head < attended.size(); ++head)
      for (const std::uint32_t token : attended[head])
        if (!step.known[head][token])
          throw InternalError(fmt::format("{}: token {} of sequence {}, KV head {}, is attended to and not at the GPU",
                                          user(op), token, sequence.value, head));
    method_->attend_layer(of, out, {});
    floats_to_halves(out, rounded);
    for (const SizedTensor& write : op.tensors.writes) {
      const auto from = rounded.begin() + static_cast<std::ptrdiff_t>(write.name.heads.first.value * per_head);
      std::vector<Half>& to = outputs[write.name];
      to.insert(to.end(), from, from + static_cast<std::ptrdiff_t>(write.name.heads.count * per_head));
    }
    keep(sequence, layer);
  }
  for (auto& [name, values_of] : outputs) tensors_.put(name, output_place(op, name.what), std::move(values_of));
}

std::vector<std::uint32_t> CarriedRows::positions(const Operation& op, const ChosenRows::Run& run) const {
  std::vector<std::uint32_t> all;
  for (std::uint32_t row = run.first; row < run.first + run.count; ++row)
    all.push_back(rows_.plan().evicts()
                      ? rows_.in_file(op.tag.sequences->at(run.sequence).sequence, *op.tag.layer, run.head).at(row)
                      : row);
  return all;
}

void CarriedRows::load_file(const Operation& op, std::size_t index, Bytes at, std::span<std::byte> bytes) {
  const ChosenRows::Run& run = runs_.at(op.id).at(index);
  const TensorName* const newest = tensor_read(op, TensorClass::kv_cache);
  const RowsByHead from = newest != nullptr ? input<RowsByHead>(op, *newest, tensors_) : new_rows(op);
  const auto& rows = from.rows.at(op.tag.sequences->at(run.sequence).sequence).at(run.head);
  std::vector<Half> all;
  for (const std::uint32_t token : positions(op, run)) {
    const std::vector<Half>& row = rows.at(token);
    all.insert(all.end(), row.begin(), row.end());
  }
  std::ranges::copy(std::as_bytes(std::span(all)).subspan(at.value, bytes.size()), bytes.begin());
}

void CarriedRows::store_file(const Operation& op, std::size_t index, Bytes at, std::span<const std::byte> bytes) {
  std::vector<Half>& rows = arriving_[op.id][index];
  rows.resize(std::size_t{runs_.at(op.id).at(index).count} * 2 * model_.head_dim);
  std::ranges::copy(bytes, std::as_writable_bytes(std::span(rows)).begin() + static_cast<std::ptrdiff_t>(at.value));
}

void CarriedRows::ended(const Operation& op) {
  if (op.kind == OpKind::read_file) {
    RowsByHead read;
    const std::size_t size = 2 * model_.head_dim;
    for (const auto& [index, halves] : arriving_[op.id]) {
      const ChosenRows::Run& run = runs_.at(op.id).at(index);
      const std::vector<std::uint32_t> tokens = positions(op, run);
      for (std::size_t i = 0; i < tokens.size(); ++i) {
        const auto from = halves.begin() + static_cast<std::ptrdiff_t>(i * size);
        read.rows[op.tag.sequences->at(run.sequence).sequence][run.head][tokens[i]].assign(
            from, from + static_cast<std::ptrdiff_t>(size));
      }
    }
    const TensorName& to = written_by(op);
    tensors_.put(to, output_place(op, to.what), std::move(read));
  }
  runs_.erase(op.id);
  arriving_.erase(op.id);
}

}  // namespace csdsim::host
