#include "host_runtime/core/features/head_rows/carried_head_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "host_runtime/core/attention/attention.h"
#include "host_runtime/core/carried/decoder_rows.h"
#include "host_runtime/core/features/head_rows/head_rows.h"

namespace csdsim::host {

namespace {

using Kind = HeadRows::Kind;
using Sequence = HeadRows::Sequence;

constexpr Half kNotANumber = 0x7E00;  // in the place of what was not read, so that nobody uses it unnoticed

/// By sequence of the mini-batch, then head: ascending components or tokens. Empty for sequences that are not sparse.
using Choices = std::vector<std::vector<std::uint32_t>>;

/// Rows of a mini-batch that were read from a file. For each head: the chosen components of all tokens, or K of the
/// chosen tokens followed by V of the chosen tokens.
struct FetchedRows {
  HeadRows rows;
  Choices chosen;
  std::vector<std::vector<Half>> data;
};

/// The mean of V over all tokens, of each sequence and head.
struct ValueMeans {
  std::vector<std::uint32_t> tokens;  ///< by sequence
  std::vector<std::vector<float>> mean;
};

const HeadRows& rows_of_file(const Operation& op) {
  const auto& work = std::get<FileWork>(op.work);
  if (!work.rows) throw InternalError(fmt::format("{} names no rows of heads", user(op)));
  return *work.rows;
}

/// The tokens that a head attends to: all of them if the sequence is not sparse.
std::vector<std::uint32_t> attended(const Sequence& of, const std::vector<std::uint32_t>& chosen) {
  return of.sparse() ? chosen : all_indices(of.context);
}

/// A cache of which only some rows are known.
struct PartlyKnown {
  std::vector<Half> keys, values, components;
  std::vector<float> mean;
  KvView view;

  PartlyKnown(std::size_t tokens, std::size_t d)
      : keys(tokens * d, kNotANumber), values(keys), components(keys), mean(d, std::nanf("")) {
    view = {tokens, d, keys, values, components, tokens, mean};
  }
  void know_components(const std::vector<std::uint32_t>& chosen, const std::vector<Half>& data) {
    for (std::size_t i = 0; i < chosen.size(); ++i)
      std::copy_n(data.data() + i * view.tokens, view.tokens, components.data() + chosen[i] * view.tokens);
  }
  void know_tokens(const std::vector<std::uint32_t>& chosen, const std::vector<Half>& data) {
    const std::size_t d = view.head_dim;
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      std::copy_n(data.data() + i * d, d, keys.data() + chosen[i] * d);
      std::copy_n(data.data() + (chosen.size() + i) * d, d, values.data() + chosen[i] * d);
    }
  }
};

SparqAttention sparq_of(const HeadRows& rows, const Sequence& of) {
  return SparqAttention({.components = rows.components, .tokens = of.top_k, .local = of.local});
}

std::vector<std::uint32_t> token_numbers(const HeadSelection& selection) {
  std::vector<std::uint32_t> tokens;
  for (const TokenIndex token : selection.tokens) tokens.push_back(token.value);
  return tokens;
}

/// The first written tensor of a class; null if there is none.
const TensorName* written(const Operation& op, TensorClass what) {
  for (const SizedTensor& write : op.tensors.writes)
    if (write.name.what == what) return &write.name;
  return nullptr;
}
const TensorName* read(const Operation& op, TensorClass what) {
  for (const TensorName& name : op.tensors.reads)
    if (name.what == what) return &name;
  return nullptr;
}

}  // namespace

bool CarriedHeadRows::serves(const Operation& op) const {
  switch (op.kind) {
    case OpKind::select_tokens:
      return true;
    case OpKind::append_kv:
      return written(op, TensorClass::workspace) != nullptr || written(op, TensorClass::fetched_kv) != nullptr;
    case OpKind::attention:
      return read(op, TensorClass::fetched_kv) != nullptr;
    case OpKind::read_file:
    case OpKind::write_file:
      return std::get<FileWork>(op.work).rows.has_value();
    default:
      return false;
  }
}

void CarriedHeadRows::perform(const Operation& op) {
  if (op.kind == OpKind::select_tokens) return select_tokens(op);
  if (op.kind == OpKind::attention) return attend(op);
  update_value_means(op);
  join(op);
}

void CarriedHeadRows::load_file(const Operation& op, std::size_t index, Bytes at, std::span<std::byte> bytes) {
  auto& ranges = moving_[op.id];
  const auto found = ranges.find(index);
  const std::vector<Half>& rows = found != ranges.end() ? found->second : ranges[index] = rows_to_write(op, index);
  std::ranges::copy(std::as_bytes(std::span(rows)).subspan(at.value, bytes.size()), bytes.begin());
}

void CarriedHeadRows::store_file(const Operation& op, std::size_t index, Bytes at, std::span<const std::byte> bytes) {
  std::vector<Half>& rows = moving_[op.id][index];
  rows.resize(std::get<FileWork>(op.work).ranges.at(index).size.value / sizeof(Half));
  std::ranges::copy(bytes, std::as_writable_bytes(std::span(rows)).begin() + static_cast<std::ptrdiff_t>(at.value));
}

void CarriedHeadRows::ended(const Operation& op) {
  if (op.kind == OpKind::read_file) keep(op);
  moving_.erase(op.id);
}

/// q of an operation as fp32, [sequence][head * G][d].
std::vector<float> CarriedHeadRows::wide_queries(const Operation& op, HeadRange heads) const {
  const auto& q = tensors_.at<std::vector<Half>>(TensorName::of(TensorClass::queries, op.tag, heads),
                                                 input_place(op, TensorClass::queries), user(op));
  std::vector<float> wide(q.size());
  halves_to_floats(q, wide);
  return wide;
}

void CarriedHeadRows::select_tokens(const Operation& op) {
  const TensorName* const choice = written(op, TensorClass::token_choice);
  if (choice == nullptr) return;  // no sequence is sparse
  const std::vector<float> q = wide_queries(op, choice->heads);
  const Place place = output_place(op, choice->what);
  const TensorName* const scored = read(op, TensorClass::fetched_kv);
  // The components are chosen by q and r. This operation does not know r, the read operation that follows does: it gets
  // q.
  if (scored == nullptr) return tensors_.put(*choice, place, q);
  const auto& from = tensors_.at<FetchedRows>(*scored, input_place(op, scored->what), user(op));
  const std::size_t d = from.rows.head_dim, heads = from.rows.heads.count;
  const std::size_t per_head = q.size() / (from.rows.sequences.size() * heads);
  Choices chosen(from.data.size());
  std::vector<float> unused(per_head);
  for (std::size_t at = 0; at < chosen.size(); ++at) {
    const Sequence& of = from.rows.sequences[at / heads];
    if (!of.sparse()) continue;
    PartlyKnown cache(of.context, d);
    cache.know_components(from.chosen[at], from.data[at]);
    HeadSelection selection;
    sparq_of(from.rows, of)
        .attend(std::span<const float>(q).subspan(at * per_head, per_head), cache.view, unused, &selection);
    chosen[at] = token_numbers(selection);
  }
  tensors_.put(*choice, place, std::move(chosen));
}

namespace {

/// The r components with the largest sum of |q| over the query heads of each KV head.
Choices best_components(const HeadRows& rows, std::span<const float> q) {
  const std::size_t heads = rows.heads.count, d = rows.head_dim;
  const std::size_t per_head = q.size() / (rows.sequences.size() * heads);
  Choices chosen(rows.sequences.size() * heads);
  for (std::size_t at = 0; at < chosen.size(); ++at) {
    if (!rows.sequences[at / heads].sparse()) continue;
    std::vector<float> magnitude(d, 0.0f);
    for (std::size_t i = 0; i < per_head; ++i) magnitude[i % d] += std::abs(q[at * per_head + i]);
    chosen[at] = top_indices(magnitude, rows.components);
  }
  return chosen;
}

}  // namespace

/// What the choice before a read has chosen.
static Choices choices_of(const TensorStore& tensors, const Operation& op, const HeadRows& rows) {
  const TensorName name = choice_name(op.tag, rows);
  const bool any = std::ranges::any_of(rows.sequences, &Sequence::sparse);
  if (!any) return Choices(rows.sequences.size() * rows.heads.count);
  if (rows.kind == Kind::tokens) return tensors.at<Choices>(name, Place::host(), user(op));
  return best_components(rows, tensors.at<std::vector<float>>(name, Place::host(), user(op)));
}

std::optional<Work> CarriedHeadRows::resolve(const Operation& op) const {
  if (op.kind != OpKind::read_file || !std::get<FileWork>(op.work).rows) return std::nullopt;
  FileWork work = std::get<FileWork>(op.work);
  Choices chosen = choices_of(tensors_, op, *work.rows);
  const Sequence* const first = work.rows->sequences.data();
  work.ranges = chosen_ranges(*work.rows, [&](const Sequence& of, std::uint32_t head) {
    std::vector<std::uint32_t>& all = chosen[static_cast<std::size_t>(&of - first) * work.rows->heads.count + head];
    if (work.rows->kind == Kind::tokens) std::erase_if(all, [&](std::uint32_t token) { return token >= of.stored; });
    return std::span<const std::uint32_t>(all);
  });
  return work;
}

void CarriedHeadRows::keep(const Operation& op) {
  const TensorName* const name = written(op, TensorClass::fetched_kv);
  if (name == nullptr) throw InternalError(fmt::format("{} reads rows for nobody", user(op)));
  FetchedRows fetched{.rows = rows_of_file(op), .chosen = {}, .data = {}};
  fetched.chosen = choices_of(tensors_, op, fetched.rows);
  std::vector<Half> all;
  for (const auto& [index, range] : moving_[op.id]) all.insert(all.end(), range.begin(), range.end());
  std::size_t next = 0;
  for (std::size_t at = 0; at < fetched.chosen.size(); ++at) {
    const Sequence& of = fetched.rows.sequences[at / fetched.rows.heads.count];
    std::size_t size = fetched.chosen[at].size() * of.stored;
    if (fetched.rows.kind == Kind::tokens) {
      const std::vector<std::uint32_t> tokens = attended(of, fetched.chosen[at]);
      size = 2 * fetched.rows.head_dim *
             static_cast<std::size_t>(std::ranges::count_if(tokens, [&](auto token) { return token < of.stored; }));
    }
    if (next + size > all.size()) throw InternalError(fmt::format("{} has read too little", user(op)));
    const auto from = all.begin() + static_cast<std::ptrdiff_t>(next);
    fetched.data.emplace_back(from, from + static_cast<std::ptrdiff_t>(size));
    next += size;
  }
  tensors_.put(*name, output_place(op, name->what), std::move(fetched));
}

void CarriedHeadRows::join(const Operation& op) {
  const TensorName* const to = written(op, TensorClass::fetched_kv);
  if (to == nullptr) return;
  const TensorName* const from = read(op, TensorClass::fetched_kv);
  const TensorName* const newest = read(op, TensorClass::kv_cache);
  if (from == nullptr || newest == nullptr) throw InternalError(fmt::format("{} joins nothing", user(op)));
  FetchedRows joined = tensors_.at<FetchedRows>(*from, input_place(op, from->what), user(op));
  const auto& cache = tensors_.at<std::shared_ptr<HostKvCache>>(*newest, input_place(op, newest->what), user(op));
  const std::size_t heads = joined.rows.heads.count, d = joined.rows.head_dim;
  for (std::size_t at = 0; at < joined.data.size(); ++at) {
    const Sequence& of = joined.rows.sequences[at / heads];
    const KvView view = cache->view(of.sequence, LayerId{0}, KvHead{static_cast<std::uint32_t>(at % heads)});
    if (view.tokens != of.context)
      throw InternalError(
          fmt::format("{}: {} tokens in host memory and files of {}", user(op), view.tokens, of.context));
    const std::vector<Half> old = std::exchange(joined.data[at], {});
    std::vector<Half>& all = joined.data[at];
    if (joined.rows.kind == Kind::components) {
      for (std::size_t i = 0; i < joined.chosen[at].size(); ++i) {
        all.insert(all.end(), old.begin() + static_cast<std::ptrdiff_t>(i * of.stored),
                   old.begin() + static_cast<std::ptrdiff_t>((i + 1) * of.stored));
        for (std::size_t t = of.stored; t < of.context; ++t) all.push_back(view.keys[t * d + joined.chosen[at][i]]);
      }
      continue;
    }
    for (const bool of_values : {false, true}) {
      const auto half = static_cast<std::ptrdiff_t>(old.size() / 2);
      all.insert(all.end(), old.begin() + (of_values ? half : 0), of_values ? old.end() : old.begin() + half);
      for (const std::uint32_t token : attended(of, joined.chosen[at])) {
        if (token < of.stored) continue;
        const auto row = (of_values ? view.values : view.keys).subspan(token * d, d);
        all.insert(all.end(), row.begin(), row.end());
      }
    }
  }
  tensors_.put(*to, output_place(op, to->what), std::move(joined));
}

void CarriedHeadRows::update_value_means(const Operation& op) {
  const TensorName* const name = written(op, TensorClass::workspace);
  if (name == nullptr) return;
  const Place place = output_place(op, name->what);
  const std::vector<StepSequence> sequences = data_.sequences_of(op);
  const std::size_t heads = name->heads.count, d = data_.decoder().config().head_dim, width = heads * d;
  if (!tensors_.has(*name, place))
    tensors_.put(*name, place,
                 ValueMeans{std::vector<std::uint32_t>(sequences.size()),
                            std::vector(sequences.size() * heads, std::vector<float>(d, 0.0f))});
  auto& means = tensors_.at<ValueMeans>(*name, place, user(op));
  const auto& kv = tensors_.at<NewKv>(TensorName::of(TensorClass::new_kv, op.tag, name->heads),
                                      input_place(op, TensorClass::new_kv), user(op));
  std::vector<float> row(width);
  for (std::uint32_t i = 0; i < sequences.size(); ++i) {
    const Share rows = data_.rows_of(op, sequences[i].sequence.value);
    for (std::size_t t = rows.first; t < std::size_t{rows.first} + rows.count; ++t) {
      halves_to_floats(values(kv).subspan(t * width, width), row);
      const auto tokens = static_cast<float>(++means.tokens[i]);
      for (std::size_t at = 0; at < width; ++at) {
        float& mean = means.mean[i * heads + at / d][at % d];
        mean += (row[at] - mean) / tokens;
      }
    }
  }
}

void CarriedHeadRows::attend(const Operation& op) {
  const TensorName& output = *written(op, TensorClass::attention_output);
  const FetchedRows *components = nullptr, *tokens = nullptr;
  const ValueMeans* means = nullptr;
  for (const TensorName& name : op.tensors.reads) {
    const Place place = input_place(op, name.what);
    if (name.what == TensorClass::workspace) means = &tensors_.at<ValueMeans>(name, place, user(op));
    if (name.what != TensorClass::fetched_kv) continue;
    const auto& fetched = tensors_.at<FetchedRows>(name, place, user(op));
    (fetched.rows.kind == Kind::tokens ? tokens : components) = &fetched;
  }
  if (tokens == nullptr || means == nullptr)
    throw InternalError(fmt::format("{} lacks rows of tokens or means of V", user(op)));
  const std::vector<float> q = wide_queries(op, output.heads);
  const std::size_t per_head = q.size() / tokens->data.size();
  std::vector<Half> rows(q.size());
  std::vector<float> out(per_head);
  for (std::size_t at = 0; at < tokens->data.size(); ++at) {
    const Sequence& of = tokens->rows.sequences[at / output.heads.count];
    PartlyKnown cache(of.context, tokens->rows.head_dim);
    cache.know_tokens(attended(of, tokens->chosen[at]), tokens->data[at]);
    const auto of_head = std::span<const float>(q).subspan(at * per_head, per_head);
    if (of.sparse()) {
      if (components == nullptr) throw InternalError(fmt::format("{} has no scores", user(op)));
      cache.know_components(components->chosen[at], components->data[at]);
      cache.mean = means->mean[at];
      cache.view.value_mean = cache.mean;
      HeadSelection selection;
      sparq_of(tokens->rows, of).attend(of_head, cache.view, out, &selection);
      if (token_numbers(selection) != tokens->chosen[at])
        throw InternalError(fmt::format("{} attends to other tokens than were read", user(op)));
    } else {
      DenseAttention().attend(of_head, cache.view, out, nullptr);
    }
    floats_to_halves(out, std::span(rows).subspan(at * per_head, per_head));
  }
  tensors_.put(output, output_place(op, output.what), std::move(rows));
}

std::vector<Half> CarriedHeadRows::rows_to_write(const Operation& op, std::size_t index) const {
  const HeadRows& rows = rows_of_file(op);
  const std::size_t d = rows.head_dim, pieces = rows.kind == Kind::tokens ? 2 : d;
  const Sequence* of = nullptr;
  for (const Sequence& each : rows.sequences) {
    of = &each;
    if (each.stored == each.first) continue;
    if (index < rows.heads.count * pieces) break;
    index -= rows.heads.count * pieces;
  }
  const std::size_t head = index / pieces, piece = index % pieces, heads = rows.heads.count;
  // A prompt's from what has just been computed, otherwise what has been kept in host memory.
  const TensorName* const kept = read(op, TensorClass::kv_cache);
  const TensorName fresh = TensorName::of(TensorClass::new_kv, op.tag, rows.heads);
  const auto row = [&](bool of_values, std::size_t token) -> std::span<const Half> {
    if (kept != nullptr) {
      const auto& cache = tensors_.at<std::shared_ptr<HostKvCache>>(*kept, input_place(op, kept->what), user(op));
      const KvView view = cache->view(of->sequence, LayerId{0}, KvHead{static_cast<std::uint32_t>(head)});
      return (of_values ? view.values : view.keys).subspan(token * d, d);
    }
    const auto& kv = tensors_.at<NewKv>(fresh, input_place(op, fresh.what), user(op));
    const std::size_t at = data_.rows_of(op, of->sequence.value).first + token;
    return (of_values ? values(kv) : keys(kv)).subspan((at * heads + head) * d, d);
  };
  std::vector<Half> out;
  for (std::size_t token = of->first; token < of->stored; ++token) {
    if (rows.kind == Kind::components) {
      out.push_back(row(false, token)[piece]);
    } else {
      const auto all = row(piece == 1, token);
      out.insert(out.end(), all.begin(), all.end());
    }
  }
  return out;
}

}  // namespace csdsim::host
